"""`-f pdf`: the words are found where they stand, and nothing of the document is different."""

import io
from collections import Counter
from dataclasses import replace

import pymupdf
import pytest
from command_line import ROOT
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from vlmcli.documents.base import Fragment
from vlmcli.documents.source import Source
from vlmcli.outputs.files import AtomicFile
from vlmcli.outputs.searchable_pdf import SearchablePdfWriter
from vlmcli.outputs.unsaid import unsaid
from vlmcli.results import Line, PageRecord, Strip
from vlmcli.strip import box_of, moved

WORDS = "Zebra Ünïcode — Ελλάδα 漢字 𝔘"


def make(source, target, records, password=None):
    """Write a searchable PDF of a document from records made by hand."""
    writer = SearchablePdfWriter(Source(path=source, name="d"), password, AtomicFile(target))
    for record in records:
        writer.write(record)
    writer.finish()
    return pymupdf.open(target)


def record_of(page, number=1, *, scale=2.0, lines=None, **more):
    """A record of a displayed page at `scale` pixels a point, one line at its lower right."""
    width, height = round(page.rect.width * scale), round(page.rect.height * scale)
    box = (width // 3, height // 2, width - 20, height // 2 + 40)
    lines = (Line(bbox=box, text=WORDS),) if lines is None else lines
    more = {"status": "ok", "source": "model", "text": WORDS, **more}
    return PageRecord(
        document="d", page=number, pages=1, width=width, height=height, lines=lines, **more
    )


def displayed(page, box):
    """A box on the page as it lies, brought to where it is seen."""
    width, height = page.rect.width, page.rect.height
    x0, y0, x1, y1 = box
    boxes = {
        0: box,
        90: (width - y1, x0, width - y0, x1),
        180: (width - x1, height - y1, width - x0, height - y0),
        270: (y0, height - x1, y1, height - x0),
    }
    return pymupdf.Rect(boxes[page.rotation])


def assert_found(page, record):
    """Every line's text lies in its box, on the displayed page."""
    scale = page.rect.width / record.width
    words = page.get_text("words")
    for line in record.lines:
        box = pymupdf.Rect(*(value * scale for value in line.bbox))
        box += (-1, -1, 1, 1)
        inside = [w[4] for w in words if displayed(page, w[:4]) in box]
        assert " ".join(inside) == line.text, words


def picture_of(page):
    return page.get_pixmap(dpi=50).samples


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("crop", [None, "[50 140 400 560]"])
@pytest.mark.parametrize("more", [{}, {"UserUnit": "2.5"}, {"MediaBox": "[-30 20 450 660]"}])
def test_text_stands_where_the_line_is_seen(tmp_path, rotation, crop, more):
    with pymupdf.open() as document:
        page = document.new_page(width=480, height=640)
        page.draw_rect((60, 90, 200, 200), fill=(0.2, 0.5, 0.9))
        for key, value in (more | ({"CropBox": crop} if crop else {})).items():
            document.xref_set_key(page.xref, key, value)
        document.xref_set_key(page.xref, "Rotate", str(rotation))
        document.save(tmp_path / "in.pdf")
    with pymupdf.open(tmp_path / "in.pdf") as before:
        record = record_of(before[0])
        after = make(tmp_path / "in.pdf", tmp_path / "out.pdf", [record])
        assert picture_of(after[0]) == picture_of(before[0])
        assert_found(after[0], record)


def test_a_page_that_leaves_its_graphics_state_changed_does_no_harm(tmp_path):
    with pymupdf.open() as document:
        page = document.new_page(width=300, height=300)
        page.insert_text((20, 40), "x")
        (xref,) = page.get_contents()
        document.update_stream(xref, b"0.5 0 0 0.5 9 10 cm 7 Tr 3 Tc " + page.read_contents())
        document.save(tmp_path / "in.pdf")
    with pymupdf.open(tmp_path / "in.pdf") as before:
        record = record_of(before[0])
    after = make(tmp_path / "in.pdf", tmp_path / "out.pdf", [record])
    assert_found(after[0], record)


def test_everything_else_of_the_document_stays(tmp_path):
    """Bookmarks, links, attachments, form fields; the old bytes are the beginning of the new."""
    with pymupdf.open() as document:
        for number in range(3):
            page = document.new_page(width=300, height=200)
            page.insert_text((20, 40), f"page {number}")
        document.set_toc([[1, "First", 1], [2, "Second", 2]])
        document[0].insert_link(
            {"kind": pymupdf.LINK_GOTO, "from": pymupdf.Rect(9, 9, 50, 50), "page": 2}
        )
        document.embfile_add("data.csv", b"1,2,3", filename="data.csv")
        widget = pymupdf.Widget()
        widget.rect, widget.field_name = pymupdf.Rect(60, 60, 160, 80), "name"
        widget.field_type, widget.field_value = pymupdf.PDF_WIDGET_TYPE_TEXT, "kept"
        document[1].add_widget(widget)
        document.save(tmp_path / "in.pdf")
    with pymupdf.open(tmp_path / "in.pdf") as before:
        records = [record_of(page, page.number + 1) for page in before]
        records[2] = record_of(before[2], 3, source="text-layer")
        after = make(tmp_path / "in.pdf", tmp_path / "out.pdf", records)
        assert after.get_toc() == before.get_toc()
        assert [link["page"] for link in after[0].get_links()] == [2]
        assert after.embfile_get("data.csv") == b"1,2,3"
        assert [widget.field_value for widget in after[1].widgets()] == ["kept"]
        assert [picture_of(page) for page in after] == [picture_of(page) for page in before]
        for number in (0, 1):
            assert_found(after[number], records[number])
        assert WORDS not in after[2].get_text(), "a page with a text of its own gets no second one"
    old, new = ((tmp_path / name).read_bytes() for name in ("in.pdf", "out.pdf"))
    assert new[: len(old)] == old


def test_resources_that_pages_share_or_inherit(tmp_path):
    with pymupdf.open() as document:
        for _ in range(3):
            document.new_page(width=200, height=200).insert_text((20, 40), "old")
        kind, shared = document.xref_get_key(document[0].xref, "Resources")
        assert kind in ("dict", "xref")
        if kind == "dict":
            xref = document.get_new_xref()
            document.update_object(xref, shared)
            shared = f"{xref} 0 R"
        parent = int(document.xref_get_key(document[1].xref, "Parent")[1].split()[0])
        document.xref_set_key(parent, "Resources", shared)
        document.xref_set_key(document[0].xref, "Resources", shared)
        for number in (1, 2):
            document.xref_set_key(document[number].xref, "Resources", "null")
        document.save(tmp_path / "in.pdf")
    with pymupdf.open(tmp_path / "in.pdf") as before:
        records = [record_of(page, page.number + 1) for page in before]
        after = make(tmp_path / "in.pdf", tmp_path / "out.pdf", records)
        for page, record in zip(after, records, strict=True):
            assert_found(page, record)
            assert "old" in page.get_text()
            assert picture_of(page) == picture_of(before[page.number])


def test_an_encrypted_document_stays_encrypted(tmp_path):
    with pymupdf.open() as document:
        document.new_page(width=200, height=200)
        document.save(
            tmp_path / "in.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="u", owner_pw="o"
        )
    with pymupdf.open(tmp_path / "in.pdf") as before:
        before.authenticate("u")
        record = record_of(before[0])
    after = make(tmp_path / "in.pdf", tmp_path / "out.pdf", [record], password="u")
    assert after.needs_pass
    assert after.authenticate("u")
    assert_found(after[0], record)


def writing(width: int, height: int, text: str) -> Image.Image:
    image = Image.new("L", (width, height), 255)
    font = ImageFont.load_default(size=30)
    ImageDraw.Draw(image).text((20, 20), text, font=font, fill=0)
    return image


def test_pictures_become_pages(real, tmp_path):
    """Every frame is a page; a plain JPEG is embedded as it is, a turned one upright."""
    plain = writing(600, 80, "The plain picture")
    plain.save(tmp_path / "plain.jpg", dpi=(150, 150))
    exif = Image.Exif()
    exif[0x0112] = 6
    writing(600, 80, "The turned picture").rotate(90, expand=True).save(
        tmp_path / "turned.jpg", exif=exif
    )
    frames = [writing(600, 80, f"Frame number {n}") for n in (1, 2, 3)]
    frames[0].save(tmp_path / "many.tiff", save_all=True, append_images=frames[1:])
    names = ("plain.jpg", "turned.jpg", "many.tiff")
    done = real("ocr", *names, "-f", "pdf", "-f", "jsonl", "-o", "out/")
    assert done.returncode == 0, done.stderr.decode()
    with pymupdf.open(tmp_path / "out" / "plain.pdf") as pdf:
        (image,) = pdf[0].get_images()
        assert pdf.extract_image(image[0])["image"] == (tmp_path / "plain.jpg").read_bytes()
        assert pdf[0].rect.width == pytest.approx(600 * 72 / 150, abs=0.5)
        assert "picture" in pdf[0].get_text()
    with pymupdf.open(tmp_path / "out" / "turned.pdf") as pdf:
        assert pdf[0].rect.width > 5 * pdf[0].rect.height
        assert "picture" in pdf[0].get_text()
    with pymupdf.open(tmp_path / "out" / "many.pdf") as pdf:
        assert pdf.page_count == 3
        assert all("Frame" in page.get_text() for page in pdf)


@pytest.mark.parametrize(
    ("name", "dpi", "taken"),
    [
        ("a.jpg", 300, 300),
        ("a.jpg", 72, 150),
        ("a.jpg", None, 150),
        ("a.png", 300, 300),
        ("a.png", 96, 150),
        ("a.tiff", 200, 200),
        ("a.tiff", 1, 150),
        ("a.webp", None, 150),
    ],
)
def test_a_page_is_as_large_as_the_sheet_was(tmp_path, name, dpi, taken):
    """Every picture had 150 dpi: sheets scanned at 300 came out on paper of twice their size."""
    writing(620, 300, "Some words").save(tmp_path / name, **({"dpi": (dpi, dpi)} if dpi else {}))
    with make(tmp_path / name, tmp_path / "a.pdf", []) as pdf:
        assert pdf[0].rect.width == pytest.approx(620 * 72 / taken, rel=0.001)
        assert pdf[0].rect.height == pytest.approx(300 * 72 / taken, rel=0.001)


def test_a_page_made_smaller_for_reading_keeps_the_sheets_size(tmp_path):
    writing(1200, 400, "Some words").save(tmp_path / "a.png", dpi=(200, 200))
    record = PageRecord(
        document="d", page=1, pages=1, status="ok", source="model", width=600, height=200,
        text=WORDS, lines=(Line(bbox=(200, 100, 580, 140), text=WORDS),),
    )  # fmt: skip
    with make(tmp_path / "a.png", tmp_path / "a.pdf", [record]) as pdf:
        assert pdf[0].rect.width == pytest.approx(1200 * 72 / 200, rel=0.001)
        assert_found(pdf[0], record)


def test_no_page_is_larger_than_a_pdf_may_have_it(tmp_path):
    Image.new("L", (40_000, 20), 255).save(tmp_path / "a.png")
    with make(tmp_path / "a.png", tmp_path / "a.pdf", []) as pdf:
        assert pdf[0].rect.width == pytest.approx(14_400)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif"])
def test_a_picture_that_speaks_of_pdf_is_a_picture(tmp_path, name):
    """The writer took any file with a PDF's header in its first kilobyte for a PDF, and failed."""
    words = "made from %PDF-1.7"
    info = PngInfo()
    info.add_text("Comment", words)
    more = {"pnginfo": info} if name.endswith("png") else {"comment": words.encode()}
    writing(600, 80, "Some words").save(tmp_path / name, **more)
    assert b"%PDF-" in (tmp_path / name).read_bytes()[:1024]
    with make(tmp_path / name, tmp_path / "a.pdf", []) as pdf:
        assert pdf.page_count == 1
        assert len(pdf[0].get_images()) == 1


@pytest.mark.slow
def test_to_stdout_and_only_selected_pages(real, tmp_path):
    with pymupdf.open(ROOT / "samples" / "scan.pdf") as scan, pymupdf.open() as two:
        two.insert_pdf(scan)
        two.insert_pdf(scan)
        two.save(tmp_path / "two.pdf")
    done = real("ocr", "two.pdf", "--pages", "2", "-f", "pdf")
    assert done.returncode == 0, done.stderr.decode()
    with pymupdf.open(stream=io.BytesIO(done.stdout), filetype="pdf") as pdf:
        assert pdf.page_count == 2
        assert pdf[0].get_text().strip() == ""
        assert "point text" in pdf[1].get_text()


def test_one_pdf_holds_one_document(cli):
    done = cli("ocr", "a.pdf", "b.pdf", "-f", "pdf", "-o", "all.pdf")
    assert done.returncode == 2
    assert b"-o out/" in done.stderr


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_what_a_page_says_itself_is_not_said_twice(tmp_path, rotation):
    """A caption beside a picture, a form's value: the model read them, the PDF has them already."""
    with pymupdf.open() as document:
        page = document.new_page(width=480, height=640)
        page.insert_text((60, 100), "A caption, printed", fontsize=12)
        page.insert_text((60, 160), "Name:", fontsize=12)
        page.insert_text((60, 220), "an old reading", fontsize=12, render_mode=3)
        field = pymupdf.Widget()
        field.field_name, field.field_type = "n", pymupdf.PDF_WIDGET_TYPE_TEXT
        field.rect = pymupdf.Rect(120, 145, 300, 165)
        field.field_value, field.text_fontsize = "Miller", 12
        page.add_widget(field)
        page.set_rotation(rotation)
        document.save(tmp_path / "in.pdf")
    lines = [
        ((60, 88, 170, 104), "A captlon, printed"),
        ((60, 148, 320, 164), "Name: Miller by hand"),
        ((60, 208, 150, 224), "an old reading"),
        ((60, 288, 170, 304), "A caption, printed"),
    ]
    with pymupdf.open(tmp_path / "in.pdf") as before:
        page = before[0]
        boxes = [tuple(round(2 * v) for v in displayed(page, box)) for box, _ in lines]
        read = tuple(Line(bbox=box, text=text) for box, (_, text) in zip(boxes, lines, strict=True))
        record = record_of(page, lines=read)
    after = make(tmp_path / "in.pdf", tmp_path / "out.pdf", [record])
    words = Counter(after[0].get_text().split())
    # Of the four lines, the first is the page's own, misread; the last stands where nothing is. The
    # third is in the place of the old reading.
    once, twice = Counter(["Name:", "Miller", "by", "hand"]), Counter(["A", "caption,", "printed"])
    old = Counter(["an", "old", "reading"])
    assert words == once + twice + twice + old


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_nor_where_the_print_runs_another_way(tmp_path, rotation):
    """A line's own words are looked for along the line, and those left keep their places."""
    with pymupdf.open() as document:
        page = document.new_page(width=480, height=640)
        page.insert_text((60, 160), "Name: Miller", fontsize=12)
        page.insert_text((60, 560), "hand", fontsize=12)
        page.set_rotation(rotation)
        document.save(tmp_path / "in.pdf")
    with pymupdf.open(tmp_path / "in.pdf") as before:
        a, b, c, d, e, f = (2 * v for v in before[0].rotation_matrix)
        flat = Strip(
            start=(60, 160), end=(180, 160), ascent=11, descent=3,
            words=((0, 35), (38, 75), (80, 92), (95, 120)),
        )  # fmt: skip
        strip = moved(flat, ((a, c, e), (b, d, f)))
        line = Line(bbox=box_of(strip), text="Name: Miller by hand", strip=strip)
        record = record_of(before[0], lines=(line,))
    after = make(tmp_path / "in.pdf", tmp_path / "out.pdf", [record])
    words = after[0].get_text("words")
    assert Counter(word[4] for word in words) == Counter(["Name:", "Miller", "by", "hand", "hand"])
    (box,) = (word[:4] for word in words if word[4] == "by")
    assert box == pytest.approx((140, 149, 152, 163), abs=1)


FRAGMENTS = st.lists(
    st.builds(
        lambda x, y, words: Fragment(
            text=" ".join(words), box=(x, y, x + 10 * len(" ".join(words)), y + 10),
            origin=(x, y), size=10,
        ),
        st.integers(0, 80), st.integers(0, 40), st.lists(st.sampled_from("abc"), min_size=1),
    ),
    max_size=4,
)  # fmt: skip
LINES = st.lists(
    st.builds(
        lambda x, y, words: Line(
            bbox=(x, y, x + 10 * len(" ".join(words)), y + 10), text=" ".join(words)
        ),
        st.integers(0, 80), st.integers(0, 40), st.lists(st.sampled_from("abcd"), min_size=1),
    ),
    max_size=4,
)  # fmt: skip


@given(FRAGMENTS, LINES)
def test_only_words_that_stand_there_are_left_out(fragments, lines):
    kept = list(unsaid(lines, fragments))
    said = Counter(word for one in fragments for word in one.text.split())
    read, left = (Counter(w for one in some for w in one.text.split()) for some in (lines, kept))
    assert left <= read
    assert not said or read["d"] - left["d"] <= sum(read.values()) * 0.4
    assert list(unsaid(lines, [replace(one, invisible=True) for one in fragments])) == lines
    far = [replace(one, box=tuple(v + 500 for v in one.box)) for one in fragments]
    assert list(unsaid(lines, far)) == lines
