"""Where the words of a read line stand in its picture: texts in, columns out.

The gaps of the print are weighed against the widths that letters commonly have. Where the print
has too few gaps, words get their shares of it. Brings no OpenCV.
"""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_EMPTY = 0.06
"""Solid ink in a column, in crop heights, below which it is a gap: grain and smear."""
_WIDE = 0.5
"""Crop heights from which a gap is a word gap whatever its width."""
_GAP_WEIGHT = 8.0
"""What a crop height of gap is worth against words of unlikely widths."""
_SPREAD, _LEAST_SPREAD = 0.25, 0.15
"""Of a word's width, in widths expected of it and in crop heights: typefaces differ that much."""
_MORE_GAPS = 8
"""Gaps that are looked at besides three for each word: the widest."""
_NARROW = re.compile(r"[ijlI.,:;'’|!`·]")
_SLIM = re.compile(r"[frt()\[\]/\\\"“”*-]")
_BROAD = re.compile(r"[mwMW%@—]")
_CAPITAL = re.compile(r"[A-ZÀ-Þ&]")
_SPACE = 0.3


def word_columns(pixels: npt.NDArray[np.uint8], text: str) -> list[tuple[float, float]]:
    """First and last column of each word's print, the last exclusive.

    Args:
        pixels: uint8 (H, W), the line's picture, dark print on a light ground.
        text: what it says; words are what blanks part.
    """
    words = text.split()
    height, width = pixels.shape
    inked = (255.0 - pixels).sum(axis=0) >= _EMPTY * 255 * height
    columns = np.flatnonzero(inked)
    if not words:
        return []
    first, last = (columns[0], columns[-1] + 1) if columns.size else (0, width)
    widths = np.array([text_width(word) for word in words])
    gaps = _widest(_gaps(inked), 3 * len(words) + _MORE_GAPS)
    if len(gaps) < len(words) - 1:
        return _shares(widths, float(first), float(last))
    chosen = _fitting(gaps, widths, float(first), float(last), height)
    starts = [float(first), *(float(gaps[i, 1]) for i in chosen)]
    stops = [*(float(gaps[i, 0]) for i in chosen), float(last)]
    return list(zip(starts, stops, strict=True))


def text_width(text: str) -> float:
    """About how wide a text is, in type sizes: what is common to roman faces."""
    width = 0.0
    for char in text:
        if char == " ":
            width += _SPACE
        elif _NARROW.match(char):
            width += 0.27
        elif _SLIM.match(char):
            width += 0.35
        elif _BROAD.match(char):
            width += 0.82
        elif _CAPITAL.match(char):
            width += 0.69
        else:
            width += 0.53
    return width


def word_shares(text: str) -> list[tuple[float, float]]:
    """Where the words of a text with single spaces begin and end, as shares of its width."""
    widths = np.array([text_width(word) for word in text.split(" ")])
    return _shares(widths, 0.0, 1.0)


def _shares(widths: Floats, first: float, last: float) -> list[tuple[float, float]]:
    total = float(widths.sum()) + _SPACE * (len(widths) - 1)
    unit = (last - first) / total if total else 0.0
    stops = first + unit * (np.cumsum(widths) + _SPACE * np.arange(len(widths)))
    return [
        (float(stop - unit * own), float(stop)) for own, stop in zip(widths, stops, strict=True)
    ]


def _gaps(inked: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Start and stop of the runs of empty columns between the first and the last ink, (N, 2)."""
    padded = np.concatenate(([True], ~inked, [True]))
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    # Ink begins and ends at every other edge; what lies between is a gap.
    return np.asarray(edges[1:-1].reshape(-1, 2), np.int64) if edges.size else _none()


def _none() -> npt.NDArray[np.int64]:
    return np.zeros((0, 2), np.int64)


def _widest(gaps: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """The widest gaps, from left to right."""
    if len(gaps) <= count:
        return gaps
    order = np.argsort(gaps[:, 0] - gaps[:, 1], kind="stable")[:count]
    return np.asarray(gaps[np.sort(order)])


def _fitting(
    gaps: npt.NDArray[np.int64], widths: Floats, first: float, last: float, height: int
) -> list[int]:
    """The gaps, one fewer than words, that are wide and leave words of likely widths.

    Dynamic programming over words: `best[i]` is the least cost with the last word's end at gap i.
    """
    count = len(widths)
    if count == 1:
        return []
    clear = np.minimum(gaps[:, 1] - gaps[:, 0], _WIDE * height).astype(np.float64)
    gain = _GAP_WEIGHT * clear / height
    unit = (last - first - _SPACE * height * (count - 1)) / float(widths.sum())
    wanted = np.maximum(unit, 0.1) * widths
    best = _misfit(gaps[:, 0] - first, wanted[0], height) - gain
    before: list[npt.NDArray[np.int64]] = []
    following = np.arange(len(gaps))[:, None] < np.arange(len(gaps))[None, :]
    for width in wanted[1:-1]:
        costs = best[:, None] + _misfit(gaps[None, :, 0] - gaps[:, None, 1], width, height)
        costs = np.where(following, costs, np.inf)
        before.append(np.argmin(costs, axis=0))
        best = costs.min(axis=0) - gain
    place = int(np.argmin(best + _misfit(last - gaps[:, 1], wanted[-1], height)))
    chosen = [place]
    for step in reversed(before):
        place = int(step[place])
        chosen.append(place)
    return chosen[::-1]


def _misfit(found: npt.NDArray[Any], wanted: float, height: int) -> Floats:
    """How unlikely a word of that width is: squared, in the spread that widths have."""
    spread = _SPREAD * wanted + _LEAST_SPREAD * height
    return np.asarray(np.minimum(((found - wanted) / spread) ** 2, 25.0))
