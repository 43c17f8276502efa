"""Reading order: columns one after another, tables row by row, headings where they stand."""

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lines_kit import Sheet, assert_same_lines, describe, find, rotated, words

from vlmcli.documents.lines import TextLine, find_lines, join_text


def read_back(sheet: Sheet, found: tuple[TextLine, ...]) -> str:
    """Page text as a perfect reader would give it: each box says what was drawn inside it."""
    texts = []
    for line in found:
        x0, y0, x1, y1 = line.bbox
        inside = [
            printed
            for printed in sheet.lines
            if x0 - 3 <= (printed.box[0] + printed.box[2]) / 2 <= x1 + 3
            and y0 - 3 <= (printed.box[1] + printed.box[3]) / 2 <= y1 + 3
        ]
        assert len(inside) == 1, describe(sheet, found)
        texts.append(inside[0].text)
    return join_text(found, texts)


def columns(sheet: Sheet, lefts: list[int], top: int, counts: list[int], size: int = 22) -> None:
    for left, count in zip(lefts, counts, strict=True):
        sheet.paragraph(left, top, count, size, num_words=6 if len(lefts) < 3 else 5)


@pytest.mark.parametrize("lefts", [[60, 660], [60, 460, 860], [40, 420, 800]])
@pytest.mark.parametrize("degrees", [0.0, -2.5])
def test_columns_are_read_one_after_another(lefts: list[int], degrees: float) -> None:
    sheet = Sheet(height=1000)
    columns(sheet, lefts, 60, [24, 24, 17][: len(lefts)])
    found = find_lines(rotated(sheet.pixels, degrees))
    assert len(found) == len(sheet.lines), describe(sheet, found)
    if degrees:
        starts = [line.start for line in found]
        assert [round(x / 200) for x, _ in starts] == sorted(round(x / 200) for x, _ in starts)
    else:
        assert_same_lines(sheet, found)


def test_narrow_gutters_part_justified_columns() -> None:
    sheet = Sheet(width=1000, height=1000)
    face = 22
    for left in (60, 490):
        for row in range(24):
            text = words(6, 4 * row)
            printed = sheet.text(left, 60 + 32 * row, text, face)
            # Fill the line to the full measure of 400 pixels with a last word.
            gap = left + 400 - printed.box[2]
            if gap > 30:
                sheet.lines.pop()
                sheet.text(left, 60 + 32 * row, text + " " + "n" * max(1, (gap - 8) // 13), face)
    assert_same_lines(sheet, find(sheet))


def test_columns_that_stand_half_a_line_apart() -> None:
    sheet = Sheet(height=1000)
    columns(sheet, [60], 60, [24])
    columns(sheet, [660], 76, [24])
    assert_same_lines(sheet, find(sheet))


def test_a_title_above_columns_and_a_folio_below() -> None:
    sheet = Sheet(height=1150)
    sheet.text(330, 40, "A Title Across the Page", size=44)
    columns(sheet, [60, 660], 140, [26, 26])
    sheet.text(610, 1090, "7", size=22)
    assert_same_lines(sheet, find(sheet))


def test_columns_heading_columns() -> None:
    sheet = Sheet(height=1300)
    columns(sheet, [60, 660], 60, [15, 14])
    sheet.text(60, 590, "A heading that runs across both of the columns", size=36)
    columns(sheet, [60, 660], 680, [15, 16])
    assert_same_lines(sheet, find(sheet))


def test_a_heading_at_the_left_heads_what_is_below_it() -> None:
    sheet = Sheet(height=1100)
    columns(sheet, [60, 660], 60, [12, 13])
    sheet.text(60, 520, "Heading", size=26)
    for row in range(8):
        sheet.text(60, 570 + 34 * row, words(16, 16 * row), 22)
    assert_same_lines(sheet, find(sheet))


def test_stanzas_side_by_side_are_read_pair_by_pair() -> None:
    sheet = Sheet(height=1200)
    for pair in range(3):
        columns(sheet, [60, 660], 60 + 360 * pair, [5, 5])
    assert_same_lines(sheet, find(sheet))


@pytest.mark.parametrize("ruled", [False, True])
@pytest.mark.parametrize("degrees", [0.0, 1.3])
def test_table_rows_are_read_from_left_to_right(ruled: bool, degrees: float) -> None:
    sheet = Sheet(height=900)
    names = ["Apples", "Pears", "Plums", "Bread", "Butter", "Honey", "Coffee", "Tea"]
    for row, name in enumerate(names):
        y = 80 + 60 * row
        for x, text in (
            (80, name),
            (420, f"{row + 1}"),
            (620, f"{row}.50"),
            (860, f"{7 * row}.00"),
        ):
            sheet.text(x, y, text)
    if ruled:
        for row in range(len(names) + 1):
            sheet.draw.line((50, 62 + 60 * row, 1100, 62 + 60 * row), fill=0, width=2)
        for x in (50, 380, 590, 820, 1100):
            sheet.draw.line((x, 62, x, 62 + 60 * len(names)), fill=0, width=2)
    found = find_lines(rotated(sheet.pixels, degrees))
    assert len(found) == len(sheet.lines), describe(sheet, found)
    assert [line.row for line in found] == [k // 4 for k in range(4 * len(names))]
    assert [line.cell for line in found] == 4 * [0] + [] or [line.cell for line in found] == [
        k % 4 for k in range(4 * len(names))
    ]
    if not degrees:
        text = read_back(sheet, found)
        assert text.splitlines()[2] == "Plums  3  2.50  14.00"
        assert len(text.splitlines()) == len(names), "rows of one table stand in one block"


def test_lines_of_a_ruled_cell_belong_together() -> None:
    sheet = Sheet(height=700)
    for row in range(4):
        top = 60 + 110 * row
        sheet.draw.line((50, top, 1150, top), fill=0, width=2)
        sheet.text(80, top + 40, f"Row {row}")
        sheet.text(420, top + 14, "one line of a cell")
        sheet.text(420, top + 56, "and a second one")
        sheet.text(900, top + 40, f"{row}.00")
    sheet.draw.line((50, 500, 1150, 500), fill=0, width=2)
    for x in (50, 380, 860, 1150):
        sheet.draw.line((x, 60, x, 500), fill=0, width=2)
    text = read_back(sheet, find(sheet))
    assert text.splitlines() == [
        f"Row {row}  one line of a cell and a second one  {row}.00" for row in range(4)
    ]


def test_numbered_items_stay_with_their_numbers() -> None:
    sheet = Sheet()
    for row in range(9):
        sheet.text(80, 60 + 44 * row, f"{row + 1}.")
        sheet.text(150, 60 + 44 * row, words(7, row))
    text = read_back(sheet, find(sheet)) if len(find(sheet)) == 18 else None
    if text is None:
        assert len(find(sheet)) == 9
    else:
        assert [line[0] for line in text.splitlines() if line] == list("123456789")


def test_paragraphs_and_headings_make_blocks() -> None:
    sheet = Sheet(height=1100)
    sheet.text(80, 60, "First heading", size=40)
    y = sheet.paragraph(80, 150, 4)
    y = sheet.paragraph(80, y + 40, 4)
    sheet.text(120, y, words(7, 1))
    sheet.paragraph(80, y + 38, 4)
    found = find(sheet)
    assert_same_lines(sheet, found)
    blocks = [line.block for line in found]
    assert blocks == [0] + 4 * [1] + 4 * [2] + 5 * [3]


def test_items_that_hang_from_their_bullets_are_not_torn() -> None:
    sheet = Sheet()
    for item in range(5):
        y = 60 + 114 * item
        sheet.text(80, y, "• " + words(15, 3))
        sheet.text(110, y + 38, words(4, item))
        sheet.text(80, y + 76, "• " + words(6, item))
    found = find(sheet)
    assert_same_lines(sheet, found)
    assert {line.block for line in found} == {0}


def test_an_initial_is_the_first_letter_of_the_first_line() -> None:
    sheet = Sheet()
    sheet.text(80, 60, "S", size=110)
    for row in range(3):
        sheet.text(165, 70 + 38 * row, words(7, 2 * row))
    sheet.paragraph(80, 70 + 38 * 3, 5)
    found = find(sheet)
    assert found[0].glued
    assert found[0].row == found[1].row == 0
    text = read_back(sheet, found)
    assert text.startswith("S" + words(7, 0) + "\n" + words(7, 2))


def test_pictures_frames_and_borders_are_no_text() -> None:
    sheet = Sheet(height=1200)
    sheet.paragraph(80, 80, 5)
    rng = np.random.default_rng(5)
    noise = rng.integers(0, 2, (300, 400)) * 255
    pixels = sheet.pixels
    pixels[320:620, 100:500] = np.minimum(noise, np.hypot(*np.mgrid[-150:150, -200:200]) * 1.5)
    pixels[320:620, 700:1000] = 40
    pixels[:, :25] = 0
    pixels[-60:] = 0
    for k in (0, 1):
        pixels[660 + k : 662 + k, 60:1150] = 0
    below = Sheet(height=1200)
    below.paragraph(80, 700, 5)
    pixels = np.minimum(pixels, below.pixels)
    found = find_lines(pixels)
    sheet.lines += below.lines
    assert_same_lines(sheet, found)


def test_the_grains_of_a_photograph_are_no_text() -> None:
    sheet = Sheet(height=1250)
    sheet.paragraph(80, 60, 5)
    rng = np.random.default_rng(11)
    grains = cv2.GaussianBlur(rng.normal(128, 400, (520, 900)), (0, 0), 2.4)
    below = Sheet(height=1250)
    below.paragraph(80, 900, 5)
    pixels = np.minimum(sheet.pixels, below.pixels)
    pixels[330:850, 120:1020] = np.clip(grains, 0, 255)
    found = find_lines(pixels)
    assert len(found) <= len(sheet.lines) + len(below.lines) + 6
    printed = [line for line in found if not 310 < (line.bbox[1] + line.bbox[3]) / 2 < 860]
    sheet.lines += below.lines
    assert_same_lines(sheet, tuple(printed))


def test_a_page_that_is_a_photograph_gives_hardly_a_line() -> None:
    rng = np.random.default_rng(12)
    fine = cv2.GaussianBlur(rng.normal(128, 300, (900, 1300)), (0, 0), 2)
    coarse = cv2.GaussianBlur(rng.normal(0, 3000, (900, 1300)), (0, 0), 25)
    assert len(find_lines(np.clip(fine + coarse, 0, 255).astype(np.uint8))) <= 12


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    num_columns=st.integers(1, 3),
    counts=st.lists(st.integers(6, 22), min_size=3, max_size=3),
    size=st.integers(18, 24),
    gutter=st.integers(45, 90),
    title=st.booleans(),
)
def test_any_page_of_columns(
    num_columns: int, counts: list[int], size: int, gutter: int, title: bool
) -> None:
    width = round(13.5 * size) + 60
    sheet = Sheet(width=num_columns * (width + gutter) + 60, height=1000)
    if title:
        sheet.text(50, 30, "The Title", size=2 * size)
    for column in range(num_columns):
        left = 50 + column * (width + gutter)
        for row in range(counts[column]):
            text = words(6, 5 * row + column)
            while True:
                printed = sheet.text(left, 120 + row * 1.5 * size, text, size)
                if printed.box[2] <= left + width:
                    break
                sheet.draw.rectangle(
                    (left, printed.box[1] - 9, sheet.width, printed.box[3] + 9), 255
                )
                sheet.lines.pop()
                text = text.rsplit(" ", 1)[0]
    assert_same_lines(sheet, find(sheet))
