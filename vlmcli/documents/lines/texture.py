"""Texture: parts of photographs whose marks have the size of letters but stand like grains.

Print comes in phrases of letters of like height on a common foot line; among grains such phrases
are rare. Only dense patches without them are dropped, so that sparse tables stay.
"""

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.marks import Floats, Ints, Marks, Mask, median
from vlmcli.documents.lines.rows import Rows

_CELL = 12.0
"""Letter sizes a side of the cells in which marks are counted."""
_CELLS = 4
"""Cells a side of a patch."""
_DENSE = 60
"""Marks in a patch from which it may be texture; a patch of print holds up to 800."""
_SHARE = 0.3
"""Share of marks in regular phrases below which a dense patch is texture; print has over 0.6."""
_HANGING = 4
"""Letters of which the tops are compared; of three grains, two are level too often."""
_LEVEL = 0.1
"""Median distance of tops, in letter heights, up to which letters hang from one line."""


def regular_share(phrases: Rows) -> float:
    """Share of the letters that stand in regular phrases; 0 where there are none."""
    regular = sum(len(m) for m in phrases.members if is_regular(phrases.marks, m))
    return regular / max(1, sum(len(members) for members in phrases.members))


def is_texture(phrases: Rows, size: float) -> Mask:
    """Which phrases lie in texture.

    Args:
        phrases: the phrases of a page.
        size: the page's commonest letter height in pixels.
    """
    marks = phrases.marks
    counts = np.array([len(chosen) for chosen in phrases.members])
    if counts.sum() < _DENSE:
        return np.zeros(len(phrases), bool)
    regular = np.array([is_regular(marks, chosen) for chosen in phrases.members])
    column = ((phrases.x0 + phrases.x1) / (2 * _CELL * size)).astype(np.int64)
    line = ((phrases.top + phrases.bottom) / (2 * _CELL * size)).astype(np.int64)
    column, line = np.maximum(column, 0), np.maximum(line, 0)
    shape = (int(line.max()) + 1, int(column.max()) + 1)
    total = _patches(shape, line, column, counts)
    in_phrases = _patches(shape, line, column, np.where(regular, counts, 0))
    grainy = (total >= _DENSE) & (in_phrases < _SHARE * total)
    return np.asarray(grainy[line, column] & ~(regular & (counts >= 5)))


def _patches(
    shape: tuple[int, int], line: Ints, column: Ints, counts: Ints
) -> npt.NDArray[np.float32]:
    """Sums of counts over the patch around each cell."""
    cells = np.zeros(shape, np.float32)
    np.add.at(cells, (line, column), counts)
    patch = (_CELLS, _CELLS)
    return np.asarray(
        cv2.boxFilter(cells, -1, patch, normalize=False, borderType=cv2.BORDER_CONSTANT)
    )


def is_regular(marks: Marks, members: Ints) -> bool:
    """Whether letters are of like height and stand on one line, or hang from one.

    Where every other letter has a tail, neither heights nor feet agree, but the tops of letters
    without ascenders do, to a pixel.
    """
    if len(members) < 2:
        return False
    height, feet, tops = marks.height[members], marks.y1[members], marks.y0[members]
    own = median(height)
    closeness = 0.15 if len(members) == 2 else 0.25
    stands = median(np.abs(height - own)) <= closeness * own and _spread(feet) <= closeness * own
    return bool(stands or (len(members) >= _HANGING and _spread(tops) <= _LEVEL * own))


def _spread(values: Floats) -> float:
    """Median distance from the median."""
    return median(np.abs(values - median(values)))
