"""Letters of two lines that touch: a tall mark among lower ones is cut at its neck."""

import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.marks import Ints, Marks, Mask, marks_from

_TALL = 2.55
"""Height in usual letter heights from which a mark spans two lines: from the top of the upper
line's x-height to the foot of the lower line is more than 3, the tallest letter with accent 2.4."""
_NECK = 0.55
"""Widest neck in letter sizes; the stem of an initial that is three lines tall is wider."""
_AROUND = 3.0
"""Letter sizes on either side within which neighbours tell where the lines are."""

_Ink = npt.NDArray[np.bool_]
_Box = tuple[int, int, int, int, int]
"""x0, y0, x1, y1, area."""


def split_touching(letters: Marks, ids: Ints, labels: npt.NDArray[np.int32], size: float) -> Marks:
    """The letters with those cut that join two lines.

    Args:
        letters: marks of a page.
        ids: (N,) the label of each in the label picture.
        labels: int32 (H, W).
        size: the commonest letter height in pixels.
    """
    tall = np.flatnonzero((letters.height >= _TALL * size) & (letters.height <= 10 * size))
    shaped = letters.take(letters.height >= 0.6 * size)
    kept = np.ones(len(letters), bool)
    boxes: list[_Box] = []
    for mark in tall.tolist():
        x0, y0 = int(letters.x0[mark]), int(letters.y0[mark])
        x1, y1 = int(letters.x1[mark]), int(letters.y1[mark])
        pieces = _cut(labels[y0:y1, x0:x1] == ids[mark], (x0, y0), shaped, size)
        if len(pieces) > 1:
            kept[mark] = False
            boxes += pieces
    if not boxes:
        return letters
    return letters.take(kept).joined(marks_from(np.array(boxes, np.float64)))


def _cut(ink: _Ink, corner: tuple[int, int], letters: Marks, size: float) -> list[_Box]:
    """Boxes of the parts into which a mark falls, from top to bottom; one if it has no neck.

    Args:
        ink: the mark's own pixels.
        corner: page position of its upper left pixel.
        letters: marks that tell where lines are.
        size: the commonest letter height.
    """
    height, width = ink.shape
    x0, y0 = corner
    if height >= _TALL * size:
        near = letters.take(_beside(letters, x0, y0, x0 + width, y0 + height, size))
        level = _neck(ink, near, y0)
        if level is not None:
            return _cut(ink[:level], corner, letters, size) + _cut(
                ink[level:], (x0, y0 + level), letters, size
            )
    ys, xs = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    if not ys.size:
        return []
    return [
        (
            x0 + int(xs[0]),
            y0 + int(ys[0]),
            x0 + int(xs[-1]) + 1,
            y0 + int(ys[-1]) + 1,
            int(np.count_nonzero(ink)),
        )
    ]


def _beside(letters: Marks, x0: int, y0: int, x1: int, y1: int, size: float) -> Mask:
    """Lower marks that stand beside a box."""
    found = (letters.x0 < x1 + _AROUND * size) & (letters.x1 > x0 - _AROUND * size)
    found &= (letters.y0 < y1) & (letters.y1 > y0)
    return np.asarray(found & (letters.height <= 0.62 * (y1 - y0)))


def _neck(ink: _Ink, near: Marks, top: int) -> int | None:
    """Row of the mark at which to cut it: its narrowest between two lines; None if it is one."""
    height = len(ink)
    if not len(near) or height < _TALL * float(np.median(near.height)):
        return None
    usual = float(np.median(near.height))
    middle = (near.y0 + near.y1) / 2 - top
    upper, lower = middle < 0.45 * height, middle > 0.55 * height
    if not upper.any() or not lower.any():
        return None
    low = round(float(np.median(near.y1[upper])) - top)
    high = round(float(np.median(near.y0[lower])) - top)
    low, high = max(1, min(low, high)), min(height - 1, max(low, high) + 1)
    if low >= high:
        return None
    profile = np.count_nonzero(ink[low:high], axis=1)
    at = int(np.argmin(profile))
    return low + at if profile[at] <= _NECK * usual else None
