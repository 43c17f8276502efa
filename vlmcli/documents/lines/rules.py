"""Printed rules: straight lines, and rows of typed dashes. They part columns and rows of tables."""

from dataclasses import dataclass

import cv2
import numpy as np

from vlmcli.documents.lines.ink import Grey
from vlmcli.documents.lines.marks import Ints, Marks, Mask, label
from vlmcli.documents.lines.pairs import chains, mutual_links, row_pairs

_DASHES = 8
"""Typed dashes in a row that make a rule."""
_DASH_LENGTH = 6.0
"""Letter sizes of ink from which fewer dashes make one, or a single: an em dash has two."""
_IN_WORD = 0.6
"""Letter sizes from a letter to the next one of its word, at most."""
_TO_CROSSING = 0.5
"""Letter sizes from a typed dash to the plus sign behind it, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A straight printed rule, as a box in frame pixels."""

    x0: float
    y0: float
    x1: float
    y1: float

    def moved(self, gain: float, right: float, down: float) -> "Rule":
        """The rule on a picture `gain` times as large, then moved by so many of its pixels."""
        return Rule(
            x0=self.x0 * gain + right,
            y0=self.y0 * gain + down,
            x1=self.x1 * gain + right,
            y1=self.y1 * gain + down,
        )


def without_rules(
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
    found = rules_of(marks.take(rule))
    return np.asarray(ink & (1 - cv2.dilate(chosen, rim)), np.uint8), found


def rules_of(marks: Marks) -> tuple[Rule, ...]:
    """The boxes of marks as rules."""
    boxes = zip(*(v.tolist() for v in (marks.x0, marks.y0, marks.x1, marks.y1)), strict=True)
    return tuple(Rule(x0=a, y0=b, x1=c, y1=d) for a, b, c, d in boxes)


def dashed_rules(letters: Marks, size: float) -> tuple[Mask, tuple[Rule, ...]]:
    """Rules made of typed dashes: which marks are part of one, and the rules."""
    dropped = np.zeros(len(letters), bool)
    flat = (letters.height <= 0.45 * size) & (letters.width >= 1.3 * letters.height)
    ids = np.flatnonzero(flat)
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
        x0, x1 = float(some.x0[run].min()), float(some.x1[run].max())
        inked = float(some.width[run].sum())
        if len(run) < _DASHES and inked < max(_DASH_LENGTH * size, 0.5 * (x1 - x0)):
            continue
        y0, y1 = float(some.y0[run].min()), float(some.y1[run].max())
        rules.append(Rule(x0=x0, y0=y0, x1=x1, y1=y1))
        on_rule = (middle >= y0 - 0.3 * size) & (middle <= y1 + 0.3 * size)
        on_rule &= (letters.x0 >= x0 - 1.5 * size) & (letters.x1 <= x1 + 1.5 * size)
        on_rule &= letters.height <= 1.2 * size
        dropped |= on_rule
        dropped[_ends_of_text(letters, np.flatnonzero(on_rule), (x0, x1), size)] = False
    return dropped, tuple(rules)


def _ends_of_text(letters: Marks, on_rule: Ints, ends: tuple[float, float], size: float) -> Ints:
    """Which marks beside a rule are what it leads from or to, as in contents: no crossing.

    A crossing follows close, and no letter stands beside it.
    """
    found = []
    for mark in on_rule.tolist():
        x0, x1 = float(letters.x0[mark]), float(letters.x1[mark])
        beside = (letters.y0 < letters.y1[mark]) & (letters.y1 > letters.y0[mark])
        beside &= letters.height > 0.45 * size
        if x1 <= ends[0]:
            gap = ends[0] - x1
            beside &= (letters.x0 < x0) & (letters.x1 >= x0 - _IN_WORD * size)
        elif x0 >= ends[1]:
            gap = x0 - ends[1]
            beside &= (letters.x1 > x1) & (letters.x0 <= x1 + _IN_WORD * size)
        else:
            continue
        if gap > _TO_CROSSING * size or beside.any():
            found.append(mark)
    return np.array(found, np.int64)
