"""Large print: a title so much larger than the text that a look at the text takes it for pictures.

Where ink that is too large for letters stands in a row like letters, the page is looked at again,
reduced until they have a usual letter's size. The same rules decide there what is print.
"""

import cv2
import numpy as np

from vlmcli.documents.lines.frame import View
from vlmcli.documents.lines.ink import THRESHOLD, Grey
from vlmcli.documents.lines.letters import PageMarks, page_marks
from vlmcli.documents.lines.looks import FEW, paint, rows_in
from vlmcli.documents.lines.marks import Marks
from vlmcli.documents.lines.pairs import overlap
from vlmcli.documents.lines.pieces import Piece, make_pieces

_SIZE = 30.0
"""Height to which large letters are reduced."""
_ALIKE = 1.35
"""Times by which capitals, or x-heights, of one title differ in height and foot at most."""
_APART = 1.0
"""Heights between the letters of a title."""
_LEAST_FILL, _MOST_FILL = 0.12, 0.95
"""Shares of its box that a letter covers; frames cover less, and bars more."""


def large_print(view: View, marks: PageMarks, pieces: list[Piece]) -> list[Piece]:
    """Text too large for a look, in pixels of the view.

    Args:
        view: of the whole page.
        marks: what it showed.
        pieces: the text that was found in it.
    """
    height = _title_height(marks.large)
    if not height:
        return []
    factor = height / _SIZE
    ink = (view.dark >= THRESHOLD).view(np.uint8)
    paint(ink, pieces, 0)
    size = (max(1, round(ink.shape[1] / factor)), max(1, round(ink.shape[0] / factor)))
    share = cv2.resize(ink * np.uint8(255), size, interpolation=cv2.INTER_AREA)
    seen = page_marks(_bold(np.asarray(share, np.uint8)))
    if not seen.size:
        return []
    rows, small = rows_in(seen)
    found = [piece for piece in make_pieces(rows, small, seen.size) if piece.letters >= FEW]
    return [piece.enlarged(factor) for piece in found if piece.size * factor >= 0.5 * height]


def _bold(share: Grey) -> Grey:
    """Where half of a pixel is ink."""
    return (share >= 128).astype(np.uint8)


def _title_height(marks: Marks) -> float:
    """The height of large marks that stand like letters of a word; 0 where none do."""
    height, width = marks.height, marks.width
    fill = marks.area / (width * height)
    shaped = (fill >= _LEAST_FILL) & (fill <= _MOST_FILL)
    shaped &= (width <= 2 * height) & (height <= 12 * width)
    some = marks.take(shaped)
    if len(some) < FEW:
        return 0.0
    height = some.height
    taller = np.maximum(height[:, None], height)
    alike = taller <= _ALIKE * np.minimum(height[:, None], height)
    alike &= np.abs(some.y1[:, None] - some.y1) <= (_ALIKE - 1) * taller
    gap = -overlap(some.x0[:, None], some.x1[:, None], some.x0, some.x1)
    beside = (alike & (gap <= _APART * taller) & (gap > -0.5 * taller)).sum(1) - 1
    # A letter inside a word has one on either side.
    inside = beside >= 2
    return float(np.median(height[inside])) if inside.any() else 0.0
