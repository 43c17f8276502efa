"""Forms: empty boxes and what is left of rules are not text; letters like them are."""

import string

import numpy as np
import pytest
from lines_kit import PYMUPDF_FONTS, Sheet, font, words
from PIL import Image, ImageDraw

from vlmcli.documents.lines import find_lines
from vlmcli.documents.lines.forms import on_upright_rules, tick_boxes
from vlmcli.documents.lines.marks import label, marks_from
from vlmcli.documents.lines.rules import Rule


def boxes_in(picture: Image.Image, size: float) -> int:
    marks, labels = label((np.asarray(picture) < 128).view(np.uint8))
    return int(tick_boxes(marks, np.arange(len(marks)) + 1, labels, size).sum())


@pytest.mark.parametrize("side", [10, 16, 24, 40])
@pytest.mark.parametrize("pen", [1, 2, 3])
def test_an_empty_square_is_a_box_and_a_ticked_one_is_not(side: int, pen: int) -> None:
    picture = Image.new("L", (80, 80), 255)
    draw = ImageDraw.Draw(picture)
    draw.rectangle((20, 20, 20 + side, 20 + side), outline=0, width=pen if side > 12 else 1)
    assert boxes_in(picture, side / 1.5) == 1
    draw.line((20, 20, 20 + side, 20 + side), fill=0, width=2)
    assert boxes_in(picture, side / 1.5) == 0


@pytest.mark.parametrize("name", ["sans", *PYMUPDF_FONTS])
@pytest.mark.parametrize("size", [14, 30, 60])
def test_no_letter_is_a_box(name: str, size: int) -> None:
    picture = Image.new("L", (70 * size, 2 * size), 255)
    letters = " ".join(string.ascii_letters + string.digits + "@&#%()[]{}<>?!$€§")
    ImageDraw.Draw(picture).text((9, 9), letters, font=font(name, size), fill=0)
    assert boxes_in(picture, 0.5 * size) == 0


def form() -> Sheet:
    sheet = Sheet()
    for row in range(8):
        y = 100 + 60 * row
        sheet.text(60, y, "Item", 26)
        sheet.draw.rectangle((150, y + 3, 172, y + 25), outline=0, width=2)
        sheet.text(190, y, words(4, row), 26)
    return sheet


def test_boxes_stand_in_no_line_and_hide_none() -> None:
    sheet = form()
    pixels = np.asarray(sheet.image)
    lines = find_lines(pixels)
    assert len(lines) == len(sheet.lines)
    for line in lines:
        assert line.bbox[2] <= 152 or line.bbox[0] >= 170
    for printed in sheet.lines:
        x0, y0, x1, y1 = printed.box
        centre = ((x0 + x1) / 2, (y0 + y1) / 2)
        assert any(
            a <= centre[0] <= c and b <= centre[1] <= d for a, b, c, d in (i.bbox for i in lines)
        )


def test_a_line_ends_before_the_crossing_of_rules_beside_it() -> None:
    sheet = Sheet()
    for row in range(9):
        y = 100 + 60 * row
        sheet.text(147, y, words(5, row), 26)
        sheet.draw.line((40, y, 1100, y), fill=0, width=1)
    sheet.draw.line((140, 100, 140, 580), fill=0, width=3)
    lines = find_lines(np.asarray(sheet.image))
    assert len(lines) == len(sheet.lines)
    for line, printed in zip(lines, sheet.lines, strict=True):
        assert abs(line.bbox[0] - printed.box[0]) <= 2


def test_marks_lie_on_a_rule_only_within_its_width() -> None:
    rule = Rule(x0=100, y0=50, x1=104, y1=90)
    marks = marks_from(
        np.array(
            [
                (100, 46, 104, 47, 4),
                (99, 91, 105, 93, 9),
                (96, 46, 104, 47, 8),
                (100, 20, 104, 24, 9),
            ],
            np.float64,
        )
    )
    assert on_upright_rules(marks, (rule,), 10.0).tolist() == [True, True, False, False]


@pytest.mark.parametrize("name", ["sans", *PYMUPDF_FONTS])
@pytest.mark.parametrize("dash", ["-", "- "])
@pytest.mark.parametrize("ends", ["the houses", "(fifteen groups)", "no one", "see Tables"])
def test_a_leader_of_dashes_takes_no_letter_of_what_it_joins(
    name: str, dash: str, ends: str
) -> None:
    """A contents page: the last letter of a title, and a lone figure, stand right beside it."""
    sheet = Sheet(width=1600)
    face = font(name, 26)
    for row in range(8):
        y, title = 80 + 55 * row, f"{words(2, 3 * row)} {ends}"
        leader = f" {dash * 24}".rstrip() + " "
        sheet.text(60, y, title, 26, name)
        start = 60 + face.getlength(title)
        sheet.draw.text((start, y), leader, font=face, fill=0)
        sheet.text(start + face.getlength(leader), y, str(row + 1), 26, name)
    found = [line.bbox for line in find_lines(np.asarray(sheet.image))]
    for printed in sheet.lines:
        x0, y0, x1, y1 = printed.box
        on_row = [box for box in found if box[1] < (y0 + y1) / 2 < box[3]]
        for end in (x0 + 2, x1 - 2):
            assert any(box[0] <= end <= box[2] for box in on_row), (printed, on_row)
