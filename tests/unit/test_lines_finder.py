"""Printed lines are found once each, whole, in order: whatever the font, size, tilt and paper."""

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lines_kit import (
    Sheet,
    assert_same_lines,
    describe,
    find,
    noisy,
    rotated,
    words,
)

from vlmcli.documents.lines import find_lines

FONTS = ["sans", "serif", "mono", "bold", "italic"]


@pytest.mark.parametrize("name", FONTS)
@pytest.mark.parametrize("size", [14, 22, 40, 72])
def test_each_printed_line_is_found(name: str, size: int) -> None:
    sheet = Sheet(width=70 + 34 * size // 2, height=140 + 12 * size)
    sheet.paragraph(50, 50, 7, size, name, num_words=5)
    assert_same_lines(sheet, find(sheet))


@pytest.mark.parametrize("degrees", [-9, -5, -3.2, -0.7, 0.3, 1.5, 5, 8])
def test_tilted_lines_are_found_with_their_angle(degrees: float) -> None:
    sheet = Sheet()
    sheet.paragraph(80, 80, 16)
    found = find_lines(rotated(sheet.pixels, degrees))
    assert len(found) == len(sheet.lines), describe(sheet, found)
    assert [line.row for line in found] == list(range(len(found)))
    for line in found:
        assert line.angle == pytest.approx(degrees, abs=0.3)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_turned_pages_are_read_the_right_way_up(turns: int) -> None:
    sheet = Sheet()
    sheet.paragraph(80, 80, 16, name="serif")
    upright = find(sheet)
    found = find_lines(np.ascontiguousarray(np.rot90(sheet.pixels, turns)))
    assert len(found) == len(upright)
    expected = {1: -90.0, 2: 180.0, 3: 90.0}[turns]
    for line in found:
        assert abs((line.angle - expected + 180) % 360 - 180) < 1
    lengths = [line.length for line in found]
    assert lengths == pytest.approx([line.length for line in upright], rel=0.02)


@pytest.mark.parametrize("size", [18, 20, 30])
def test_a_few_words_with_tails_below_are_no_turned_page(size):
    """Three lines about typing have dozens of tails below and none above, and stand upright."""
    sheet = Sheet()
    for row in range(3):
        sheet.text(100, 100 + 60 * row, "Page, gap, typing, apology, jumpy, query", size)
    assert [line.angle for line in find(sheet)] == pytest.approx([0, 0, 0], abs=1)


def test_capitals_and_figures_do_not_turn_a_page() -> None:
    sheet = Sheet()
    for row in range(14):
        sheet.text(80, 60 + 45 * row, f"TOTAL {row} 1,234.50 98 USD", name="mono")
    found = find(sheet)
    assert all(abs(line.angle) < 1 for line in found)


@pytest.mark.parametrize(
    "damage",
    ["noise", "jpeg", "bilevel", "aged", "gradient", "blur", "faint", "speckles"],
)
def test_poor_paper_and_poor_scans(damage: str) -> None:
    sheet = Sheet()
    sheet.paragraph(80, 80, 16)
    pixels = sheet.pixels
    if damage == "noise":
        pixels = noisy(pixels, 20)
    elif damage == "jpeg":
        ok, data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 15])
        assert ok
        pixels = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE)
    elif damage == "bilevel":
        pixels = np.where(noisy(pixels, 40) > 128, 255, 0).astype(np.uint8)
    elif damage == "aged":
        pixels = noisy((60 + pixels * 0.45).astype(np.uint8), 5)
    elif damage == "gradient":
        pixels = (pixels * np.linspace(0.35, 1, pixels.shape[1])[None, :]).astype(np.uint8)
    elif damage == "blur":
        pixels = cv2.GaussianBlur(pixels, (0, 0), 1.8)
    elif damage == "faint":
        pixels = (255 - (255 - pixels.astype(np.int64)) * 0.2).astype(np.uint8)
    elif damage == "speckles":
        rng = np.random.default_rng(3)
        for _ in range(400):
            x, y = rng.integers(0, pixels.shape[1] - 3), rng.integers(0, pixels.shape[0] - 3)
            pixels[y : y + 2, x : x + 2] = 0
    found = find_lines(pixels)
    assert len(found) == len(sheet.lines), describe(sheet, found)


@pytest.mark.parametrize("factor", [0.42, 0.5, 0.75, 2.0, 3.0])
def test_resolution_does_not_matter(factor: float) -> None:
    sheet = Sheet()
    sheet.paragraph(80, 80, 15, name="serif")
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    scaled = cv2.resize(sheet.pixels, None, fx=factor, fy=factor, interpolation=how)
    found = find_lines(scaled)
    assert len(found) == len(sheet.lines), describe(sheet, found)
    for printed, line in zip(sheet.lines, found, strict=True):
        assert np.allclose(np.array(line.bbox) / factor, printed.box, atol=7 + 3 / factor)


def test_light_print_on_dark_areas_is_found_and_marked() -> None:
    sheet = Sheet(height=1000)
    y = sheet.paragraph(80, 60, 6)
    sheet.draw.rectangle((60, y, 1150, y + 44), fill=30)
    sheet.text(80, y + 8, "Description Quantity Price", ink=255)
    sheet.draw.rectangle((60, y + 70, 1150, y + 290), fill=110)
    for row in range(4):
        sheet.text(80, y + 90 + 45 * row, words(6, row), ink=250)
    found = find(sheet)
    assert_same_lines(sheet, found)
    assert [line.inverted for line in found] == 6 * [False] + 5 * [True]


def test_a_page_that_is_light_on_dark_as_a_whole() -> None:
    sheet = Sheet(paper=25)
    for row in range(15):
        sheet.text(80, 60 + 42 * row, words(7, row), ink=225)
    found = find(sheet)
    assert_same_lines(sheet, found)
    assert all(line.inverted for line in found)


def test_accents_dots_and_punctuation_stay_with_their_line() -> None:
    sheet = Sheet()
    for row, text in enumerate(
        [
            "Ångström, «Élan» déjà-vu: ÄÖÜ!",
            "“Quoted,” she said; ‘twice’…",
            "E = mc² and H₂O (see note ¹)",
            "Is it? Yes! No; so: a.b, 'c' \"d\" - e – f — end.",
            "— Dash first, then words —",
        ]
    ):
        sheet.text(80, 60 + 70 * row, text, size=30)
    assert_same_lines(sheet, find(sheet))


def test_descenders_and_ascenders_are_inside_tight_lines() -> None:
    sheet = Sheet()
    for row in range(12):
        sheet.text(80, 60 + 31 * row, "gypsy jumping quaffed hyphen bold " + words(2, row), size=28)
    assert_same_lines(sheet, find(sheet))


@pytest.mark.parametrize("size", [12, 15, 20])
@pytest.mark.parametrize("count", [4, 6])
def test_lines_of_almost_nothing_but_descenders_are_no_texture(size: int, count: int) -> None:
    """Neither heights nor feet of such letters agree: a page of them was taken for grain."""
    sheet = Sheet(width=850, height=400)
    for row in range(count):
        sheet.text(100, 100 + row * round(1.3 * size), "page, gap, typing", size, "mono")
    found = find(sheet)
    for line in sheet.lines:
        x0, y0, x1, y1 = line.box
        level = [
            other.bbox for other in found if y0 - 2 <= (other.bbox[1] + other.bbox[3]) / 2 <= y1
        ]
        assert min(box[0] for box in level) <= x0 + 2
        assert max(box[2] for box in level) >= x1 - 2


def test_letter_spaced_headings_and_large_ones_beside_small_print() -> None:
    sheet = Sheet(height=1100)
    sheet.text(80, 40, "C O N T E N T S", size=40)
    sheet.text(80, 130, "Very Large Title", size=110)
    y = sheet.paragraph(80, 290, 6, size=24)
    y = sheet.paragraph(80, y + 40, 6, size=15, num_words=9)
    sheet.text(600, 1040, "12", size=24)
    assert_same_lines(sheet, find(sheet))


def test_dot_leaders_join_an_entry_with_its_dots() -> None:
    sheet = Sheet()
    for row in range(8):
        sheet.text(80, 60 + 45 * row, f"Chapter {row + 1} " + ". " * 40)
        sheet.text(1020, 60 + 45 * row, f"{10 * row + 11}")
    found = find(sheet)
    by_row: dict[int, list[int]] = {}
    for line in found:
        by_row.setdefault(line.row, []).append(line.bbox[2] - line.bbox[0])
    assert len(by_row) == 8
    assert all(max(widths) > 550 for widths in by_row.values())


def test_letters_that_touch_the_next_line_do_not_merge_lines() -> None:
    sheet = Sheet()
    sheet.paragraph(80, 80, 10)
    pixels = sheet.pixels
    for row in range(9):
        x0, _, _, y1 = sheet.lines[row].box
        pixels[y1 - 6 : y1 + 14, x0 + 60 + 20 * row : x0 + 63 + 20 * row] = 0
    found = find_lines(pixels)
    assert len(found) == len(sheet.lines), describe(sheet, found)


def test_bent_lines_keep_their_words() -> None:
    sheet = Sheet(height=700)
    sheet.paragraph(80, 120, 10)
    pixels = sheet.pixels
    x = np.arange(pixels.shape[1], dtype=np.float32)
    bow = 24 * (1 - ((x - 620) / 620) ** 2)
    map_x = np.repeat(x[None], pixels.shape[0], axis=0)
    map_y = np.arange(pixels.shape[0], dtype=np.float32)[:, None] + bow[None].astype(np.float32)
    found = find_lines(cv2.remap(pixels, map_x, map_y, cv2.INTER_LINEAR, borderValue=255))
    assert len(found) == len(sheet.lines), describe(sheet, found)
    assert all(line.bow < -3 for line in found if line.length > 700)


def test_colour_pages_are_taken() -> None:
    sheet = Sheet()
    sheet.paragraph(80, 80, 8)
    ink = sheet.pixels[..., None] / 255
    colour = (ink * (250, 240, 215) + (1 - ink) * (20, 40, 120)).astype(np.uint8)
    found = find_lines(colour)
    assert_same_lines(sheet, found)


def test_the_same_page_gives_the_same_lines() -> None:
    sheet = Sheet()
    sheet.paragraph(80, 80, 8)
    pixels = noisy(rotated(sheet.pixels, 1.2), 10)
    before = pixels.copy()
    assert find_lines(pixels) == find_lines(pixels)
    assert np.array_equal(pixels, before)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(FONTS),
    size=st.integers(18, 44),
    counts=st.lists(st.integers(2, 9), min_size=1, max_size=9),
    left=st.integers(20, 200),
    leading=st.floats(1.25, 2.2),
    degrees=st.floats(-5, 5),
)
def test_any_single_column(
    name: str, size: int, counts: list[int], left: int, leading: float, degrees: float
) -> None:
    sheet = Sheet(width=left + 46 * size, height=round(80 + len(counts) * leading * size + size))
    for row, count in enumerate(counts):
        sheet.text(left, 40 + row * leading * size, words(count, 3 * row + size), size, name)
    found = find_lines(rotated(sheet.pixels, degrees))
    rows = {line.row for line in found}
    assert len(rows) == len(counts), describe(sheet, found)
    assert [line.row for line in found] == sorted(line.row for line in found)


TABLE = tuple(f"{row + 1}. No. {17 * row} {1234.5 + 77 * row:,.2f} EUR" for row in range(9))
DATES = tuple(
    f"On {3 + row}.{1 + row}.18{60 + row} the {words(5, 4 * row)} 06:3{row}, £{row}4.5{row}."
    for row in range(9)
)
QUOTES = tuple(f"“DON’T” SAID O’NEIL’S “N° {row}” AT 9{row}° ‘NOW’" for row in range(9))


@pytest.mark.parametrize("name", FONTS)
@pytest.mark.parametrize(
    ("lines", "turns"),
    [*((one, turns) for one in (TABLE, DATES) for turns in range(4)), (QUOTES, 0)],
)
def test_full_stops_say_which_way_up_figures_and_capitals_stand(
    name: str, lines: tuple[str, ...], turns: int
) -> None:
    """Where there are few tails; and quotation marks and degrees hang high on upright pages."""
    sheet = Sheet()
    for row, line in enumerate(lines):
        sheet.text(80, 80 + 60 * row, line, 30, name)
    found = find_lines(np.ascontiguousarray(np.rot90(np.asarray(sheet.image), turns)))
    assert found
    for line in found:
        assert abs((line.angle + 90 * turns + 180) % 360 - 180) < 2
