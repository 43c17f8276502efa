"""Words of hOCR, ALTO and PDF lie over their print, whichever way the page lies."""

import re
import shutil
import subprocess
from xml.etree import ElementTree

import pymupdf
import pytest
from PIL import Image
from places_kit import likeness, page, record

from vlmcli.documents.source import Source
from vlmcli.outputs.alto import AltoFormatter
from vlmcli.outputs.files import AtomicFile
from vlmcli.outputs.hocr import HocrFormatter
from vlmcli.outputs.searchable_pdf import SearchablePdfWriter

ALTO = "{http://www.loc.gov/standards/alto/ns-v4#}"
LEAST = 0.5
LAYS = [(turn, tilt) for turn in range(4) for tilt in (-5.0, -1.5, 0.0, 3.0, 5.0)]
lays = pytest.mark.parametrize(("turn", "tilt"), LAYS)


def assert_over_print(drawn, words):
    """Each word once, in order, and over its ink."""
    wanted = [
        pair
        for line, boxes in zip(drawn.lines, drawn.boxes, strict=True)
        for pair in zip(line, boxes, strict=True)
    ]
    assert [text for text, _ in words] == [text for text, _ in wanted]
    for (text, box), (_, ink) in zip(words, wanted, strict=True):
        assert likeness(box, ink) >= LEAST, (text, box, ink)


def root_of(formatter, read):
    return ElementTree.fromstring(formatter.render(read) + formatter.tail())


@lays
def test_hocr_boxes_lie_over_the_words(turn, tilt):
    drawn = page(turn, tilt)
    root = root_of(HocrFormatter(), record(drawn))
    words = [x for x in root.iter() if x.get("class") == "ocrx_word"]
    boxes = [tuple(map(int, x.get("title").split(";")[0].split()[1:])) for x in words]
    assert_over_print(drawn, [(x.text, box) for x, box in zip(words, boxes, strict=True)])
    for line in (x for x in root.iter() if x.get("class") == "ocr_line"):
        title = line.get("title")
        if turn:
            angle = float(re.search(r"textangle (\S+)", title)[1])
            assert abs(angle - (90 * turn - tilt)) < 1
        else:
            slope, foot = map(float, re.search(r"baseline (\S+) (\S+)", title).groups())
            assert abs(slope - tilt / 57.3) < 0.02
            assert foot <= 0


@lays
def test_alto_boxes_lie_over_the_words(turn, tilt):
    drawn = page(turn, tilt)
    root = root_of(AltoFormatter(), record(drawn))
    words = []
    for string in root.iter(f"{ALTO}String"):
        x, y, width, height = (
            int(string.get(name)) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT")
        )
        words.append((string.get("CONTENT"), (x, y, x + width, y + height)))
    assert_over_print(drawn, words)
    turns = {block.get("ROTATION") for block in root.iter(f"{ALTO}TextBlock")}
    assert turns == ({str(90 * turn)} if turn else {None})
    assert all(line.get("BASELINE") for line in root.iter(f"{ALTO}TextLine"))


def searchable(drawn, folder, rotation=0):
    """The PDF of a page's picture; with a rotation, of a PDF page that shows it when turned."""
    source = folder / "page.png"
    image = Image.fromarray(drawn.pixels)
    image.save(source)
    if rotation:
        # Stored so that /Rotate, which turns clockwise, brings the picture about.
        image = image.rotate(rotation, expand=True)
        image.save(source)
        with pymupdf.open() as made:
            width, height = image.size
            sheet = made.new_page(width=width / 2, height=height / 2)
            sheet.insert_image(sheet.rect, filename=source)
            sheet.set_rotation(rotation)
            source = folder / "page.pdf"
            made.save(source)
    target = folder / "out.pdf"
    writer = SearchablePdfWriter(Source(path=source, name="d"), None, AtomicFile(target))
    writer.write(record(drawn))
    writer.finish()
    return target


def assert_text_layer(drawn, path):
    with pymupdf.open(path) as pdf:
        scale = drawn.pixels.shape[1] / pdf[0].rect.width
        words = [
            (w[4], tuple(scale * v for v in pymupdf.Rect(w[:4]) * pdf[0].rotation_matrix))
            for w in pdf[0].get_text("words", sort=False)
        ]
        assert_over_print(drawn, words)
        lines = [line.strip() for line in pdf[0].get_text().splitlines() if line.strip()]
        assert lines == drawn.texts
        assert all(pdf[0].search_for(text) for text in drawn.texts)


@lays
def test_a_pdfs_words_lie_over_the_print_and_its_text_is_in_order(tmp_path, turn, tilt):
    drawn = page(turn, tilt)
    assert_text_layer(drawn, searchable(drawn, tmp_path))


@pytest.mark.parametrize("rotation", [90, 180, 270])
@pytest.mark.parametrize(("turn", "tilt"), [(0, 0.0), (0, 4.0), (1, 0.0), (2, -3.0), (3, 1.0)])
def test_so_do_those_of_pages_with_a_rotation(tmp_path, rotation, turn, tilt):
    drawn = page(turn, tilt)
    assert_text_layer(drawn, searchable(drawn, tmp_path, rotation))


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs Poppler")
@lays
def test_poppler_gives_the_lines_in_order(tmp_path, turn, tilt):
    """It parts what rises: words of neighbouring lines were run together, letter by letter."""
    drawn = page(turn, tilt)
    path = searchable(drawn, tmp_path)
    # It sorts blocks of text that runs upwards from the last to the first, in any PDF.
    how = ["-layout"] if turn == 1 else []
    done = subprocess.run(["pdftotext", *how, path, "-"], capture_output=True, check=True)
    lines = [line.strip() for line in done.stdout.decode().replace("\f", "").splitlines()]
    assert [line for line in lines if line] == drawn.texts


@pytest.mark.parametrize("name", ["sans", "mono", "bold", "italic"])
def test_every_typeface_tells_its_words(name):
    drawn = page(0, 0.0, name, 20)
    root = root_of(HocrFormatter(), record(drawn))
    words = [x for x in root.iter() if x.get("class") == "ocrx_word"]
    boxes = [tuple(map(int, x.get("title").split(";")[0].split()[1:])) for x in words]
    assert_over_print(drawn, [(x.text, box) for x, box in zip(words, boxes, strict=True)])
