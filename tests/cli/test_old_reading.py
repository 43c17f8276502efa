"""`-f pdf` of a scan with an old invisible text layer: only the new reading is found, and the page
looks the same to the pixel."""

import contextlib
import io
from itertools import pairwise

import pikepdf
import pymupdf
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from PIL import Image
from test_pdfa import archive, assert_is_pdfa
from test_searchable_pdf import WORDS, assert_found, make, record_of

from vlmcli.outputs.operators import NotContentError, operators
from vlmcli.results import Line, PageRecord

OLD = "Qvarg"
FONTS = (
    "/Font <</F <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>> "
    "/T3 <</Type /Font /Subtype /Type3 /FontBBox [0 0 1000 1000] /FontMatrix [.001 0 0 .001 0 0] "
    "/FirstChar 0 /LastChar 255 /Widths [%s] /Encoding <</Type /Encoding /Differences [0 %s]>> "
    "/CharProcs <<%s>> /Resources <<>> >> >>"
)


def noise(width: int = 200, height: int = 260) -> Image.Image:
    return Image.effect_noise((width, height), 90).convert("RGB")


def fonts(pdf) -> str:
    """Resources: Helvetica, and a font whose glyphs are boxes."""
    glyph = pdf.get_new_xref()
    pdf.update_object(glyph, "<<>>")
    pdf.update_stream(glyph, b"900 0 0 0 800 700 d1 0 0 800 700 re f")
    names = " ".join(["/box"] * 256)
    return FONTS % (" ".join(["900"] * 256), names, f"/box {glyph} 0 R")


def form(pdf, content: bytes, resources: str | None) -> int:
    xref = pdf.get_new_xref()
    own = "" if resources is None else f"/Resources <<{resources}>>"
    pdf.update_object(xref, f"<</Type /XObject /Subtype /Form /BBox [0 0 480 640] {own}>>")
    pdf.update_stream(xref, content)
    return xref


def write(path, content: bytes, *, forms: dict[str, int] | None = None, pages=1, pdf=None, turn=0):
    """A PDF of pages with a picture, all with this content behind it."""
    pdf = pymupdf.open() if pdf is None else pdf
    more = "".join(f"/{name} {xref} 0 R " for name, xref in (forms or {}).items())
    own = fonts(pdf)
    for _ in range(pages):
        page = pdf.new_page(width=480, height=640)
        data = io.BytesIO()
        noise().save(data, "PNG")
        page.insert_image((40, 40, 440, 600), stream=data.getvalue())
        picture = pdf.get_page_images(page.number)[0]
        drawn = page.read_contents()
        stream = pdf.get_new_xref()
        pdf.update_object(stream, "<<>>")
        pdf.update_stream(stream, b"q " + drawn + b" Q\n" + content)
        resources = f"<</XObject <</{picture[7]} {picture[0]} 0 R {more}>> {own}>>"
        pdf.xref_set_key(page.xref, "Resources", resources)
        pdf.xref_set_key(page.xref, "Contents", f"{stream} 0 R")
        page.set_rotation(turn)
    pdf.save(path)
    pdf.close()
    return path


def picture_of(page) -> bytes:
    return page.get_pixmap(dpi=100).samples


def read_anew(folder, source, **more):
    """The first page before and after it was read: pictures, and the new page."""
    with pymupdf.open(source) as before:
        record = record_of(before[0], **more)
        drawn = picture_of(before[0])
        images = [before.xref_stream_raw(image[0]) for image in before.get_page_images(0)]
    after = make(source, folder / "out.pdf", [record])
    assert picture_of(after[0]) == drawn
    assert [after.xref_stream_raw(one[0]) for one in after.get_page_images(0)] == images
    assert_found(after[0], record)
    return after


OLD_LAYERS = {
    "as tesseract writes": b"BT 3 Tr 1 0 0 1 60 300 Tm /F 20 Tf 90 Tz [(Qvarg) -30 (Qvarg)] TJ ET",
    "mode before the text": b"q 3 Tr BT /F 20 Tf 60 300 Td (Qvarg) Tj T* (x \\) Qvarg (y)) Tj ET Q",
    "quotes": b"BT 3 Tr /F 9 Tf 9 TL 60 300 Td (Qvarg) ' 2 1 (Qvarg) \" <5176617267> Tj ET",
    "font before the mode": b"BT /F 9 Tf 60 300 Td 0 Tr 3 Tr (Qvarg)Tj ET",
    "over two objects": b"BT 3 Tr /F 9 Tf ET BT 60 300 Td (Qvarg)Tj ET",
    "marked": b"/P <</MCID 0>> BDC BT 3 Tr /F 9 Tf 60 300 Td (Qvarg)Tj ET EMC",
    "visible text behind it": b"BT 3 Tr /F 9 Tf 60 300 Td (Qvarg)Tj 0 Tr 0 -20 Td (seen)Tj ET",
    "visible text before it": b"BT /F 9 Tf 60 300 Td (seen)Tj 3 Tr (Qvarg)Tj ET",
    "a picture within": b"BI /W 8 /H 1 /BPC 8 /CS /G ID (Tj EI \x00\x01 EI "
    b"BT /F 9 Tf 3 Tr (Qvarg) Tj ET",
}


@pytest.mark.parametrize("turn", [0, 90])
@pytest.mark.parametrize("content", OLD_LAYERS.values(), ids=OLD_LAYERS)
def test_the_old_reading_goes_and_nothing_else(tmp_path, content, turn):
    source = write(tmp_path / "in.pdf", content, turn=turn)
    with pymupdf.open(source) as before:
        assert OLD in before[0].get_text()
    after = read_anew(tmp_path, source)
    text = after[0].get_text()
    assert OLD not in text
    assert ("seen" in text) == (b"seen" in content)
    old, new = source.read_bytes(), (tmp_path / "out.pdf").read_bytes()
    assert new[: len(old)] == old


KEPT = {
    "visible": b"BT /F 20 Tf 60 300 Td (Qvarg) Tj ET",
    "mode restored": b"q 3 Tr Q BT /F 20 Tf 60 300 Td (Qvarg) Tj ET",
    "white": b"1 1 1 rg BT /F 20 Tf 60 300 Td (Qvarg) Tj ET",
    "a path to clip": b"q BT 7 Tr /F 80 Tf 60 300 Td (Qvarg) Tj ET 1 0 0 rg 0 0 480 640 re f Q",
    "drawn glyphs": b"BT 3 Tr /T3 20 Tf 60 300 Td (Qvarg) Tj ET",
    "before text on its line": b"BT 3 Tr /F 9 Tf 60 300 Td (Qvarg)Tj 0 Tr (seen)Tj ET",
    "cut off": b"BT 3 Tr /F 9 Tf 60 300 Td (Qvarg)Tj 0 -20 Td (never closed Tj ET",
}


@pytest.mark.parametrize("content", KEPT.values(), ids=KEPT)
def test_what_is_seen_or_cannot_be_told_apart_stays(tmp_path, content):
    source = write(tmp_path / "in.pdf", content)
    with pymupdf.open(source) as before:
        count = before[0].get_text().count(OLD)
    assert read_anew(tmp_path, source)[0].get_text().count(OLD) == count


@pytest.mark.parametrize("has_own", [True, False])
@pytest.mark.parametrize("is_nested", [True, False])
@pytest.mark.parametrize("mode", ["inside", "outside"])
def test_forms_are_copied_and_those_of_other_pages_stay(tmp_path, has_own, is_nested, mode):
    """Two pages draw the same form; one was read anew, the other was answered by its text."""
    pdf = pymupdf.open()
    own = fonts(pdf) if has_own else None
    inside = b"3 Tr " if mode == "inside" else b""
    text = b"BT /F 9 Tf " + inside + b"60 300 Td (Qvarg)Tj ET BT 0 Tr /F 9 Tf 60 200 Td (seen)Tj ET"
    forms = {"Fm": form(pdf, text, own)}
    if is_nested:
        resources = f"/XObject <</In {forms['Fm']} 0 R>>"
        forms = {"In": forms["Fm"]} if own is None else {}
        forms["Fm"] = form(pdf, b"q 1 0 0 1 0 5 cm /In Do Q", None if own is None else resources)
    before = b"q " if mode == "inside" else b"q 3 Tr "
    source = write(tmp_path / "in.pdf", before + b"/Fm Do Q", forms=forms, pages=2, pdf=pdf)
    with pymupdf.open(source) as document:
        pages = [picture_of(page) for page in document]
        records = [record_of(document[0], 1), record_of(document[1], 2, source="text-layer")]
        assert OLD in document[0].get_text()
    after = make(source, tmp_path / "out.pdf", records)
    assert [picture_of(page) for page in after] == pages
    assert OLD not in after[0].get_text() and "seen" in after[0].get_text()
    assert OLD in after[1].get_text()
    assert WORDS not in after[1].get_text()


def test_a_form_that_draws_itself(tmp_path):
    pdf = pymupdf.open()
    forms = {"Fm": form(pdf, b"BT /F 9 Tf 3 Tr 60 300 Td (Qvarg)Tj ET /Fm Do", None)}
    source = write(tmp_path / "in.pdf", b"/Fm Do", forms=forms, pdf=pdf)
    read_anew(tmp_path, source)


@pytest.mark.parametrize(
    "record",
    [
        {"source": "text-layer"},
        {"status": "error", "text": "", "lines": ()},
        {"status": "blank", "source": None, "text": "", "lines": ()},
    ],
)
def test_where_nothing_new_was_read_the_old_reading_stays(tmp_path, record):
    source = write(tmp_path / "in.pdf", OLD_LAYERS["as tesseract writes"])
    with pymupdf.open(source) as before:
        contents = before[0].read_contents()
        made = record_of(before[0], **record)
    after = make(source, tmp_path / "out.pdf", [made])
    assert after[0].read_contents() == contents


def test_content_that_pages_share(tmp_path):
    source = write(tmp_path / "in.pdf", OLD_LAYERS["as tesseract writes"], pages=2)
    with pymupdf.open(source) as document:
        contents = document.xref_get_key(document[0].xref, "Contents")[1]
        for key in ("Contents", "Resources"):
            value = document.xref_get_key(document[0].xref, key)[1]
            document.xref_set_key(document[1].xref, key, value)
        assert contents
        document.save(tmp_path / "shared.pdf")
    with pymupdf.open(tmp_path / "shared.pdf") as before:
        records = [record_of(before[0], 1), record_of(before[1], 2, source="text-layer")]
    after = make(tmp_path / "shared.pdf", tmp_path / "out.pdf", records)
    assert OLD not in after[0].get_text()
    assert OLD in after[1].get_text()


@pytest.mark.parametrize("place", ["page", "form"])
def test_pdfa_stays_valid_where_a_page_is_read_for_the_second_time(tmp_path, place):
    noise().save(tmp_path / "in.png", dpi=(72, 72))
    box = (20, 40, 180, 60)
    first = PageRecord(
        document="d", page=1, pages=1, status="ok", source="model", text=OLD, width=200,
        height=260, lines=(Line(bbox=box, text=OLD),),
    )  # fmt: skip
    make(tmp_path / "in.png", tmp_path / "first.pdf", [first]).close()
    with pikepdf.open(tmp_path / "first.pdf") as made:
        if place == "form":
            page = made.pages[0]
            page.contents_coalesce()
            drawn = made.make_stream(
                page.Contents.read_bytes(), Type=pikepdf.Name.XObject, Subtype=pikepdf.Name.Form,
                BBox=page.MediaBox, Resources=page.Resources,
            )  # fmt: skip
            page.obj.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary(Fm=drawn))
            page.obj.Contents = made.make_stream(b"/Fm Do")
        made.save(tmp_path / "in.pdf")
    with pymupdf.open(tmp_path / "in.pdf") as before:
        assert OLD in before[0].get_text()
        record, drawn = record_of(before[0]), picture_of(before[0])
    after = archive(tmp_path / "in.pdf", tmp_path / "out.pdf", [record])
    assert_is_pdfa(tmp_path / "out.pdf", 2)
    assert picture_of(after[0]) == drawn
    assert OLD not in after[0].get_text()
    assert_found(after[0], record)


SNIPPETS = st.sampled_from(
    [
        *(b"BT", b"ET", b"q", b"Q", b"/F 9 Tf", b"/T3 9 Tf", b"0 Tr", b"3 Tr", b"3 Tr", b"7 Tr"),
        *(b"(ab)Tj", b"[(ab)-200(c)]TJ", b"(ab)'", b'1 2 (ab)"', b"9 -9 Td", b"T*"),
        *(b"1 0 0 1 60 300 Tm", b"/Fm Do", b"0 0 99 99 re f", b"1 0 0 rg", b"% 3 Tr (", b"<< >>"),
        b"BI /W 8 /H 1 /BPC 1 /CS /G ID \xff EI",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(SNIPPETS, max_size=16), st.lists(SNIPPETS, max_size=6))
def test_whatever_a_page_does_it_looks_the_same(tmp_path_factory, content, inner):
    folder = tmp_path_factory.mktemp("any")
    pdf = pymupdf.open()
    start = b"1 0 0 1 60 400 cm 12 TL /F 9 Tf BT ET "
    forms = {"Fm": form(pdf, start + b" ".join(inner), None)}
    source = write(folder / "in.pdf", start + b" ".join(content), forms=forms, pdf=pdf)
    with pymupdf.open(source) as before:
        try:
            drawn, record = picture_of(before[0]), record_of(before[0])
        except pymupdf.mupdf.FzErrorBase:
            # Form XObjects inside clipping text, which MuPDF refuses to draw at all.
            reject()
    after = make(source, folder / "out.pdf", [record])
    assert picture_of(after[0]) == drawn
    assert WORDS in after[0].get_text().replace("\n", " ")


@given(st.lists(SNIPPETS, max_size=20))
def test_operators_stand_in_order_and_what_is_between_them_is_blank(snippets):
    content = b"\n".join(snippets)
    found = list(operators(content))
    assert all(one.end <= other.start for one, other in pairwise(found))
    for one in found:
        assert content[one.start : one.end].startswith(
            one.operands[0] if one.operands else one.name
        )
    assert sum(one.name == b"Tj" for one in found) == snippets.count(b"(ab)Tj")


@given(st.binary(max_size=60))
def test_junk_is_refused_or_read(content):
    with contextlib.suppress(NotContentError):
        assert all(0 <= one.start < one.end <= len(content) for one in operators(content))
