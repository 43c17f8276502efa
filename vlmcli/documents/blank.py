"""Is there anything to read on a page? White, noisy, ruled and black pages are blank.

Looks for marks that could be letters on a copy of about 1,200 pixels on the long side: darker or
lighter than the ground around them, neither dust nor rules nor a scanner's edge. Errs towards not
blank: a page with a picture, or with one small folio, is for the line finder or the model to judge.
Where the copy shows traces of finer ink alone, the line finder looks whether they are small print.
"""

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.base import Pixels

_LONG_SIDE = 1200
"""Pixels on the long side of the copy: about 100 dpi on an A4 page."""

_FINE = 1.5
"""Pictures so many times larger than the copy have strokes of more than one pixel."""

_LEAST_CONTRAST = 16
"""Grey levels, of 255; paper and scanners vary by less."""

_MOST_CONTRAST = 60.0
"""Print of this contrast counts on any ground, be it as wild as a photograph."""

_NOISE_FACTOR = 5.0
"""A mark stands out from the grain and the blotches of the paper by so many standard deviations."""

_GHOST_CONTRAST = 56
"""Marks fainter than this, of 255, on a page that has no others are show-through or a ghost."""

_EDGE_CONTRAST = 60
"""Grey levels between the page and what lies beside it."""

_LEAST_HEIGHT = 5
"""Pixels of the copy; a digit of a small folio is six to ten high."""

_DUST = 8
"""A round solid spot smaller than this is dust."""

_RULE = 40
"""Runs longer than this many pixels of the copy are rules, borders or filled areas."""


_WORD = 2.5
"""Letter sizes: what is shorter is one mark or two, and may be dust."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InkReport:
    """`marks` that could be letters, and how they stand out from the ground (of 255; 0 if none)."""

    marks: int
    contrast: float

    @property
    def is_blank(self) -> bool:
        """Nothing on the page could be a letter."""
        return self.marks == 0

    @property
    def is_low_contrast(self) -> bool:
        """All there is, is faint: perhaps the other side of the leaf showing through."""
        return self.marks > 0 and self.contrast < _GHOST_CONTRAST


def inspect(grey: Pixels) -> InkReport:
    """Count what could be letters on a page.

    Args:
        grey: (H, W) picture of the whole page.
    """
    small = _reduced(grey)
    difference = _difference(small)
    ink = (difference > _threshold(difference)).astype(np.uint8)
    ink &= _without_rules(ink) & ~_edges(small)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    letters = [number for number in range(1, count) if _could_be_a_letter(stats[number], ink.shape)]
    if not letters:
        return _small_print(grey, small)
    wanted = np.zeros(count, np.bool_)
    wanted[letters] = True
    levels = difference[wanted[labels]]
    return InkReport(marks=len(letters), contrast=float(np.percentile(levels, 90)))


def is_blank(grey: Pixels) -> bool:
    """Whether a page, (H, W) grey, holds nothing to read."""
    return inspect(grey).is_blank


def _small_print(grey: Pixels, small: Pixels) -> InkReport:
    """What a page holds whose copy shows no letters: lines of small print, or nothing."""
    nothing = InkReport(marks=0, contrast=0.0)
    if max(grey.shape) < _FINE * _LONG_SIDE:
        return nothing
    from vlmcli.documents.lines.finder import lines_of_small_print
    from vlmcli.documents.lines.traces import traces

    ink = np.asarray(traces(grey, small.shape) & ~_edges(small) & 1, np.uint8)
    lines = [line for line in lines_of_small_print(grey, ink) if line.length >= _WORD * line.size]
    if not lines:
        return nothing
    boxes = [grey[y0:y1, x0:x1] for x0, y0, x1, y1 in (line.bbox for line in lines)]
    levels = [np.percentile(np.abs(box - np.median(box)), 95) for box in boxes]
    return InkReport(marks=len(lines), contrast=float(np.percentile(levels, 90)))


def _reduced(grey: Pixels) -> Pixels:
    """A copy of at most `_LONG_SIDE` pixels on the long side; averaging also quiets the grain."""
    factor = max(grey.shape) / _LONG_SIDE
    if factor <= 1:
        return grey
    if factor >= _FINE:
        # Takes away specks of one pixel, where no stroke is that thin.
        grey = cv2.medianBlur(grey, 3)
    shape = max(1, round(grey.shape[1] / factor)), max(1, round(grey.shape[0] / factor))
    small: Pixels = cv2.resize(grey, shape, interpolation=cv2.INTER_AREA)
    return small


def _difference(small: Pixels) -> Pixels:
    """How far each pixel is from the ground around it, darker or lighter."""
    ground = cv2.medianBlur(small, 31)
    difference: Pixels = cv2.absdiff(small, ground)
    return difference


def _threshold(difference: Pixels) -> float:
    """Contrast from which a pixel is ink, whatever is printed on the page.

    The spread of the paper is 1.4826 times the median difference from its ground, which holds for
    up to half of the page in ink (F. Hampel, 1974).
    """
    spread = 1.4826 * float(np.median(difference))
    return min(max(_LEAST_CONTRAST, _NOISE_FACTOR * spread), _MOST_CONTRAST)


def _without_rules(ink: Pixels) -> Pixels:
    rules = np.zeros_like(ink)
    for kernel in (np.ones((1, _RULE), np.uint8), np.ones((_RULE, 1), np.uint8)):
        rules |= cv2.morphologyEx(ink, cv2.MORPH_OPEN, kernel)
    # The grey fringe of a rule goes with it.
    kept: Pixels = ink & ~cv2.dilate(rules, np.ones((5, 5), np.uint8)) & 1
    return kept


def _edges(small: Pixels) -> Pixels:
    """What lies beside the page: areas of another shade that touch the picture's edge."""
    strange = cv2.absdiff(small, np.full_like(small, np.median(small))) > _EDGE_CONTRAST
    _, labels = cv2.connectedComponents(strange.astype(np.uint8), connectivity=4)
    sides = (labels[0], labels[-1], labels[:, 0], labels[:, -1])
    outside = np.unique(np.concatenate(sides))
    mask = np.isin(labels, outside[outside > 0]).astype(np.uint8)
    # The ground is a median over 31 pixels: nearer than half of that to an edge it is wrong.
    edges: Pixels = cv2.dilate(mask, np.ones((33, 33), np.uint8))
    return edges


def _could_be_a_letter(stats: npt.NDArray[np.int32], shape: tuple[int, ...]) -> bool:
    """Judge one component by its box and area; what touches the picture's edge is the scanner's."""
    left, top = int(stats[cv2.CC_STAT_LEFT]), int(stats[cv2.CC_STAT_TOP])
    width, height = int(stats[cv2.CC_STAT_WIDTH]), int(stats[cv2.CC_STAT_HEIGHT])
    area = int(stats[cv2.CC_STAT_AREA])
    if left == 0 or top == 0 or left + width == shape[1] or top + height == shape[0]:
        return False
    if height < _LEAST_HEIGHT or area < 2 * _LEAST_HEIGHT:
        return False
    if max(width, height) < _DUST and max(width, height) < 2 * min(width, height):
        return area < 0.6 * width * height
    # What is left of a rule is long and thin; so is the letter l, which is short.
    return min(width, height) >= 2 and max(width, height) < 15 * min(width, height)
