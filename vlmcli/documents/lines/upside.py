"""Upside down or not: Latin letters rise above the x-height three times as often as they hang
below the baseline. Capitals, figures and most other scripts tell nothing, and nothing is turned.
"""

import numpy as np

from vlmcli.documents.lines.baseline import fit_baseline
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


def is_upside_down(rows: Rows) -> bool:
    """Whether rows of a level page stand on their heads."""
    marks = rows.marks
    above = below = 0
    longest = sorted(range(len(rows)), key=lambda row: -len(rows.members[row]))[:_ROWS]
    for row in longest:
        members, size = rows.members[row], float(rows.size[row])
        if len(members) < _LETTERS:
            break
        line = fit_baseline(marks, members, size).at((marks.x0[members] + marks.x1[members]) / 2)
        single = marks.height[members] < 2.4 * size
        above += int(np.count_nonzero(single & (line - marks.y0[members] > 1.25 * size)))
        below += int(np.count_nonzero(single & (marks.y1[members] - line > 0.2 * size)))
    return below >= _VOTES and below >= _RATIO * above
