"""Upside down or not: tails and full stops.

Latin letters rise above the x-height three times as often as they hang below the baseline; full
stops stand on the baseline, in tables and receipts too, of which capitals and figures tell nothing.
Other scripts tell little, and nothing is turned.
"""

import numpy as np

from vlmcli.documents.lines.baseline import Baseline, fit_baseline
from vlmcli.documents.lines.marks import Ints
from vlmcli.documents.lines.rows import Rows

_ROWS = 40
_LETTERS = 8
"""Fewest letters of a row that count."""
_VOTES = 60
"""Fewest letters with tails that decide: three lines on typing and paging have 42 below, none
above."""
_RATIO = 2.05
"""How many times more tails below than above: 2.1 to 8 on turned pages; on others 0.7 at most, but
1.9 on a small picture of a screen."""
_STOPS = 4
"""Fewest stops at the top of the letters that decide together with tails, ..."""
_STOP_RATIO, _TAIL_RATIO, _FEW_VOTES = 1.4, 1.5, 8
"""... how many times more there are than on the baseline, and tails below than above, and how many
below."""
_SURE_STOPS, _SURE_RATIO = 5, 4.0
"""The same for stops that decide alone; of 37 upright pages two have more above than below,
3 for 2 and 2 for 0."""
_FEW_LETTERS = 3
"""Fewest letters of a row beside which stops count."""
_ROUND, _FULL, _DOT, _OFF, _BESIDE = 1.35, 0.6, 0.3, 0.12, 0.8
"""Length by width of a stop, share of its box that is ink; in letter sizes its height, how far it
may be off the line, and how far beside the row."""


def is_upside_down(rows: Rows, small: Ints | None = None) -> bool:
    """Whether rows of a level page stand on their heads.

    Args:
        rows: of letters.
        small: marks of theirs that are too small for letters.
    """
    fitted = _fitted(rows)
    above, below = _tails(rows, fitted)
    if below >= _VOTES and below >= _RATIO * above:
        return True
    high, low = _stops(rows, fitted, small) if small is not None else (0, 0)
    if high >= _SURE_STOPS and high >= _SURE_RATIO * low:
        return True
    agree = below >= max(_FEW_VOTES, _TAIL_RATIO * above)
    return agree and high >= max(_STOPS, _STOP_RATIO * low)


def _fitted(rows: Rows) -> list[tuple[int, Baseline]]:
    """The rows beside which stops count and their baselines, the longest first."""
    longest = sorted(range(len(rows)), key=lambda row: -len(rows.members[row]))
    return [
        (row, fit_baseline(rows.marks, rows.members[row], float(rows.size[row])))
        for row in longest
        if len(rows.members[row]) >= _FEW_LETTERS
    ]


def _tails(rows: Rows, fitted: list[tuple[int, Baseline]]) -> tuple[int, int]:
    """Letters that rise above the others of the longest rows, and those that hang below."""
    marks = rows.marks
    above = below = 0
    for row, base in fitted[:_ROWS]:
        members, size = rows.members[row], float(rows.size[row])
        if len(members) < _LETTERS:
            break
        line = base.at((marks.x0[members] + marks.x1[members]) / 2)
        single = marks.height[members] < 2.4 * size
        above += int(np.count_nonzero(single & (line - marks.y0[members] > 1.25 * size)))
        below += int(np.count_nonzero(single & (marks.y1[members] - line > 0.2 * size)))
    return above, below


def _stops(rows: Rows, fitted: list[tuple[int, Baseline]], small: Ints) -> tuple[int, int]:
    """Full stops that hang from the top of the lower letters, and those that stand on the line."""
    marks = rows.marks
    dots = marks.take(small)
    longest, shortest = np.maximum(dots.height, dots.width), np.minimum(dots.height, dots.width)
    # Unlike a full stop, the sign of degrees is hollow.
    is_full = dots.area >= _FULL * dots.width * dots.height
    dots = dots.take(is_full & (longest <= _ROUND * shortest))
    x = (dots.x0 + dots.x1) / 2
    high = low = 0
    for row, base in fitted:
        members, size = rows.members[row], float(rows.size[row])
        ends = rows.x0[row] - _BESIDE * size, rows.x1[row] + _BESIDE * size
        near = np.flatnonzero((x > ends[0]) & (x < ends[1]) & (dots.height <= _DOT * size))
        if not near.size:
            continue
        # The dot of an i has its letter below it.
        over = (x[near, None] > marks.x0[members]) & (x[near, None] < marks.x1[members])
        near = near[~over.any(axis=1)]
        line = base.at(x[near])
        low += int(np.count_nonzero(np.abs(line - dots.y1[near]) <= _OFF * size))
        high += int(np.count_nonzero(np.abs(line - dots.y0[near] - size) <= _OFF * size))
    return high, low
