"""`-f pdf --pdfa`: PDF/A that says so, with the same pages; what cannot be is refused by name."""

import io
import os
import shutil
import zlib

import pikepdf
import pymupdf
import pytest
from command_line import ROOT
from pikepdf import Array, Dictionary, Name, pdfa
from PIL import Image
from test_searchable_pdf import WORDS, assert_found, picture_of, record_of, writing

from vlmcli.documents.source import Source
from vlmcli.errors import ExitCode, MissingExtraError, OutputError
from vlmcli.outputs import archival
from vlmcli.outputs.archival import require_archivable, write_archival
from vlmcli.outputs.files import AtomicFile
from vlmcli.outputs.searchable_pdf import SearchablePdfWriter
from vlmcli.results import Line, PageRecord, Strip


def archive(source, target, records):
    """Write a PDF/A from records made by hand."""
    writer = SearchablePdfWriter(
        Source(path=source, name=source.name), None, AtomicFile(target), pdfa=True
    )
    try:
        for record in records:
            writer.write(record)
        writer.finish()
    except BaseException:
        writer.abort()
        raise
    return pymupdf.open(target)


def assert_is_pdfa(path, part):
    """What every PDF/A of level b has, looked for with MuPDF, and all that the validator knows."""
    assert path.read_bytes()[:7] == b"%PDF-1." and path.read_bytes()[7:8] in b"01234567"
    with pymupdf.open(path) as pdf:
        catalogue = pdf.pdf_catalog()
        packet = pdf.get_xml_metadata()
        assert f"<pdfaid:part>{part}</pdfaid:part>" in packet
        assert "<pdfaid:conformance>B</pdfaid:conformance>" in packet
        intent = int(pdf.xref_get_key(catalogue, "OutputIntents")[1].strip("[]").split()[0])
        assert pdf.xref_get_key(intent, "S") == ("name", "/GTS_PDFA1")
        profile = int(pdf.xref_get_key(intent, "DestOutputProfile")[1].split()[0])
        data = pdf.xref_stream(profile)
        assert data[36:40] == b"acsp" and data[16:20] == b"RGB "
        assert pdf.xref_get_key(-1, "ID")[0] == "array"
        assert pdf.xref_get_key(-1, "Encrypt")[0] == "null"
        for page in pdf:
            assert all(extension != "n/a" for _, extension, *_ in page.get_fonts(full=True))
        filters = [pdf.xref_get_key(xref, "Filter")[1] for xref in range(1, pdf.xref_length())]
        assert not [one for one in filters if "LZW" in one]
    report = pdfa.validate_written(path, f"{part}b")
    assert report.passed, report.summary()


@pytest.fixture
def scan(tmp_path):
    """Two pages with a picture each, one turned, one cropped; nothing else."""
    with pymupdf.open() as pdf:
        for rotation, crop in ((90, None), (0, "[50 140 400 560]")):
            page = pdf.new_page(width=480, height=640)
            data = io.BytesIO()
            writing(480, 640, "A page").convert("RGB").save(data, "PNG")
            page.insert_image(page.rect, stream=data.getvalue())
            pdf.xref_set_key(page.xref, "Rotate", str(rotation))
            if crop:
                pdf.xref_set_key(page.xref, "CropBox", crop)
        pdf.save(tmp_path / "in.pdf", deflate=True)
    return tmp_path / "in.pdf"


def changed(scan, change):
    """The scan with something done to it by pikepdf."""
    target = scan.with_name("changed.pdf")
    with pikepdf.open(scan) as pdf:
        change(pdf)
        pdf.save(target)
    return target


def test_a_scan_becomes_pdfa_with_the_same_pages(scan, tmp_path):
    with pymupdf.open(scan) as before:
        records = [record_of(page, page.number + 1) for page in before]
        with archive(scan, tmp_path / "out.pdf", records) as after:
            for old, new, record in zip(before, after, records, strict=True):
                assert picture_of(new) == picture_of(old)
                assert new.get_pixmap(dpi=110).samples == old.get_pixmap(dpi=110).samples
                assert new.read_contents().endswith(old.read_contents())
                assert_found(new, record)
    assert_is_pdfa(tmp_path / "out.pdf", 2)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.tiff", "a.gif"])
@pytest.mark.parametrize("mode", ["1", "L", "RGB", "CMYK"])
def test_pictures_become_pdfa(tmp_path, name, mode):
    if (mode, name[-3:]) in {("CMYK", "png"), ("CMYK", "gif"), ("1", "jpg")}:
        pytest.skip("there is no such picture")
    writing(600, 200, "Some words").convert(mode).save(tmp_path / name)
    with pymupdf.open() as pdf:
        record = record_of(pdf.new_page(width=288, height=96))
    with archive(tmp_path / name, tmp_path / "a.pdf", [record]) as pdf:
        assert WORDS in pdf[0].get_text()
    assert_is_pdfa(tmp_path / "a.pdf", 2)


@pytest.mark.parametrize("fall", [0, 40, -25])
def test_lines_that_are_told_as_a_whole_may_be_archived(tmp_path, fall):
    """Of text that is askew, marked content says what it is."""
    writing(600, 200, "Some words").save(tmp_path / "a.png")
    strip = Strip(
        start=(20, 90), end=(420, 90 + fall), ascent=30, descent=8, words=((0, 190), (200, 400))
    )
    line = Line(bbox=(15, 30, 430, 150), text="Some wörds", strip=strip)
    record = PageRecord(
        document="a.png", page=1, pages=1, status="ok", source="model", width=600, height=200,
        text=line.text, lines=(line,),
    )  # fmt: skip
    with archive(tmp_path / "a.png", tmp_path / "a.pdf", [record]) as pdf:
        assert pdf[0].get_text().strip() == "Some wörds"
        assert (b"ActualText" in pdf[0].read_contents()) == bool(fall)
    assert_is_pdfa(tmp_path / "a.pdf", 2)


def test_attachments_make_it_3b_and_stay(scan, tmp_path):
    with pymupdf.open(scan) as pdf:
        pdf.embfile_add("data.csv", b"1,2,3", filename="data.csv")
        pdf.save(tmp_path / "more.pdf")
    with archive(tmp_path / "more.pdf", tmp_path / "out.pdf", []) as after:
        assert after.embfile_get("data.csv") == b"1,2,3"
    assert_is_pdfa(tmp_path / "out.pdf", 3)


def test_bookmarks_links_and_title_stay(scan, tmp_path):
    with pymupdf.open(scan) as pdf:
        pdf.set_toc([[1, "First", 1], [2, "Second", 2]])
        link = {"kind": pymupdf.LINK_URI, "from": pymupdf.Rect(9, 9, 50, 50), "uri": "urn:x"}
        pdf[0].insert_link(link)
        pdf.set_metadata({"title": "Ünïcode", "author": "Somebody"})
        pdf.save(tmp_path / "more.pdf")
        toc = pdf.get_toc()
    with archive(tmp_path / "more.pdf", tmp_path / "out.pdf", []) as after:
        assert after.get_toc() == toc
        assert [link["uri"] for link in after[0].get_links()] == ["urn:x"]
        assert (after.metadata["title"], after.metadata["author"]) == ("Ünïcode", "Somebody")
        assert "Ünïcode" in after.get_xml_metadata()
    assert_is_pdfa(tmp_path / "out.pdf", 2)


def test_the_sample_can_be_archived(real, tmp_path):
    name = str(ROOT / "samples" / "scan.pdf")
    done = real("ocr", name, "-f", "pdf", "--pdfa", "-o", "out.pdf", "--text-layer", "only")
    assert done.returncode == 0, done.stderr.decode()
    (said,) = done.stderr.splitlines()
    assert b"1 page has no text layer" in said
    with pymupdf.open(tmp_path / "out.pdf") as after, pymupdf.open(name) as before:
        assert picture_of(after[0]) == picture_of(before[0])
    assert_is_pdfa(tmp_path / "out.pdf", 2)


def lzw(pdf):
    """Eight bits of LZW, by hand: clear, one literal byte, end."""
    bits = f"{256:09b}{ord(' '):09b}{257:09b}"
    data = int(bits.ljust(32, "0"), 2).to_bytes(4, "big")
    stream = pdf.make_stream(b"")
    stream.write(data, filter=Name.LZWDecode)
    pdf.pages[0].contents_add(stream)


def opens_with_script(pdf):
    pdf.Root.OpenAction = Dictionary(S=Name.JavaScript, JS="app.alert('x')")
    names = Array(["x", Dictionary(S=Name.JavaScript, JS="1")])
    pdf.Root.Names = Dictionary(JavaScript=Dictionary(Names=names))


def images_of(pdf):
    return [entry for page in pdf.pages for entry in page.obj.Resources.XObject.values()]


def interpolated(pdf):
    for image in images_of(pdf):
        image.Interpolate = True


def of_version_2(pdf):
    pdf.Root.Version = Name("/2.0")


@pytest.mark.parametrize("change", [lzw, opens_with_script, interpolated, of_version_2])
def test_what_is_no_content_is_mended(scan, tmp_path, change):
    source = changed(scan, change)
    require_archivable(Source(path=source, name="d"))
    with archive(source, tmp_path / "out.pdf", []) as after, pymupdf.open(source) as before:
        assert [picture_of(page) for page in after] == [picture_of(page) for page in before]
    assert b"JavaScript" not in (tmp_path / "out.pdf").read_bytes()
    assert_is_pdfa(tmp_path / "out.pdf", 2)


def foreign_font(pdf):
    font = Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica)
    pdf.pages[0].obj.Resources.Font = Dictionary(F=font)
    more = pdf.make_stream(b"BT /F 12 Tf 20 20 Td (x) Tj ET")
    pdf.pages[0].contents_add(more)


def inks(pdf):
    more = pdf.make_stream(b"0 0 0 1 k 0 0 9 9 re f")
    pdf.pages[0].contents_add(more)


def launches(pdf):
    action = Dictionary(S=Name.Launch, F="x")
    pdf.pages[0].obj.Annots = Array(
        [Dictionary(Type=Name.Annot, Subtype=Name.Link, Rect=[0, 0, 9, 9], F=4, A=action)]
    )


def has_script_on_a_page(pdf):
    pdf.pages[0].obj.AA = Dictionary(O=Dictionary(S=Name.JavaScript, JS="1"))


def signed(pdf):
    value = Dictionary(Type=Name.Sig, Filter=Name("/Adobe.PPKLite"), ByteRange=[0, 1, 2, 3])
    field = pdf.make_indirect(Dictionary(FT=Name.Sig, T="s", V=value))
    pdf.Root.AcroForm = Dictionary(Fields=[field], SigFlags=3)


def external_stream(pdf):
    pdf.pages[0].obj.Contents = pdf.make_stream(b"", F="other.bin")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (foreign_font, "not embedded"),
        (inks, "CMYK"),
        (launches, "action type not permitted"),
        (has_script_on_a_page, "/AA"),
        (signed, "AcroForm"),
        (external_stream, "/F"),
    ],
)
def test_what_cannot_be_is_refused_by_name(scan, tmp_path, change, fault):
    source = changed(scan, change)
    with pytest.raises(OutputError, match=fault) as early:
        require_archivable(Source(path=source, name="in.pdf"))
    assert early.value.message.startswith("in.pdf cannot become PDF/A-2b: ")
    with pytest.raises(OutputError, match=fault):
        archive(source, tmp_path / "out.pdf", [])
    assert not (tmp_path / "out.pdf").exists()


@pytest.mark.parametrize("user", ["", "u"])
def test_encryption_is_refused(scan, tmp_path, user):
    """Whether or not it can be opened without a password."""
    locked = tmp_path / "locked.pdf"
    with pikepdf.open(scan) as pdf:
        pdf.save(locked, encryption=pikepdf.Encryption(owner="o", user=user))
    with pytest.raises(OutputError, match="encrypted"):
        require_archivable(Source(path=locked, name="d"))
    with pytest.raises(OutputError, match="encrypted"):
        write_archival(locked, tmp_path / "out.pdf", "d")


def test_a_name_that_is_no_unicode(scan, tmp_path):
    odd = tmp_path / os.fsdecode(b"a\xff.pdf")
    shutil.copyfile(scan, odd)
    require_archivable(Source(path=odd, name="d"))
    assert require_archivable(Source(path=tmp_path / "none.pdf", name="d")) == []


def test_refused_before_anything_is_read(real, scan, tmp_path):
    """Of several documents all are named; nothing is written."""
    for name, change in (("one.pdf", foreign_font), ("two.pdf", inks)):
        changed(scan, change).rename(tmp_path / name)
    done = real("ocr", "one.pdf", "in.pdf", "two.pdf", "-f", "pdf", "--pdfa", "-o", "out/")
    said = done.stderr.decode()
    assert done.returncode == 4, said
    assert "one.pdf cannot become PDF/A-2b" in said and "two.pdf cannot become PDF/A-2b" in said
    assert "leave out --pdfa" in said
    assert not (tmp_path / "out").exists()


def test_a_damaged_list_of_pages_is_refused_before_anything_is_read(real, tmp_path):
    """MuPDF reads one page of it and pikepdf none: it was refused when all pages were read."""
    path = ROOT / "tests" / "data" / "cyclic-page-tree.pdf"
    done = real("ocr", path, "-f", "pdf", "--pdfa", "-o", tmp_path / "out.pdf")
    said = done.stderr.decode()
    assert done.returncode == 4, said
    assert "cannot become PDF/A: Loop detected" in said
    assert "page 2" not in said, "nothing was read"


def test_without_the_extra_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(archival, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        archival.require_extra()
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.remedy == "pip install 'vlmcli[pdfa]'"


def test_pdfa_is_about_pdfs(cli):
    done = cli("ocr", "a.pdf", "-f", "text", "--pdfa")
    assert done.returncode == 2
    assert b"-f pdf" in done.stderr


def test_flate_streams_are_written_as_they_were(scan, tmp_path):
    """Pictures are not packed anew: their bytes in the file are the same."""
    archive(scan, tmp_path / "out.pdf", []).close()
    raw = []
    for path in (scan, tmp_path / "out.pdf"):
        with pikepdf.open(path) as pdf:
            raw.append([image.read_raw_bytes() for image in images_of(pdf)])
    assert raw[0] == raw[1] and all(zlib.decompress(data) for data in raw[0])


def test_a_picture_in_colour_keeps_every_pixel(tmp_path):
    image = Image.effect_noise((80, 60), 90).convert("RGB")
    image.save(tmp_path / "a.png")
    with archive(tmp_path / "a.png", tmp_path / "a.pdf", []) as pdf:
        (found,) = pdf[0].get_images()
        pixels = pymupdf.Pixmap(pdf, found[0])
        assert pixels.samples == image.tobytes()
