"""Gutters: white lanes between columns, seen as gaps that stand above each other in many rows.

A gap between two words may be as wide as a narrow gutter; only the stack tells them apart. Wider
gaps need fewer rows. Lanes may lean a little. A lane ends where print crosses it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vlmcli.documents.lines.marks import Floats, Ints, Mask
from vlmcli.documents.lines.rows import Rows
from vlmcli.documents.lines.rules import Rule

_RUNGS = ((2, 3.4), (3, 2.6), (4, 1.9), (6, 1.6), (9, 1.35))
"""Least lane width, in letter sizes, for a lane through so many rows."""
_NARROWEST = _RUNGS[-1][1]
_FARTHEST = 14.0
"""Letter sizes from one gap down to the next in its lane: about five lines without a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gaps:
    """Gaps between neighbouring phrases, sorted from top to bottom."""

    x0: Floats
    x1: Floats
    y0: Floats
    y1: Floats
    size: Floats
    """Letter size around the gap, at least the page's."""
    pair: Ints
    """Which pair of phrases stands around it."""


def gutter_pairs(phrases: Rows, i: Ints, j: Ints, size: float, upright: Sequence[Rule]) -> Mask:
    """Which pairs of neighbouring phrases have a gutter or an upright rule between them.

    Args:
        phrases: the phrases of a page.
        i, j: (P,) pairs from `neighbours`.
        size: the page's commonest letter height in pixels.
        upright: upright rules.

    Returns:
        (P,) mask.
    """
    gaps = _gaps(phrases, i, j, size)
    split = _ruled(phrases, i, j, upright)
    used = np.zeros(len(gaps.pair), bool)
    for start in range(len(gaps.pair)):
        if used[start]:
            continue
        lane, width = _lane_from(start, gaps, phrases)
        if _is_gutter(len(lane), width / float(np.median(gaps.size[lane]))):
            used[lane] = True
            split[gaps.pair[lane]] = True
    return split


def _ruled(phrases: Rows, i: Ints, j: Ints, upright: Sequence[Rule]) -> Mask:
    """Pairs parted by an upright rule."""
    parted = np.zeros(len(i), bool)
    left, right = phrases.x1[i], phrases.x0[j]
    middle = (phrases.right[i].mean(axis=1) + phrases.left[j].mean(axis=1)) / 2
    for rule in upright:
        x = (rule.x0 + rule.x1) / 2
        parted |= (left <= x) & (x <= right) & (rule.y0 <= middle) & (middle <= rule.y1)
    return parted


def _gaps(phrases: Rows, i: Ints, j: Ints, size: float) -> _Gaps:
    x0, x1 = phrases.x1[i], phrases.x0[j]
    y0 = np.maximum(phrases.right[i, 0], phrases.left[j, 0])
    y1 = np.minimum(phrases.right[i, 1], phrases.left[j, 1])
    # Small type beside a heading must not make the heading's word gaps look like gutters.
    scale = np.maximum(np.maximum(phrases.size[i], phrases.size[j]), size)
    wide = np.flatnonzero(x1 - x0 >= _NARROWEST * scale)
    order = wide[np.argsort(y0[wide], kind="stable")]
    return _Gaps(
        x0=x0[order], x1=x1[order], y0=y0[order], y1=y1[order], size=scale[order], pair=order
    )


def _lane_from(start: int, gaps: _Gaps, phrases: Rows) -> tuple[list[int], float]:
    """The longest lane down from a gap, and its width in pixels."""
    lane = [start]
    left, right = gaps.x0[start], gaps.x1[start]
    last, scale = start, gaps.size[start]
    while True:
        common = np.minimum(right, gaps.x1) - np.maximum(left, gaps.x0)
        below = gaps.y0 - gaps.y1[last]
        fits = (common >= _NARROWEST * scale) & (below > -0.3 * scale)
        fits &= below < _FARTHEST * scale
        fits[: last + 1] = False
        following = np.flatnonzero(fits)
        if not following.size:
            break
        following_one = int(following[0])
        new_left = max(left, gaps.x0[following_one])
        new_right = min(right, gaps.x1[following_one])
        if _crossed(phrases, new_left, new_right, gaps.y1[last], gaps.y0[following_one]):
            break
        if len(lane) >= _RUNGS[2][0] and new_right - new_left < 0.6 * (right - left):
            break
        left, right, last = new_left, new_right, following_one
        lane.append(following_one)
    return lane, float(right - left)


def _crossed(phrases: Rows, left: float, right: float, top: float, bottom: float) -> bool:
    """Whether print stands in the lane between two of its gaps."""
    inset = 0.1 * (right - left)
    middle = (phrases.top + phrases.bottom) / 2
    hit = (phrases.x0 < right - inset) & (phrases.x1 > left + inset)
    hit &= (middle > top) & (middle < bottom)
    return bool(hit.any())


def _is_gutter(rows: int, width: float) -> bool:
    return any(rows >= least and width >= narrowest for least, narrowest in _RUNGS)
