"""Does text cover the ink? Compares a page's picture with the boxes of its own text.

Answers two questions about a text layer: which fragments have no ink under them (hidden text), and
how much writing lies outside all boxes (text that the layer lacks). Works on a small copy of the
page on which letters are about ten pixels high. Gave up: reading; a row of ornaments looks like
text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.base import Box, Pixels

_LETTER = 10
"""Font size in pixels at which the page is looked at."""

_FURTHER = 3.0
"""The second look is for writing of so many times the usual size."""

_CONTRAST = 24
"""Grey levels between ink and the ground around it, of 255."""

_LEAST_LETTERS = 4
"""A piece of writing has this many separate marks in a row; fewer are ornaments or logos."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """`hidden[i]`: box i has no ink. Widths of writing in and out of boxes, in font sizes."""

    hidden: tuple[bool, ...]
    covered: float
    uncovered: float


def compare(grey: Pixels, boxes: Sequence[Box], size: float) -> Coverage:
    """Hold the boxes of a text layer against the picture of its page.

    Args:
        grey: (H, W) picture of the whole page.
        boxes: boxes of the layer's fragments, in pixels of `grey`.
        size: the usual font size of the layer, in pixels of `grey`.
    """
    hidden, uncovered = _look(grey, boxes, size)
    # Once more from further away: a headline or a slide may be a picture beside small text.
    _, large = _look(grey, boxes, size * _FURTHER)
    widths = (box[2] - box[0] for box, blank in zip(boxes, hidden, strict=True) if not blank)
    return Coverage(
        hidden=hidden, covered=sum(widths) / size, uncovered=max(uncovered, large) / size
    )


def _look(grey: Pixels, boxes: Sequence[Box], size: float) -> tuple[tuple[bool, ...], float]:
    """Which boxes hold no ink, and the width in pixels of writing of about `size` outside all."""
    factor = max(1.0, size / _LETTER)
    shape = max(1, round(grey.shape[1] / factor)), max(1, round(grey.shape[0] / factor))
    small: Pixels = cv2.resize(grey, shape, interpolation=cv2.INTER_AREA) if factor > 1 else grey
    letter = size / factor
    ink: Mask = cv2.absdiff(small, _ground(small, letter)) > _CONTRAST
    cells = [_cells(box, factor, ink.shape) for box in boxes]
    hidden = tuple(_is_hidden(small, *cell, round(letter)) for cell in cells)
    margin = round(letter / 4)
    for rows, columns in cells:
        ink[
            max(0, rows.start - margin) : rows.stop + margin,
            max(0, columns.start - margin) : columns.stop + margin,
        ] = False
    return hidden, _writing(ink, letter) * factor


def _cells(box: Box, factor: float, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Rows and columns of the small copy that a box touches, at least one each."""
    x0, y0, x1, y1 = (side / factor for side in box)
    top, left = min(max(0, int(y0)), shape[0] - 1), min(max(0, int(x0)), shape[1] - 1)
    return slice(top, max(top + 1, int(np.ceil(y1)))), slice(left, max(left + 1, int(np.ceil(x1))))


def _ground(small: Pixels, letter: float) -> Pixels:
    """The shade around each pixel: a median over twice the letter height, where letters are few."""
    reach = int(letter) | 1
    ground: Pixels = cv2.medianBlur(small, max(3, 2 * reach + 1))
    return ground


def _is_hidden(small: Pixels, rows: slice, columns: slice, letter: int) -> bool:
    """Whether nothing can be read in a box: it is of one shade, or its middle is, like a bar."""
    area = small[rows, columns]
    if _spread(area) <= _CONTRAST:
        return True
    inset = round(area.shape[0] * 0.25)
    middle = area[inset : area.shape[0] - inset]
    if _spread(middle) > _CONTRAST:
        return False
    # Underscores leave the middle empty too, but then it looks like the paper above and below.
    above = small[max(0, rows.start - letter) : rows.start, columns]
    below = small[rows.stop : rows.stop + letter, columns]
    around = np.concatenate([above.ravel(), below.ravel(), middle.ravel()[:1]])
    return abs(float(np.median(middle)) - float(np.median(around))) > _CONTRAST


def _spread(area: Pixels) -> int:
    return int(area.max()) - int(area.min())


def _writing(ink: Mask, letter: float) -> float:
    """Width in pixels of what looks like rows of letters."""
    marks = ink.astype(np.uint8)
    long = max(3, round(4 * letter))
    for kernel in (np.ones((1, long), np.uint8), np.ones((long, 1), np.uint8)):
        # Rules, frames and filled areas hold runs longer than any letter has.
        marks &= ~cv2.dilate(cv2.morphologyEx(marks, cv2.MORPH_OPEN, kernel), np.ones((3, 3))) & 1
    count, _labels, stats, _ = cv2.connectedComponentsWithStats(marks, connectivity=8)
    keep = [
        number
        for number in range(1, count)
        if 0.25 * letter <= stats[number, cv2.CC_STAT_HEIGHT] <= 2.5 * letter
        and stats[number, cv2.CC_STAT_WIDTH] <= 4 * letter
        and stats[number, cv2.CC_STAT_AREA] >= 3
    ]
    boxes = stats[keep, :4].astype(np.float64)
    return sum(_row_widths(boxes, letter))


def _row_widths(boxes: npt.NDArray[np.float64], letter: float) -> list[float]:
    """Widths of runs of marks (x, y, width, height) that stand on one line, close to each other."""
    widths: list[float] = []
    bottoms = boxes[:, 1] + boxes[:, 3]
    free = np.ones(len(boxes), np.bool_)
    for start in np.argsort(boxes[:, 0], kind="stable"):
        if not free[start]:
            continue
        run = [int(start)]
        free[start] = False
        while True:
            last = run[-1]
            right = boxes[last, 0] + boxes[last, 2]
            near = (
                free
                & (boxes[:, 0] >= boxes[last, 0])
                & (boxes[:, 0] - right < 1.2 * letter)
                & (np.abs(bottoms - bottoms[last]) <= 0.25 * letter)
            )
            if not near.any():
                break
            candidates = np.flatnonzero(near)
            step = int(candidates[np.argmin(boxes[candidates, 0])])
            run.append(step)
            free[step] = False
        if len(run) >= _LEAST_LETTERS:
            heights = boxes[run, 3]
            if heights.max() >= 0.4 * letter and np.median(heights) * 3 >= heights.max():
                widths.append(float(boxes[run[-1], 0] + boxes[run[-1], 2] - boxes[run[0], 0]))
    return widths
