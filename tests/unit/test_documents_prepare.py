"""A page made ready: every page gets its outcome, whatever ails it."""

import pickle

import pytest
from documents_kit import image_object, opened, pages_pdf, pdf_bytes, sentences, text_at, written
from PIL import Image

from vlmcli.documents import textlayer
from vlmcli.documents.base import RenderSpec
from vlmcli.documents.lines.text import CELL_GAP
from vlmcli.documents.prepare import PrepareSpec, prepare_page

TEXT = b"".join(text_at(30, 350 - 20 * row, line) for row, line in enumerate(sentences(12, 5)))


def spec(mode="auto", reads="lines", *, dpi=100, max_pixels=25_000_000):
    return PrepareSpec(
        render=RenderSpec(dpi=dpi, max_pixels=max_pixels),
        text_layer=mode,
        reads=reads,
        line_height=28,
        max_line_width=1120,
    )


def prepared(tmp_path, data, how, index=0):
    path = tmp_path / "x"
    path.write_bytes(data)
    with opened(path) as document:
        page = prepare_page(document, index, how)
    assert pickle.loads(pickle.dumps(page)).outcome == page.outcome, "it crosses processes"
    assert page.number == index + 1
    assert page.render_seconds > 0
    return page


def scan(lines=8, *, level=255):
    pixels = written(sentences(lines, 5), size=(600, 800), height=24, ground=level)
    return pages_pdf(
        [b"300 0 0 400 0 0 cm /I Do"],
        extra=[image_object(pixels)],
        resources=b"/XObject<</I 4 0 R>>",
    )


def test_sound_text_answers_for_the_page(tmp_path):
    page = prepared(tmp_path, pages_pdf([TEXT]), spec())
    assert page.outcome == "text-layer"
    assert page.text.split("\n") == sentences(12, 5)
    assert len(page.lines) == 12
    assert (page.width, page.height, page.dpi) == (417, 556, 100)
    assert page.crops == ()
    assert page.nbytes == 0


def test_ignore_reads_what_the_layer_could_answer(tmp_path):
    page = prepared(tmp_path, pages_pdf([TEXT]), spec("ignore", dpi=200))
    assert page.outcome == "read"
    assert len({crop.line for crop in page.crops}) == 12
    assert page.nbytes == sum(crop.pixels.nbytes for crop in page.crops) > 0
    assert page.text == ""


def test_draft_reads_and_hands_the_text_on(tmp_path):
    page = prepared(tmp_path, pages_pdf([TEXT]), spec("draft", dpi=200))
    assert page.outcome == "read"
    assert page.crops
    assert page.text.split("\n") == sentences(12, 5)


def test_only_asks_no_model_whatever_the_page(tmp_path):
    assert prepared(tmp_path, pages_pdf([TEXT]), spec("only")).text.split("\n") == sentences(12, 5)
    for data in (scan(), pages_pdf([b""])):
        page = prepared(tmp_path, data, spec("only"))
        assert page.outcome == "text-layer"
        assert page.text == ""
        assert page.suspect == ("no-text-layer",)
        assert page.width > 0


@pytest.mark.parametrize("mode", ["auto", "ignore", "draft"])
@pytest.mark.parametrize("reads", ["lines", "page"])
def test_a_scan_is_for_the_model(tmp_path, mode, reads):
    page = prepared(tmp_path, scan(), spec(mode, reads, dpi=144))
    assert page.outcome == "read"
    if reads == "lines":
        assert len({crop.line for crop in page.crops}) == 8
        assert page.picture is None
        assert all(crop.pixels.shape[0] == 28 for crop in page.crops)
        assert all(crop.pixels.shape[1] <= 1120 for crop in page.crops)
    else:
        assert page.crops == ()
        assert page.picture is not None
        assert page.picture.shape == (page.height, page.width, 3)
        assert page.nbytes == page.picture.nbytes


def test_a_scan_is_taken_at_its_own_resolution(tmp_path):
    page = prepared(tmp_path, scan(), spec(dpi=300))
    assert (page.width, page.height) == (600, 800)
    assert page.dpi == pytest.approx(144, abs=0.1)
    assert not page.downscaled


@pytest.mark.parametrize("reads", ["lines", "page"])
def test_blank_pages_never_reach_the_model(tmp_path, reads):
    for data in (pages_pdf([b""]), scan(0, level=236), scan(0, level=4)):
        page = prepared(tmp_path, data, spec("auto", reads))
        assert page.outcome == "blank"
        assert page.text == ""
        assert page.crops == ()
        assert page.picture is None


def test_a_page_that_is_blank_because_it_is_broken_is_an_error(tmp_path):
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 400]/Contents 9 0 R>>",
    ]
    page = prepared(tmp_path, pdf_bytes(objects), spec())
    assert page.outcome == "error"
    assert page.error is not None
    assert page.error.code == "render"


def test_a_page_that_cannot_be_loaded_is_an_error_of_its_own(tmp_path):
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R 2 0 R]/Count 2>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 400]>>",
    ]
    page = prepared(tmp_path, pdf_bytes(objects), spec(), index=1)
    assert page.outcome == "error"
    assert page.error is not None
    assert "cycle" in page.error.message
    assert (page.width, page.height) == (0, 0)


def test_faint_pages_are_suspect(tmp_path):
    faint = written(sentences(8, 5), size=(600, 800), height=24, ground=250, ink=225)
    out = tmp_path / "faint.png"
    Image.fromarray(faint).save(out)
    page = prepared(tmp_path, out.read_bytes(), spec())
    assert page.outcome == "read"
    assert page.suspect == ("low-contrast",)


@pytest.mark.parametrize("reads", ["lines", "page"])
def test_a_page_beyond_the_budget_says_that_it_was_made_smaller(tmp_path, reads):
    page = prepared(tmp_path, scan(), spec("auto", reads, dpi=600, max_pixels=100_000))
    assert page.downscaled
    assert page.width * page.height <= 100_000


@pytest.mark.parametrize("reads", ["lines", "page"])
def test_pictures_are_shown_of_pages_that_are_for_the_model(tmp_path, reads):
    shown = []
    path = tmp_path / "x"
    path.write_bytes(scan())
    with opened(path) as document:
        page = prepare_page(document, 0, spec("ignore", reads, dpi=144), shown.append)
    depth = () if reads == "lines" else (3,)
    assert [pixels.shape for pixels in shown] == [(page.height, page.width, *depth)]
    for data, mode in ((pages_pdf([TEXT]), "auto"), (scan(0), "ignore"), (scan(0), "draft")):
        path.write_bytes(data)
        with opened(path) as document:
            page = prepare_page(document, 0, spec(mode, reads), shown.append)
        assert page.outcome != "read" and len(shown) == 1


def test_a_text_layer_that_is_a_draft_comes_with_its_lines(tmp_path):
    page = prepared(tmp_path, pages_pdf([TEXT]), spec("draft", dpi=200))
    assert page.outcome == "read" and page.crops
    assert [line.text for line in page.lines] == page.text.split("\n") == sentences(12, 5)


def test_rows_look_alike_whoever_read_them():
    assert textlayer._CELL_GAP == CELL_GAP
