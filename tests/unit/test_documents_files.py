"""Real odd files: each has the outcome that its table names."""

from functools import cache
from pathlib import Path

import pytest
from documents_kit import opened

from vlmcli.documents.base import RenderSpec
from vlmcli.documents.prepare import PrepareSpec, prepare_page
from vlmcli.errors import EncryptedError, InputError

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
SAMPLES = ROOT / "samples"
SPEC = PrepareSpec(
    render=RenderSpec(dpi=200, max_pixels=25_000_000),
    text_layer="auto",
    reads="lines",
    line_height=28,
    max_line_width=1120,
)


@cache
def prepared(path, **options):
    with opened(path, **options) as document:
        return [prepare_page(document, index, SPEC) for index in range(document.num_pages)]


@pytest.mark.parametrize("folder", [DATA, SAMPLES], ids=["data", "samples"])
def test_every_file_stands_in_its_table(folder):
    table = (folder / "README.md").read_text(encoding="utf-8")
    for path in folder.iterdir():
        assert path.name == "README.md" or f"| `{path.name}` |" in table


READ = {
    SAMPLES / "scan.pdf": ["read"],
    SAMPLES / "word.webp": ["read"],
    SAMPLES / "table.pdf": ["text-layer"],
    SAMPLES / "pages-1-to-17.pdf": ["text-layer"] * 17,
    SAMPLES / "blank-middle.pdf": ["text-layer", "blank", "text-layer"],
    SAMPLES / "rotations.pdf": ["text-layer"] * 6,
    SAMPLES / "damaged.pdf": ["text-layer"],
    DATA / "ccitt-g4.pdf": ["read"],
    DATA / "cyclic-page-tree.pdf": ["text-layer", "error"],
    DATA / "duplicate-page.pdf": ["text-layer"] * 2,
    DATA / "grey-16bit.tif": ["blank"],
    DATA / "images-1bit.pdf": ["read"],
    DATA / "ja-vertical.pdf": ["text-layer"],
    DATA / "jpx-grey.pdf": ["read"],
    DATA / "many-scripts.pdf": ["text-layer"] * 2,
    DATA / "optional-content.pdf": ["text-layer"],
    DATA / "owner-password.pdf": ["text-layer"],
    DATA / "page-tree-levels.pdf": ["text-layer"] * 4,
    DATA / "poems-cropbox.pdf": ["text-layer"] * 2,
}


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name)
def test_pages_come_to_what_they_should(path):
    pages = prepared(path)
    assert [page.outcome for page in pages] == READ[path]
    for page in pages:
        assert (page.outcome == "text-layer") == bool(page.text)
        for line in page.lines:
            assert 0 <= line.bbox[0] < line.bbox[2] <= page.width
            assert 0 <= line.bbox[1] < line.bbox[3] <= page.height


REFUSED = {
    DATA / "not-a-pdf.pdf": "not-a-document",
    DATA / "png-text-bomb.png": "damaged",
    DATA / "zero-pages.pdf": "no-pages",
}


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.name)
def test_what_is_no_document_is_refused(path):
    with pytest.raises(InputError) as caught:
        opened(path)
    assert caught.value.code == REFUSED[path]


def test_numbered_pages_say_their_number_and_nothing_else():
    pages = prepared(SAMPLES / "pages-1-to-17.pdf")
    assert [page.text for page in pages] == [str(number) for number in range(1, 18)]


def test_turned_pages_are_read_upright():
    for page in prepared(SAMPLES / "rotations.pdf"):
        assert page.text.splitlines()[0].startswith("Apache PDFBox")
        assert [line.bbox[1] for line in page.lines] == sorted(line.bbox[1] for line in page.lines)


def test_the_encrypted_sample():
    assert [page.text for page in prepared(SAMPLES / "encrypted.pdf", password="baz")] == [
        "Secret!"
    ]
    with pytest.raises(EncryptedError):
        opened(SAMPLES / "encrypted.pdf")


def test_vertical_japanese_is_read_by_columns_from_the_right():
    (page,) = prepared(DATA / "ja-vertical.pdf")
    lines = page.text.replace("\n\n", "\n").split("\n")
    assert lines[:4] == [
        "序",
        "わたくしといふ現象は",
        "假定された有機交流電燈の",
        "ひとつの青い照明です",
    ]


def test_verses_side_by_side_are_read_stanza_by_stanza():
    pages = prepared(DATA / "poems-cropbox.pdf")
    firsts = [block.split("\n")[0] for block in pages[0].text.split("\n\n")]
    assert [line[:20] for line in firsts[:4]] == [
        "Wer reitet so spät d",
        "Mein Sohn, was birgs",
        "„Du liebes Kind, kom",
        "Mein Vater, mein Vat",
    ]
    assert "vingt-quatrième" in pages[0].text


def test_text_that_is_drawn_twice_is_said_once():
    (page,) = prepared(DATA / "optional-content.pdf")
    assert page.text.split("\n") == ["A and B", "A or B", "not B", "A and (not C)", "not (B or C)"]


def test_many_scripts_keep_their_letters():
    text = "\n".join(page.text for page in prepared(DATA / "many-scripts.pdf"))
    for words in ("μερικά από αυτά", "miękkich francuskich", "мягкие французские", "mjúka franska"):
        assert words in text


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.96])
def test_a_download_that_broke_off_is_damaged_and_not_without_pages(share, tmp_path):
    """MuPDF mends what is left to a document of no pages where the list of pages is lost."""
    whole = (SAMPLES / "pages-1-to-17.pdf").read_bytes()
    path = tmp_path / "part.pdf"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"part\.pdf: damaged or truncated PDF") as caught:
        opened(path)
    assert caught.value.code == "damaged"
