"""Pages without print give no lines."""

import cv2
import numpy as np
import pytest
from lines_kit import noisy

from vlmcli.documents.lines import crop_lines, find_lines

SHAPE = (1100, 850)


def ruled() -> np.ndarray:
    page = np.full(SHAPE, 255, np.uint8)
    for y in range(60, 1050, 42):
        page[y : y + 2, 40:810] = 0
    return page


def boxes() -> np.ndarray:
    page = np.full(SHAPE, 255, np.uint8)
    for y in range(60, 1000, 120):
        for x in range(40, 700, 220):
            cv2.rectangle(page, (x, y), (x + 180, y + 90), 0, 2)
    return page


def gradient() -> np.ndarray:
    slope = np.linspace(30, 250, SHAPE[1])[None] * np.linspace(0.5, 1, SHAPE[0])[:, None]
    return slope.astype(np.uint8)


def stains() -> np.ndarray:
    page = np.full(SHAPE, 235, np.uint8)
    rng = np.random.default_rng(7)
    for _ in range(12):
        x, y = rng.integers(50, 800), rng.integers(50, 1000)
        cv2.circle(
            page, (int(x), int(y)), int(rng.integers(30, 90)), int(rng.integers(190, 230)), -1
        )
    return cv2.GaussianBlur(page, (0, 0), 15)


PAGES = {
    "white": np.full(SHAPE, 255, np.uint8),
    "black": np.zeros(SHAPE, np.uint8),
    "grey": np.full(SHAPE, 128, np.uint8),
    "off-white with noise": noisy(np.full(SHAPE, 240, np.uint8), 6),
    "strong noise": noisy(np.full(SHAPE, 190, np.uint8), 25),
    "ruled": ruled(),
    "ruled, scanned": noisy(cv2.GaussianBlur(ruled(), (0, 0), 1), 8),
    "boxes": boxes(),
    "gradient": gradient(),
    "stains": stains(),
    "black borders": np.pad(np.full((1000, 780), 250, np.uint8), ((50, 50), (35, 35))),
    "tiny": np.zeros((3, 5), np.uint8),
    "one pixel": np.zeros((1, 1), np.uint8),
}


@pytest.mark.parametrize("name", list(PAGES))
def test_nothing_is_found(name: str) -> None:
    assert find_lines(PAGES[name]) == ()


def test_a_few_specks_are_nothing() -> None:
    page = np.full(SHAPE, 255, np.uint8)
    rng = np.random.default_rng(1)
    for _ in range(60):
        x, y = rng.integers(0, 840), rng.integers(0, 1090)
        page[y : y + 2, x : x + 2] = 0
    assert find_lines(page) == ()


def test_no_lines_no_crops() -> None:
    assert crop_lines(PAGES["white"], (), height=28, max_width=1120) == ()
