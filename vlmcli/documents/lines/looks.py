"""One look at a view: its marks, the rows that they stand in, and the pieces of text."""

import cv2
import numpy as np

from vlmcli.documents.lines.frame import View
from vlmcli.documents.lines.gutters import gutter_pairs
from vlmcli.documents.lines.ink import THRESHOLD, Grey
from vlmcli.documents.lines.letters import PageMarks, page_marks
from vlmcli.documents.lines.marks import Ints
from vlmcli.documents.lines.pieces import Piece
from vlmcli.documents.lines.rows import Rows, find_phrases, join_phrases, neighbours
from vlmcli.documents.lines.texture import is_texture, regular_share
from vlmcli.documents.lines.views import PRINT_SHARE

FEW = 3
"""Letters of a row from which a page has print beyond doubt."""


def marks_of(view: View) -> PageMarks:
    """Letters and rules of a level view."""
    return page_marks((view.dark >= THRESHOLD).astype(np.uint8), view.light)


def rows_in(marks: PageMarks) -> tuple[Rows, Ints]:
    """Rows of letters, and the small marks that belong to none yet."""
    phrases, small = find_phrases(marks.letters, marks.size)
    if not len(phrases):
        return phrases, small
    grains = is_texture(phrases, marks.size)
    if grains.any():
        if regular_share(phrases) < PRINT_SHARE:
            # On a photograph the odd grain outside the patches is no letter either.
            grains |= np.array([len(members) < FEW for members in phrases.members])
        phrases = phrases.take(np.flatnonzero(~grains))
    if not len(phrases):
        return phrases, small
    i, j = neighbours(phrases)
    blocked = gutter_pairs(phrases, i, j, marks.size, marks.vertical)
    return join_phrases(phrases, blocked, i, j), small


def paint(picture: Grey, pieces: list[Piece], value: int) -> None:
    """Fill the places of pieces, half a letter more on either side."""
    for piece in pieces:
        x = np.linspace(piece.x0 - piece.size / 2, piece.x1 + piece.size / 2, 5)
        y = piece.base.at(x)
        above = np.column_stack((x, y - piece.base.ascent - piece.size / 2))
        below = np.column_stack((x, y + piece.base.descent + piece.size / 2))[::-1]
        outline = np.rint(np.concatenate((above, below))).astype(np.int32)
        cv2.fillPoly(picture, [outline], value)
