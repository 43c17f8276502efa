"""Crops: exact height, dark on light, the whole line and nothing but the line."""

from itertools import pairwise

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lines_kit import Sheet, find, rotated, words

from vlmcli.documents.lines import TextLine, crop_lines, find_lines

HEIGHT, MAX_WIDTH = 28, 1120


def crops_of(pixels: np.ndarray, max_width: int = MAX_WIDTH, height: int = HEIGHT):
    return crop_lines(pixels, find_lines(pixels), height=height, max_width=max_width)


def ink_columns(picture: np.ndarray) -> np.ndarray:
    """Which columns hold ink."""
    return np.flatnonzero((picture < 140).any(axis=0))


@pytest.mark.parametrize("height", [28, 32, 48])
@pytest.mark.parametrize("size", [9, 16, 30, 64])
def test_height_is_exact_and_the_aspect_is_kept(size: int, height: int) -> None:
    sheet = Sheet(width=60 + 14 * size, height=60 + 8 * size)
    for row in range(3):
        printed = sheet.text(20, 20 + 1.6 * size * row, words(4, row), size)
    found = find(sheet)
    crops = crop_lines(sheet.pixels, found, height=height, max_width=4000)
    assert len(crops) == 3
    for crop, line in zip(crops, found, strict=True):
        assert crop.pixels.shape[0] == height
        assert crop.pixels.dtype == np.uint8
        box_width, box_height = line.bbox[2] - line.bbox[0], line.bbox[3] - line.bbox[1]
        assert crop.pixels.shape[1] / height == pytest.approx(box_width / box_height, rel=0.35)
    assert printed.text == words(4, 2)


def test_glyphs_fill_most_of_the_height_and_touch_no_edge() -> None:
    sheet = Sheet()
    for row in range(8):
        sheet.text(60, 40 + 60 * row, "Hardly a gypsy quilt " + words(3, row), size=32)
    for crop in crops_of(sheet.pixels):
        rows = np.flatnonzero((crop.pixels < 128).any(axis=1))
        assert 0.6 <= (rows[-1] - rows[0] + 1) / HEIGHT <= 0.97
        assert crop.pixels[:, :2].min() > 128
        assert crop.pixels[:, -2:].min() > 128


@pytest.mark.parametrize("paper,ink", [(255, 0), (200, 60), (160, 120), (30, 230), (90, 250)])
def test_paper_is_light_and_ink_is_dark(paper: int, ink: int) -> None:
    sheet = Sheet(paper=paper, height=500)
    for row in range(8):
        sheet.text(60, 40 + 50 * row, words(8, row), ink=ink)
    crops = crops_of(sheet.pixels)
    assert len(crops) == 8
    for crop in crops:
        assert np.percentile(crop.pixels, 60) >= 240
        assert crop.pixels.min() <= 40


def test_uneven_light_is_evened() -> None:
    sheet = Sheet(height=500)
    for row in range(8):
        sheet.text(60, 40 + 50 * row, words(12, row))
    shade = np.linspace(0.4, 1, sheet.width)[None]
    for crop in crops_of((sheet.pixels * shade).astype(np.uint8)):
        top = crop.pixels[:1]
        assert top.min() >= 225


def test_lines_close_together_do_not_peek_into_each_other() -> None:
    sheet = Sheet(height=500)
    for row in range(12):
        sheet.text(60, 30 + 30 * row, "gypsy flight jumping high " + words(4, row), size=28)
    crops = crops_of(sheet.pixels)
    assert len(crops) == 12
    for crop in crops:
        assert crop.pixels[0].min() > 150
        assert crop.pixels[-1].min() > 150


@pytest.mark.parametrize("degrees", [-5, -2, 3.5])
def test_a_tilted_line_looks_like_a_level_one(degrees: float) -> None:
    sheet = Sheet(width=1000, height=500)
    for row in range(8):
        sheet.text(60, 40 + 50 * row, words(9, 3 * row), size=30)
    level, tilted = crops_of(sheet.pixels), crops_of(rotated(sheet.pixels, degrees))
    assert len(level) == len(tilted) == 8
    for one, other in zip(level, tilted, strict=True):
        width = one.pixels.shape[1]
        assert other.pixels.shape[1] == pytest.approx(width, rel=0.07)
        fitted = cv2.resize(other.pixels, (width, HEIGHT)).astype(np.float64)
        assert best_match(one.pixels.astype(np.float64), fitted) > 0.8


def best_match(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation of two pictures of a size, at the best shift of up to two pixels."""
    padded = np.pad(other, 2, constant_values=255)
    height, width = one.shape
    return max(
        float(np.corrcoef(one.ravel(), padded[y : y + height, x : x + width].ravel())[0, 1])
        for y in range(5)
        for x in range(5)
    )


def test_a_turned_page_gives_upright_crops() -> None:
    sheet = Sheet(width=1000, height=700)
    for row in range(12):
        sheet.text(60, 40 + 50 * row, words(9, 9 * row), size=30)
    level = crops_of(sheet.pixels)
    for turns in (1, 2, 3):
        turned = crops_of(np.ascontiguousarray(np.rot90(sheet.pixels, turns)))
        assert len(turned) == len(level)
        for one, other in zip(level, turned, strict=True):
            fitted = cv2.resize(other.pixels, one.pixels.shape[::-1]).astype(np.float64)
            assert best_match(one.pixels.astype(np.float64), fitted) > 0.85


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(count=st.integers(6, 24), size=st.integers(16, 30), max_width=st.integers(150, 700))
def test_the_crops_of_a_wide_line_cover_it_and_are_cut_between_words(
    count: int, size: int, max_width: int
) -> None:
    sheet = Sheet(width=80 + 9 * size * count, height=120)
    sheet.text(40, 40, words(count, size), size)
    found = find(sheet)
    assert len(found) == 1
    whole = crop_lines(sheet.pixels, found, height=HEIGHT, max_width=100_000)
    parts = crop_lines(sheet.pixels, found, height=HEIGHT, max_width=max_width)
    assert [part.line for part in parts] == [0] * len(parts)
    assert all(part.pixels.shape[1] <= max_width for part in parts)
    joined = np.hstack([part.pixels for part in parts])
    assert np.array_equal(joined, whole[0].pixels)
    x0, _, x1, _ = sheet.lines[0].box
    assert parts[0].bbox[0] <= x0 + 2
    assert parts[-1].bbox[2] >= x1 - 2
    for before, after in pairwise(parts):
        assert before.bbox[2] == after.bbox[0]
        # Two columns on either side of a cut are free of ink: it fell into a gap between words.
        assert before.pixels[:, -2:].min() > 128
        assert after.pixels[:, :2].min() > 128


def test_typewritten_words_are_not_cut_between_letters() -> None:
    sheet = Sheet(width=1900, height=120)
    sheet.text(40, 40, words(24), size=22, name="mono")
    found = find(sheet)
    parts = crop_lines(sheet.pixels, found, height=HEIGHT, max_width=420)
    assert len(parts) > 4
    pitch = 0.6 * 22
    for part in parts[1:]:
        # On a typewriter grid a cut between words falls into a place without a letter.
        place = (part.bbox[0] - sheet.lines[0].box[0]) / pitch
        assert " " in words(24)[max(0, round(place) - 1) : round(place) + 1]


def test_a_word_wider_than_the_limit_is_cut_all_the_same() -> None:
    sheet = Sheet(width=1500, height=120)
    sheet.text(20, 40, "m" * 60)
    parts = crop_lines(sheet.pixels, find(sheet), height=HEIGHT, max_width=200)
    assert len(parts) >= 5
    assert all(0 < part.pixels.shape[1] <= 200 for part in parts)


def test_crops_follow_a_bent_baseline() -> None:
    sheet = Sheet(height=400)
    sheet.text(60, 150, words(14), size=34)
    pixels = sheet.pixels
    columns = np.arange(pixels.shape[1], dtype=np.float32)
    bow = 26 * ((columns - 620) / 620) ** 2
    map_x = np.repeat(columns[None], pixels.shape[0], axis=0)
    map_y = np.arange(pixels.shape[0], dtype=np.float32)[:, None] - bow[None].astype(np.float32)
    bent = cv2.remap(pixels, map_x, map_y, cv2.INTER_LINEAR, borderValue=255)
    straight = crops_of(pixels, 4000)[0].pixels
    followed = crops_of(bent, 4000)[0].pixels
    fitted = cv2.resize(followed, straight.shape[::-1]).astype(np.float64)
    assert best_match(straight.astype(np.float64), fitted) > 0.75


def test_a_line_at_the_edge_of_the_page_keeps_its_ink() -> None:
    sheet = Sheet(width=700, height=200)
    sheet.text(0, 0, "Header at the very edge")
    sheet.text(0, 100, "Second line of this page")
    crops = crops_of(sheet.pixels)
    assert len(crops) == 2
    for crop in crops:
        columns = ink_columns(crop.pixels)
        assert len(columns) > 0.6 * crop.pixels.shape[1]


def test_crops_name_their_line_and_place() -> None:
    sheet = Sheet(height=500)
    for row in range(4):
        for cell, x in enumerate((60, 500, 900)):
            sheet.text(x, 60 + 70 * row, f"{row}{cell}.00")
    found = find(sheet)
    crops = crop_lines(sheet.pixels, found, height=HEIGHT, max_width=MAX_WIDTH)
    assert [(c.line, c.block, c.row, c.cell) for c in crops] == [
        (k, line.block, line.row, line.cell) for k, line in enumerate(found)
    ]
    assert [c.cell for c in crops] == [0, 1, 2] * 4


def test_a_line_may_reach_beyond_the_picture() -> None:
    line = TextLine(
        bbox=(0, 0, 50, 20), start=(-10.0, 15.0), angle=0.0, length=200.0, ascent=12.0,
        descent=4.0, size=9.0,
    )  # fmt: skip
    crops = crop_lines(np.full((20, 50), 255, np.uint8), [line], height=28, max_width=1120)
    assert crops[0].pixels.shape[0] == 28
    assert crops[0].pixels.min() > 200
