"""Print that is legible is found whatever the size of the sheet and of what else stands on it."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lines_kit import Sheet, font, noisy, rotated
from PIL import Image, ImageDraw

from vlmcli.documents import blank
from vlmcli.documents.lines import TextLine, find_lines, finer, tiles

NOTES = (
    "Check valve before use",
    "Door opens to the left",
    "Pump house number four",
    "Replace filter monthly",
    "See drawing on sheet nine",
    "Steel beam of grade two",
    "Drain pipe below floor",
    "Keep this area clear",
    "Light switch by the door",
    "Main power cable here",
    "Window glass is double",
    "Paint both sides white",
)
Box = tuple[int, int, int, int]


def sheet(
    shape: tuple[int, int], size: int, *, title: int = 0, count: int = 12, name: str = "sans"
) -> tuple[np.ndarray, list[Box]]:
    """A white sheet with notes spread over it, and a title; the boxes of their ink."""
    height, width = shape
    image = Image.new("L", (width, height), 255)
    draw = ImageDraw.Draw(image)
    top = 0.04 * height
    placed = [(0.1 * width, top, "TITLE", title)] if title else []
    top += 1.3 * title
    rows = -(-count // 3)
    for index, note in enumerate(NOTES[:count]):
        y = top + (0.95 * height - top) * (index // 3 + 0.5) / rows
        placed.append((width * (0.06 + 0.31 * (index % 3)), y, note, size))
    boxes = []
    for x, y, text, points in placed:
        face = font(name, points)
        draw.text((round(x), round(y)), text, font=face, fill=0)
        x0, y0, x1, y1 = draw.textbbox((round(x), round(y)), text, font=face)
        boxes.append((int(x0), int(y0), int(x1), int(y1)))
    return np.asarray(image).copy(), boxes


def assert_found(boxes: list[Box], lines: tuple[TextLine, ...]) -> None:
    """Each box holds what one line, or the cells of one, say it holds; nothing else is found."""
    for x0, y0, x1, y1 in boxes:
        slack = 4 + 0.12 * (y1 - y0)  # the white that belongs to a letter
        own = [
            line.bbox
            for line in lines
            if y0 - slack <= (line.bbox[1] + line.bbox[3]) / 2 <= y1 + slack
            and line.bbox[0] < x1
            and line.bbox[2] > x0
        ]
        assert own, f"nothing at {(x0, y0, x1, y1)} in {[line.bbox for line in lines]}"
        assert min(box[0] for box in own) <= x0 + slack
        assert max(box[2] for box in own) >= x1 - slack
    assert len(lines) <= len(boxes) + 1


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(
    megapixels=st.sampled_from([9, 16, 25, 40]),
    size=st.integers(14, 40),
    count=st.integers(1, 12),
    name=st.sampled_from(["sans", "serif", "bold"]),
    is_light=st.booleans(),
)
def test_a_few_small_notes_on_a_large_sheet_are_found_and_the_sheet_is_not_blank(
    megapixels: int, size: int, count: int, name: str, is_light: bool
) -> None:
    """Reduced to the finder's view, their letters are two pixels high; they were lost."""
    side = int((megapixels * 1e6 / 1.41) ** 0.5)
    pixels, boxes = sheet((int(1.41 * side), side), size, count=count, name=name)
    if is_light:
        pixels = 255 - pixels
    assert_found(boxes, find_lines(pixels))
    assert not blank.inspect(pixels).is_blank


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(size=st.integers(18, 30), ratio=st.floats(2.0, 18.0), name=st.sampled_from(["sans", "bold"]))
def test_neither_title_nor_notes_are_lost_beside_each_other(
    size: int, ratio: float, name: str
) -> None:
    """The commonest height of letters is that of one of them; the other was dirt or a picture."""
    pixels, boxes = sheet((2339, 1654), size, title=min(380, round(size * ratio)), name=name)
    assert_found(boxes, find_lines(pixels))


@pytest.mark.parametrize("title", [0, 130, 400])
def test_notes_far_below_a_title_on_a_large_sheet_are_found(title: int) -> None:
    pixels, boxes = sheet((5944, 4205), 17, title=title)
    assert_found(boxes, find_lines(pixels))


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_small_notes_are_read_the_right_way_up(turns: int) -> None:
    pixels, boxes = sheet((5000, 3600), 18)
    found = find_lines(np.ascontiguousarray(np.rot90(pixels, turns)))
    assert len(found) == len(boxes)
    if turns != 2:  # twelve notes have too few tails to tell where their feet are
        assert np.median([abs(line.angle) for line in found]) == pytest.approx(90, abs=1)


@pytest.mark.parametrize("degrees", [-3.0, 1.3, 4.0])
def test_small_notes_on_a_tilted_sheet_have_its_angle(degrees: float) -> None:
    pixels, boxes = sheet((4200, 3000), 20)
    found = find_lines(rotated(pixels, degrees))
    assert len(found) == len(boxes)
    angles = [line.angle for line in found]
    assert np.median(angles) == pytest.approx(degrees, abs=0.4)
    assert angles == pytest.approx([degrees] * len(boxes), abs=2)  # a short line's own feet


def test_small_print_in_paragraphs_is_found_line_by_line_across_the_borders_of_tiles() -> None:
    pixels = np.full((5200, 3700), 255, np.uint8)
    text = "  ".join(NOTES)
    rows = range(300, 5000, 24)
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    for y in rows:
        draw.text((300, y), text, font=font("serif", 18), fill=0)
    found = find_lines(np.asarray(image))
    assert len({line.row for line in found}) == len(rows)
    right = draw.textbbox((300, 0), text, font=font("serif", 18))[2]
    assert min(line.bbox[0] for line in found) <= 306
    assert max(line.bbox[2] for line in found) >= right - 6


def test_dust_and_grain_of_a_large_sheet_are_neither_print_nor_ink() -> None:
    random = np.random.default_rng(0)
    pixels = noisy(np.full((5000, 3500), 240, np.uint8), 4)
    for x, y in random.integers(20, 3400, (300, 2)):
        side = int(random.integers(1, 5))
        pixels[y : y + side, x : x + side] = 70
    assert blank.inspect(pixels).is_blank
    assert all(line.length < 3 * line.size for line in find_lines(pixels))


def test_an_ordinary_page_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ink is left unexplained there, so that the page costs what it did."""

    def fail(*_: object) -> None:
        raise AssertionError("a finer look")

    monkeypatch.setattr(finer, "tiles", fail)
    page = Sheet(width=2480, height=3508)
    page.paragraph(200, 200, 40, size=46, num_words=9)
    assert len(find_lines(page.pixels)) == 40


def test_a_finer_look_holds_one_tile_however_large_the_sheet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    marks_of = tiles.marks_of
    monkeypatch.setattr(
        tiles, "marks_of", lambda view: seen.append(view.dark.size) or marks_of(view)
    )
    pixels, boxes = sheet((9000, 7000), 18)
    assert len(find_lines(pixels)) == len(boxes)
    assert max(seen) < 1_000_000
