"""Lines found on rendered documents are those of their text layers."""

from pathlib import Path

import numpy as np
import pytest

from vlmcli.documents import mupdf
from vlmcli.documents.lines import TextLine, find_lines

DATA = Path(__file__).parents[1] / "data"


def rendered(name: str, page: int, dpi: int) -> tuple[np.ndarray, list[tuple[float, ...]]]:
    """Grey pixels of a page and the boxes of the lines of its text layer, in pixels."""
    with mupdf.load().open(DATA / name) as document:
        content = document[page]
        picture = content.get_pixmap(dpi=dpi, colorspace="gray")
        pixels = np.frombuffer(picture.samples, np.uint8).reshape(picture.h, picture.w).copy()
        boxes = [
            tuple(value * dpi / 72 for value in line["bbox"])
            for block in content.get_text("dict")["blocks"]
            for line in block.get("lines", ())
            if "".join(span["text"] for span in line["spans"]).strip(" —“”")
        ]
    return pixels, boxes


def covers(line: TextLine, box: tuple[float, ...]) -> bool:
    """Whether a found line holds the middle of a printed one and about its length."""
    x0, y0, x1, y1 = line.bbox
    middle = (box[1] + box[3]) / 2
    common = min(x1, box[2]) - max(x0, box[0])
    return y0 <= middle <= y1 and common >= 0.8 * (box[2] - box[0])


@pytest.mark.parametrize("dpi", [100, 150, 300])
@pytest.mark.parametrize("page", [0, 1])
def test_poems_and_prose(page: int, dpi: int) -> None:
    pixels, boxes = rendered("poems-cropbox.pdf", page, dpi)
    found = find_lines(pixels)
    for box in boxes:
        assert sum(covers(line, box) for line in found) == 1, box
    assert len(found) <= len(boxes) + 4


def test_stanzas_stand_beside_each_other_and_the_prose_between() -> None:
    pixels, _ = rendered("poems-cropbox.pdf", 0, 150)
    middle = pixels.shape[1] / 2
    sides = []
    for line in find_lines(pixels):
        x0, _, x1, _ = line.bbox
        side = "left" if x1 < middle + 40 else "right" if x0 > middle - 40 else "both"
        if not sides or sides[-1] != side:
            sides.append(side)
    # Lines of prose that end early count as left: they never lead to the right.
    prose = sides[sides.index("both") : len(sides) - sides[::-1].index("both")]
    assert sides[: sides.index("both")] == ["left", "right"] * 3
    assert "right" not in prose
    assert sides[-2:] == ["left", "right"]


@pytest.mark.parametrize("name", ["page-tree-levels.pdf", "duplicate-page.pdf"])
def test_sparse_pages(name: str) -> None:
    pixels, boxes = rendered(name, 0, 150)
    found = find_lines(pixels)
    assert len(found) == len({round(box[3]) for box in boxes})
    for box in boxes:
        assert sum(covers(line, box) for line in found) == 1, box
