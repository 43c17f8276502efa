"""How small a change a page's own text could show, and so how much misregistration to tolerate.

Strokes of small or faint text are as thin as the traces that misregistration leaves beside large
text. So the tolerance is set place by place from the text that stands there; where a changed
decimal point would drown in it, or the text itself in noise, the page is not to be judged at all.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlmcli.reuse.registration import FloatImage, gradient_size

Tiles = NDArray[np.float64]

TILE = 64
"""Side of a place, in pixels; a tolerance looks at the text of nine places."""
_GAP = 9
"""Pixels across that are closed to join the letters of a word."""
_HEIGHTS = (7, 100)
_MIN_WIDTH = 12
"""Pixels of a piece that is a word: less is a comma, more a frame or a picture."""
_MIN_HEIGHT = 13.5
"""Mean height of words that can be judged, about 7 points at 150 dpi. Measured over 12 fonts: at 6
points a comma passed for a point, at 5 points and 100 dpi some digits did for others."""
_MAX_SMALL_SHARE = 0.15
_MIN_LOCAL_HEIGHT = 11.0
"""Share of words that may be lower than that (dashes, exponents, dirt), unless one place is full
of them."""
_LIMIT_PER_HEIGHT = 0.03
_MIN_LIMIT, _MAX_LIMIT = 0.15, 0.8
"""Pixels of misregistration to tolerate, as a share of the height of words, and their bounds."""
_MAX_STROKE_GRADIENT = 0.55
"""Steepest gradient of a thin stroke over its depth, both after smoothing with 1 pixel."""
_DOT_GAIN = 1.3
"""Depth of a decimal point over that of a stroke squared per contrast, measured over 12 fonts."""
_DEPTH_FACTOR = 0.9
_UNSEEN_FACTOR = 1.5
"""Limit at which a point beside a stroke still shows: its depth beyond noise per stroke's depth."""
_EDGE, _EDGE_PER_NOISE = 4.0, 0.3
_EDGE_SHARE, _EDGE_REACH = 0.35, 15
"""And its share of the steepest gradient within some pixels: blur must not join small lines."""
_FILL = (0.2, 0.9)
"""Share of its box that the edge of a word covers: frames cover less, dashes and rules more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Pieces of text: tile, size (pixels) and steepest gradient (grey levels a pixel) of each."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    height: NDArray[np.float64]
    gradient: NDArray[np.float64]


def tolerances(picture: FloatImage, unseen: float) -> Tiles | None:
    """Misregistration to tolerate, in pixels, for each tile of the page.

    Args:
        picture: float32 (H, W), smoothed with 1 pixel.
        unseen: grey levels of difference that go for noise at that blur.

    Returns:
        (ceil(H / TILE), ceil(W / TILE)), or None for a page that is not to be judged.
    """
    steep = gradient_size(picture)
    words = _find_words(steep, unseen)
    if not words.height.size or _is_small(words):
        return None
    shape = (-(-picture.shape[0] // TILE), -(-picture.shape[1] // TILE))
    # The harmonic mean leans towards the smaller text, yet no stray comma decides alone.
    number, inverse = (_sums(words, values, shape) for values in (1.0, 1 / words.height))
    has_text, is_full = number > 0.5, number > 2.5
    height = np.where(has_text, number / np.maximum(inverse, 1e-9), words.height.min())
    stroke = _minima(words, words.gradient, shape) / _MAX_STROKE_GRADIENT
    dot = _DOT_GAIN * stroke * stroke / float(picture.max() - picture.min())
    by_depth = _DEPTH_FACTOR * (dot - _UNSEEN_FACTOR * unseen) / stroke
    limit = np.minimum(np.minimum(_LIMIT_PER_HEIGHT * height, by_depth), _MAX_LIMIT)
    if (height[is_full] < _MIN_LOCAL_HEIGHT).any() or limit.min() < _MIN_LIMIT:
        return None
    return np.asarray(limit)


def _find_words(steep: FloatImage, unseen: float) -> _Words:
    """Pieces of edge, joined along lines, that are as high and as full as words."""
    import cv2

    around = cv2.dilate(steep, np.ones((_EDGE_REACH, _EDGE_REACH), np.uint8))
    bar = np.maximum(_EDGE_SHARE * around, max(_EDGE, _EDGE_PER_NOISE * unseen))
    is_edge = (steep > bar).astype(np.uint8)
    joined = cv2.dilate(is_edge, np.ones((1, _GAP), np.uint8))
    _, labels, stats, centres = cv2.connectedComponentsWithStats(joined, connectivity=8)
    width = np.maximum(stats[:, cv2.CC_STAT_WIDTH] - _GAP + 1, 1)
    height = stats[:, cv2.CC_STAT_HEIGHT]
    edge = np.flatnonzero(is_edge)
    owner = labels.ravel()[edge]
    fill = np.bincount(owner, minlength=len(stats)) / (width * height)
    steepest = np.zeros(len(stats), np.float32)
    np.maximum.at(steepest, owner, steep.ravel()[edge])
    is_word = (height >= _HEIGHTS[0]) & (height <= _HEIGHTS[1])
    is_word &= (
        (width >= _MIN_WIDTH) & (height < 8 * width) & (fill >= _FILL[0]) & (fill <= _FILL[1])
    )
    is_word[0] = False
    return _Words(
        row=centres[is_word, 1].astype(np.int64) // TILE,
        column=centres[is_word, 0].astype(np.int64) // TILE,
        height=height[is_word].astype(np.float64),
        gradient=steepest[is_word].astype(np.float64),
    )


def _is_small(words: _Words) -> bool:
    """Whether part of the page is in text too small to be judged."""
    return bool((words.height < _MIN_HEIGHT).mean() > _MAX_SMALL_SHARE)


def _sums(words: _Words, values: NDArray[np.float64] | float, shape: tuple[int, int]) -> Tiles:
    """For each tile the sum of the words' values in it and its eight neighbours."""
    import cv2

    tiles = np.zeros(shape)
    np.add.at(tiles, (words.row, words.column), values)
    plain = cv2.BORDER_CONSTANT
    return np.asarray(cv2.boxFilter(tiles, -1, (3, 3), normalize=False, borderType=plain))


def _minima(words: _Words, values: NDArray[np.float64], shape: tuple[int, int]) -> Tiles:
    """For each tile the least of the words' values in it and its neighbours, else of the page."""
    import cv2

    tiles = np.full(shape, values.max() + 1)
    np.minimum.at(tiles, (words.row, words.column), values)
    least = np.asarray(cv2.erode(tiles, np.ones((3, 3), np.uint8)))
    return np.where(least <= values.max(), least, values.min())
