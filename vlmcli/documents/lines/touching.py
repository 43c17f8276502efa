"""Letters of two lines that touch: a tall mark among lower ones is cut at its neck."""

import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.marks import Ints, Marks, marks_from
from vlmcli.documents.lines.pairs import grouped_median, row_pairs

_TALL = 2.55
"""Height in usual letter heights from which a mark spans two lines: from the top of the upper
line's x-height to the foot of the lower line is more than 3, the tallest letter with accent 2.4."""
_NECK = 0.55
"""Widest neck in letter sizes; the stem of an initial that is three lines tall is wider."""
_MOST_LINES = 4


def split_touching(letters: Marks, ids: Ints, labels: npt.NDArray[np.int32], size: float) -> Marks:
    """The letters with those cut that join two lines.

    Args:
        letters: marks of a page.
        ids: (N,) the label of each in the label picture.
        labels: int32 (H, W).
        size: the commonest letter height in pixels.
    """
    height = letters.height
    tall = np.flatnonzero((height >= _TALL * size) & (height <= 10 * size))
    if not tall.size:
        return letters
    usual = _usual_height(letters, size)
    kept = np.ones(len(letters), bool)
    boxes: list[tuple[int, int, int, int, int]] = []
    for mark in tall.tolist():
        if usual[mark] <= 0 or height[mark] < _TALL * usual[mark]:
            continue
        x0, y0 = int(letters.x0[mark]), int(letters.y0[mark])
        window = labels[y0 : int(letters.y1[mark]), x0 : int(letters.x1[mark])]
        pieces = _cut(window == ids[mark], usual[mark], _MOST_LINES)
        if len(pieces) > 1:
            kept[mark] = False
            boxes += [(x0 + a, y0 + b, x0 + c, y0 + d, n) for a, b, c, d, n in pieces]
    if not boxes:
        return letters
    return letters.take(kept).joined(marks_from(np.array(boxes, np.float64)))


def _usual_height(letters: Marks, size: float) -> npt.NDArray[np.float64]:
    """Median height of the letters beside each, 0 where there are none."""
    shaped = np.flatnonzero(letters.height >= 0.6 * size)
    some = letters.take(shaped)
    i, j = row_pairs(
        some.x0, some.y0, some.x1, some.y1, reach=np.full(len(some), 3 * size), stripe=4 * size
    )
    medians = grouped_median(np.concatenate((i, j)), some.height[np.concatenate((j, i))], len(some))
    usual = np.zeros(len(letters))
    usual[shaped] = medians
    return usual


def _cut(
    ink: npt.NDArray[np.bool_], usual: float, most: int
) -> list[tuple[int, int, int, int, int]]:
    """Boxes (x0, y0, x1, y1, area) of the ink, cut at its narrowest level if it has a neck."""
    height = ink.shape[0]
    if height >= _TALL * usual and most > 1:
        profile = ink.sum(axis=1)
        low, high = round(0.25 * height), round(0.75 * height)
        smooth = np.convolve(profile, np.ones(3) / 3, mode="same")[low:high]
        neck = low + int(np.argmin(smooth))
        if profile[neck] <= _NECK * usual:
            upper = _cut(ink[:neck], usual, most - 1)
            lower = _cut(ink[neck:], usual, most - 1)
            return upper + [(a, b + neck, c, d + neck, n) for a, b, c, d, n in lower]
    ys, xs = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    if not ys.size:
        return []
    return [(int(xs[0]), int(ys[0]), int(xs[-1]) + 1, int(ys[-1]) + 1, int(ink.sum()))]
