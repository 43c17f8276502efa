"""What a page's ink consists of: letters, rules, and pictures, which are dropped.

A mark is dark on light or, inside a solid dark area, light on dark. Refuses to decide what is text:
that is seen only when marks stand in a row (`rows`).
"""

from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.forms import on_upright_rules, tick_boxes
from vlmcli.documents.lines.ink import THRESHOLD, Grey
from vlmcli.documents.lines.marks import Marks, Mask, label, letter_size
from vlmcli.documents.lines.rules import Rule, dashed_rules, rules_of, without_rules
from vlmcli.documents.lines.touching import split_touching

_SOLID_SHARE, _DENSE_SHARE = 0.2, 0.6
"""Shares of solid and of dense ink from which a large mark is a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMarks:
    """What the ink of a page consists of."""

    letters: Marks
    """Marks of a letter's size, punctuation and accents included."""
    horizontal: tuple[Rule, ...]
    vertical: tuple[Rule, ...]
    size: float
    """The commonest letter height in pixels, close to the x-height in running text; 0 if none."""
    large: Marks
    """Ink too large for letters beside those: pictures, frames, a title."""


def page_marks(ink: Grey, light: Grey | None = None) -> PageMarks:
    """Letters and rules of a level page.

    Args:
        ink: uint8 (H, W) of 0 and 1, the dark ink.
        light: uint8 (H, W), strength of light ink in tinted areas, 0 elsewhere; None for none.
    """
    raw, labels = label(ink)
    size = letter_size(raw)
    if size == 0:
        nothing = raw.take(np.zeros(len(raw), bool))
        return PageMarks(letters=nothing, horizontal=(), vertical=(), size=0.0, large=nothing)
    pictures, zone = _pictures(raw, labels, size)
    rest = np.asarray(ink & ~pictures, np.uint8) if zone.any() else ink
    # Inside something too large for a letter short runs are rules, too; elsewhere they may be the
    # stems and bars of a heading.
    large = _is_large(raw, size)
    underlined = (raw.width >= 5 * size) & (raw.width >= 1.5 * raw.height)
    framed = np.concatenate(([False], large))[labels].view(np.uint8)
    wide = np.concatenate(([False], large | underlined))[labels].view(np.uint8)
    rest, horizontal = without_rules(rest, wide, (5 * size, 9 * size), size, upright=False)
    rest, vertical = without_rules(rest, framed, (2 * size, 9 * size), size, upright=True)
    marks, labels = (raw, labels) if rest is ink else label(rest)
    y = ((marks.y0 + marks.y1) / 2).astype(np.int64)
    x = ((marks.x0 + marks.x1) / 2).astype(np.int64)
    vast = (marks.height > 0.4 * ink.shape[0]) | (marks.width > 0.9 * ink.shape[1])
    fits = ~vast & ~_is_large(marks, size) & (marks.area >= 3) & (zone[y, x] == 0)
    ids = np.flatnonzero(fits & ~on_upright_rules(marks, vertical, size))
    boxes = tick_boxes(marks.take(ids), ids + 1, labels, size)
    vertical += rules_of(marks.take(ids[boxes]))
    ids = ids[~boxes]
    letters = marks.take(ids)
    if zone.any():
        wide = cv2.dilate(zone, _square(3 * size))
        letters = replace(letters, doubtful=wide[y[ids], x[ids]] > 0)
    letters = split_touching(letters, ids + 1, labels, size)
    dashes, dashed = dashed_rules(letters, size)
    letters = letters.take(~dashes)
    if light is not None:
        letters = letters.joined(_light_letters(light, size))
    return PageMarks(
        letters=letters,
        horizontal=horizontal + dashed,
        vertical=vertical,
        size=size,
        large=raw.take(large),
    )


def _light_letters(strength: Grey, size: float) -> Marks:
    """Letters of light print, dots and dashes included.

    A letter has nothing light right above or below it; the texture of a picture has, and is marked
    doubtful.
    """
    # Print stands on a ground several letters wide, unlike the counters of a fat heading.
    ground = np.ones((max(1, round(0.45 * size)), max(1, round(1.25 * size))), np.uint8)
    area = np.ascontiguousarray(strength[2::4, 2::4] > 0).view(np.uint8)
    area = cv2.morphologyEx(area, cv2.MORPH_OPEN, ground)
    whole = (strength.shape[1], strength.shape[0])
    light = (strength >= THRESHOLD).view(np.uint8)
    light &= cv2.resize(area, whole, interpolation=cv2.INTER_NEAREST)
    marks, _ = label(light, inverted=True)
    fits = (marks.height <= 5 * size) & (marks.width <= 14 * size) & (marks.area >= 3)
    marks = marks.take(fits)
    if not len(marks):
        return marks
    total = cv2.integral(light)
    height = len(light)
    x0, x1 = marks.x0.astype(np.int64), marks.x1.astype(np.int64)
    reach = max(2, round(0.25 * size))
    lit = np.zeros(len(marks))
    for start, stop in (
        (marks.y0.astype(np.int64) - reach, marks.y0.astype(np.int64)),
        (marks.y1.astype(np.int64), marks.y1.astype(np.int64) + reach),
    ):
        start, stop = np.clip(start, 0, height), np.clip(stop, 0, height)
        inside = total[stop, x1] - total[start, x1] - total[stop, x0] + total[start, x0]
        lit = np.maximum(lit, inside)
    blocky = marks.area > 0.8 * marks.width * marks.height
    return replace(marks, doubtful=blocky | (lit > 0.12 * reach * marks.width))


def _is_large(marks: Marks, size: float) -> Mask:
    """Larger than a heading's letter or a word whose letters touch."""
    return np.asarray((marks.height > 10 * size) | (marks.width > 14 * size))


def _pictures(raw: Marks, labels: npt.NDArray[np.int32], size: float) -> tuple[Grey, Grey]:
    """Masks of the pictures and black borders, and of the zones in which no mark is a letter.

    A large mark is a picture if much of it is wider than any stroke, or most of it dense, as the
    dots of a halftone are; frames and tables are neither.
    """
    large = np.flatnonzero(_is_large(raw, size))
    nothing = np.zeros(labels.shape, np.uint8)
    if not large.size:
        return nothing, nothing
    chosen = np.zeros(len(raw) + 1, np.uint8)
    chosen[large + 1] = 1
    whole = chosen[labels]
    solid = cv2.morphologyEx(whole, cv2.MORPH_OPEN, _square(0.8 * size))
    dense = cv2.morphologyEx(whole, cv2.MORPH_CLOSE, _square(1.2 * size))
    dense = cv2.morphologyEx(dense, cv2.MORPH_OPEN, _square(2 * size))
    for part, least in ((solid, _SOLID_SHARE), (dense, _DENSE_SHARE)):
        inside = np.bincount(labels[part > 0], minlength=len(raw) + 1)[large + 1]
        chosen[large + 1] += inside >= least * raw.area[large]
    pictures = (chosen > 1)[labels].view(np.uint8)
    if not pictures.any():
        return nothing, nothing
    dense = cv2.morphologyEx(pictures, cv2.MORPH_CLOSE, _square(1.2 * size))
    dense = cv2.morphologyEx(dense, cv2.MORPH_OPEN, _square(2 * size))
    near = cv2.dilate(solid & pictures, _square(size))
    return pictures, np.asarray(near | dense, np.uint8)


def _square(side: float) -> Grey:
    """A square kernel of about `side` pixels, odd, at least 3."""
    odd = max(3, 2 * round((side - 1) / 2) + 1)
    return np.ones((odd, odd), np.uint8)
