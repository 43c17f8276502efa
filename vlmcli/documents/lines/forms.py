"""What forms are drawn with and nobody reads: empty boxes to tick, and slivers of cut rules.

A box parts what stands before and behind it, as an upright rule does. A ticked box has ink inside
and stays a mark, since the tick says something. Circles stay: an O looks like one.
"""

import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.marks import Ints, Marks, Mask
from vlmcli.documents.lines.rules import Rule

_LEAST, _MOST = 0.85, 3.0
"""Heights of a box in letter sizes."""
_SLACK = 1.5
"""Pixels by which a sliver may stick out of its rule."""
_CROSSING = 0.5
"""Letter sizes beyond the end of an upright rule: it was cut where a level one crosses it."""


def tick_boxes(marks: Marks, ids: Ints, labels: npt.NDArray[np.int32], size: float) -> Mask:
    """Which marks are the outline of a square and nothing else.

    Args:
        marks: (N,) marks of a page.
        ids: (N,) the label of each in the label picture.
        labels: int32 (H, W).
        size: the commonest letter height in pixels.
    """
    width, height = marks.width, marks.height
    found = (height >= max(8.0, _LEAST * size)) & (height <= _MOST * size)
    found &= (np.abs(width - height) <= 0.2 * height) & (marks.area <= 0.6 * width * height)
    for mark in np.flatnonzero(found).tolist():
        x0, y0 = int(marks.x0[mark]), int(marks.y0[mark])
        x1, y1 = int(marks.x1[mark]), int(marks.y1[mark])
        found[mark] = _is_outline(labels[y0:y1, x0:x1] == ids[mark])
    return found


def _is_outline(ink: Mask) -> bool:
    """Whether ink (h, w) covers all four sides up to the corners, and nothing inside."""
    rim = max(1, round(0.12 * min(ink.shape)))
    sides = (ink[:rim].any(0), ink[-rim:].any(0), ink[:, :rim].any(1), ink[:, -rim:].any(1))
    inside = ink[2 * rim : -2 * rim, 2 * rim : -2 * rim]
    return all(side.mean() >= 0.95 for side in sides) and float(inside.mean()) <= 0.05


def on_upright_rules(marks: Marks, rules: tuple[Rule, ...], size: float) -> Mask:
    """Which marks lie on an upright rule: what is left of it where a level rule crosses."""
    found = np.zeros(len(marks), bool)
    for rule in rules:
        inside = (marks.x0 >= rule.x0 - _SLACK) & (marks.x1 <= rule.x1 + _SLACK)
        inside &= (marks.y0 <= rule.y1 + _CROSSING * size) & (marks.height <= size)
        found |= inside & (marks.y1 >= rule.y0 - _CROSSING * size)
    return found
