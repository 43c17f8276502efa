"""Views of a page picture: reduced or enlarged to suit its letters, turned upright, deskewed."""

import cv2
import numpy as np

from vlmcli.documents.lines.frame import (
    View,
    deskewed,
    identity,
    is_sideways,
    measure_skew,
    turned,
)
from vlmcli.documents.lines.ink import THRESHOLD, Grey, denoised, ink_strength, light_strength
from vlmcli.documents.lines.marks import Marks, label, letter_size
from vlmcli.documents.lines.rows import find_phrases
from vlmcli.documents.lines.texture import regular_share

_PIXELS = 2.2e6
"""Pixels of the reduced page: A4 at 150 dpi."""
_MOST_PIXELS = 9e6
SMALL, GOOD, LARGE = 8.5, 12.0, 60.0
"""Letter heights in reduced pixels: too small to tell lines apart, enough, and wasteful."""
FINEST = 0.5
"""Page pixels to one of a view, at least: enlarging further shows nothing new."""
COARSE = 2.5
"""Page pixels to one of the view from which lines of small print run together to grey areas."""
PRINT_SHARE = 0.3
"""Share of letters in regular phrases from which small marks are small print, worth enlarging."""


def oriented(view: View, marks: Marks, size: float) -> View:
    """A level view turned and deskewed by its letters."""
    if is_sideways(view.dark, marks, size):
        view = turned(view, 1)
        marks, size = letters_of(view.dark)
    return deskewed(view, measure_skew(marks, size))


def reduced(grey: Grey) -> tuple[View, Marks, float]:
    """The page at a scale that suits its letters, its letters and their size."""
    height, width = grey.shape
    scale = max(1.0, (height * width / _PIXELS) ** 0.5)
    view, marks, size = scaled(grey, scale)
    if not size or SMALL <= size <= LARGE:
        return view, marks, size
    if size < SMALL and regular_share(find_phrases(marks, size)[0]) < PRINT_SHARE:
        return view, marks, size
    finest = max(FINEST, (height * width / _MOST_PIXELS) ** 0.5)
    better = max(finest, scale * size / (GOOD if size < SMALL else LARGE / 2))
    return (view, marks, size) if abs(better / scale - 1) < 0.15 else scaled(grey, better)


def scaled(grey: Grey, scale: float) -> tuple[View, Marks, float]:
    """A level picture at `scale` of its pixels to one of the view, its letters and their size."""
    height, width = grey.shape
    new_width, new_height = max(8, round(width / scale)), max(8, round(height / scale))
    grey, floor = denoised(grey) if scale <= 1 else (grey, 0.0)
    if (new_width, new_height) != (width, height):
        how = cv2.INTER_AREA if scale > 1 else cv2.INTER_CUBIC
        grey = np.asarray(cv2.resize(grey, (new_width, new_height), interpolation=how), np.uint8)
    if scale > 1:
        grey, floor = denoised(grey)
    frame = identity(new_width, new_height, width / new_width)
    dark = ink_strength(grey, floor)
    marks, size = letters_of(dark)
    if _is_mostly_dark(grey):
        negative = np.asarray(255 - grey, np.uint8)
        other = ink_strength(negative, floor)
        other_marks, other_size = letters_of(other)
        # Where neither shows a letter, print too small for this view is light on dark as well.
        if len(other_marks) > len(marks) or not len(marks):
            view = View(frame=frame, dark=other, light=light_strength(negative), is_negative=True)
            return view, other_marks, other_size
    return View(frame=frame, dark=dark, light=light_strength(grey)), marks, size


def _is_mostly_dark(grey: Grey) -> bool:
    """Whether the page may be light on dark as a whole."""
    return float(np.median(grey[::4, ::4])) < 128


def letters_of(strength: Grey) -> tuple[Marks, float]:
    """Marks shaped like letters, and the commonest height."""
    marks, _ = label((strength >= THRESHOLD).astype(np.uint8))
    size = letter_size(marks)
    height, width = marks.height, marks.width
    shaped = (height >= 0.5 * size) & (height <= 2.5 * size) & (width <= 3 * height)
    return marks.take(shaped), size
