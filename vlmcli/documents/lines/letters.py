"""What a page's ink consists of: letters, rules, and pictures, which are dropped.

A mark is dark on light or, inside a solid dark area, light on dark. Refuses to decide what is text:
that is seen only when marks stand in a row (`rows`).
"""

from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.ink import THRESHOLD, Grey
from vlmcli.documents.lines.marks import Marks, Mask, label, letter_size
from vlmcli.documents.lines.pairs import chains, mutual_links, row_pairs
from vlmcli.documents.lines.touching import split_touching

_PICTURE_SHARE = 0.2
"""Share of solid ink from which a large mark is a picture."""
_DASHES = 8
"""Typed dashes in a row that make a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A straight printed rule, as a box in frame pixels."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMarks:
    """What the ink of a page consists of."""

    letters: Marks
    """Marks of a letter's size, punctuation and accents included."""
    horizontal: tuple[Rule, ...]
    vertical: tuple[Rule, ...]
    size: float
    """The commonest letter height in pixels, close to the x-height in running text; 0 if none."""


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
        return PageMarks(letters=nothing, horizontal=(), vertical=(), size=0.0)
    pictures, zone = _pictures(raw, labels, size)
    rest = np.asarray(ink & ~pictures, np.uint8) if zone.any() else ink
    # Inside something too large for a letter short runs are rules, too; elsewhere they may be the
    # stems and bars of a heading.
    large = _is_large(raw, size)
    underlined = (raw.width >= 5 * size) & (raw.width >= 1.5 * raw.height)
    framed = np.concatenate(([False], large))[labels].view(np.uint8)
    wide = np.concatenate(([False], large | underlined))[labels].view(np.uint8)
    rest, horizontal = _without_rules(rest, wide, (5 * size, 9 * size), size, upright=False)
    rest, vertical = _without_rules(rest, framed, (2 * size, 9 * size), size, upright=True)
    marks, labels = (raw, labels) if rest is ink else label(rest)
    y = ((marks.y0 + marks.y1) / 2).astype(np.int64)
    x = ((marks.x0 + marks.x1) / 2).astype(np.int64)
    ids = np.flatnonzero(~_is_large(marks, size) & (marks.area >= 3) & (zone[y, x] == 0))
    letters = marks.take(ids)
    if zone.any():
        wide = cv2.dilate(zone, _square(3 * size))
        letters = replace(letters, doubtful=wide[y[ids], x[ids]] > 0)
    letters = split_touching(letters, ids + 1, labels, size)
    dashes, dashed = _dashed_rules(letters, size)
    letters = letters.take(~dashes)
    if light is not None:
        letters = letters.joined(_light_letters(light, size))
    return PageMarks(letters=letters, horizontal=horizontal + dashed, vertical=vertical, size=size)


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


def _without_rules(
    ink: Grey, parts: Grey, lengths: tuple[float, float], size: float, *, upright: bool
) -> tuple[Grey, tuple[Rule, ...]]:
    """The ink without its horizontal (or upright) rules, and those rules.

    Args:
        ink: uint8 (H, W) of 0 and 1.
        parts: mask of the ink in which short runs are rules.
        lengths: shortest rule in pixels inside those parts, and outside.
        size: the commonest letter height.
        upright: look for upright rules.
    """
    runs = np.zeros_like(ink)
    for mask, length in zip((ink & parts, ink), lengths, strict=True):
        reach = max(16, round(length))
        kernel = np.ones((reach, 1) if upright else (1, reach), np.uint8)
        runs |= cv2.morphologyEx(mask, cv2.MORPH_OPEN, kernel)
    if not runs.any():
        return ink, ()
    marks, labels = label(runs)
    along, across = (marks.height, marks.width) if upright else (marks.width, marks.height)
    rule = (across <= max(3, 0.55 * size)) & (along >= 7 * across)
    if not rule.any():
        return ink, ()
    chosen = np.concatenate(([False], rule))[labels].view(np.uint8)
    # One pixel more on either side: the grey rim of a rule would stay as slivers.
    rim = np.ones((1, 3) if upright else (3, 1), np.uint8)
    rules = marks.take(rule)
    boxes = zip(*(v.tolist() for v in (rules.x0, rules.y0, rules.x1, rules.y1)), strict=True)
    found = tuple(Rule(x0=a, y0=b, x1=c, y1=d) for a, b, c, d in boxes)
    return np.asarray(ink & (1 - cv2.dilate(chosen, rim)), np.uint8), found


def _pictures(raw: Marks, labels: npt.NDArray[np.int32], size: float) -> tuple[Grey, Grey]:
    """Masks of the pictures and black borders, and of the zones in which no mark is a letter.

    A large mark is a picture if much of it is wider than any stroke; frames and tables are not.
    """
    large = np.flatnonzero(_is_large(raw, size))
    nothing = np.zeros(labels.shape, np.uint8)
    if not large.size:
        return nothing, nothing
    chosen = np.zeros(len(raw) + 1, np.uint8)
    chosen[large + 1] = 1
    whole = chosen[labels]
    solid = cv2.morphologyEx(whole, cv2.MORPH_OPEN, _square(0.8 * size))
    solid_area = np.bincount(labels[solid > 0], minlength=len(raw) + 1)[large + 1]
    chosen[large + 1] = solid_area >= _PICTURE_SHARE * raw.area[large]
    pictures = chosen[labels]
    dense = cv2.morphologyEx(pictures, cv2.MORPH_CLOSE, _square(1.2 * size))
    dense = cv2.morphologyEx(dense, cv2.MORPH_OPEN, _square(2 * size))
    near = cv2.dilate(solid & pictures, _square(size))
    return np.asarray(pictures, np.uint8), np.asarray(near | dense, np.uint8)


def _square(side: float) -> Grey:
    """A square kernel of about `side` pixels, odd, at least 3."""
    odd = max(3, 2 * round((side - 1) / 2) + 1)
    return np.ones((odd, odd), np.uint8)


def _dashed_rules(letters: Marks, size: float) -> tuple[Mask, tuple[Rule, ...]]:
    """Rules made of typed dashes: which marks are part of one, and the rules."""
    dropped = np.zeros(len(letters), bool)
    flat = (letters.height <= 0.4 * size) & (letters.width >= 1.3 * letters.height)
    ids = np.flatnonzero(flat & (letters.width <= 4 * size))
    if len(ids) < _DASHES:
        return dropped, ()
    some = letters.take(ids)
    # At the crossings of a dashed table stand plus signs, which may touch the dashes beside them.
    farthest = 3 * size
    reach = np.full(len(some), farthest)
    i, j = row_pairs(some.x0, some.y0, some.x1, some.y1, reach=reach, stripe=4 * size)
    gap = some.x0[j] - some.x1[i]
    level = np.abs(some.y0[i] + some.y1[i] - some.y0[j] - some.y1[j]) <= 0.3 * size
    fits = (gap >= 0) & (gap <= farthest) & level
    links = mutual_links(i[fits], j[fits], gap[fits], len(some))
    rules = []
    middle = (letters.y0 + letters.y1) / 2
    for run in chains(links):
        if len(run) < _DASHES:
            continue
        x0, x1 = float(some.x0[run].min()), float(some.x1[run].max())
        y0, y1 = float(some.y0[run].min()), float(some.y1[run].max())
        rules.append(Rule(x0=x0, y0=y0, x1=x1, y1=y1))
        on_rule = (middle >= y0 - 0.3 * size) & (middle <= y1 + 0.3 * size)
        on_rule &= (letters.x0 >= x0 - 1.5 * size) & (letters.x1 <= x1 + 1.5 * size)
        dropped |= on_rule & (letters.height <= 1.2 * size)
    return dropped, tuple(rules)
