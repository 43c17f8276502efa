"""Find the text lines of a page picture by image analysis.

Reduce, binarise, turn and deskew; sort the ink into letters, rules and pictures; link letters to
rows; cut rows at column borders; look again for print that is much smaller or larger; order the
pieces for reading. About 0.2 CPU seconds for an A4 page. Handwriting, vertical scripts and strong
perspective are not handled.
"""

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.coarser import large_print
from vlmcli.documents.lines.finer import Finer, oriented_by_small_print, small_print
from vlmcli.documents.lines.frame import FEW_LETTERS, View, identity, turned
from vlmcli.documents.lines.ink import Grey, to_grey
from vlmcli.documents.lines.letters import PageMarks
from vlmcli.documents.lines.looks import FEW, marks_of, rows_in
from vlmcli.documents.lines.marks import no_marks
from vlmcli.documents.lines.order import Placed, reading_order
from vlmcli.documents.lines.pieces import Piece, make_pieces
from vlmcli.documents.lines.rows import Rows
from vlmcli.documents.lines.shapes import TextLine
from vlmcli.documents.lines.upside import is_upside_down
from vlmcli.documents.lines.views import COARSE, SMALL, oriented, reduced

_REDUCED = 1.15
"""Page pixels to one of a view from which a finer one shows more of its letters."""
_CLEAR = 6.0
"""Height of letters from which a coarse view shows all of a line."""
_PALE = 60
"""Contrast under which a page of lone marks has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A view, what it shows, and what finer looks add to that."""

    view: View
    marks: PageMarks
    rows: Rows
    pieces: list[Piece]
    finer: Finer


def find_lines(pixels: npt.NDArray[np.uint8]) -> tuple[TextLine, ...]:
    """Text lines of a page in reading order, in pixels of the picture.

    Args:
        pixels: uint8, (H, W) grey or (H, W, 3) RGB.

    Returns:
        Lines and table cells; none where the picture shows no text.
    """
    grey = to_grey(pixels)
    if min(grey.shape) < 8:
        return ()
    found = _found(grey, _upright(grey))
    is_turned = any(len(rows) and is_upside_down(rows) for rows in found.finer.rows)
    # Where there is nothing else, small print says that the page stands on its head.
    if is_turned and not len(found.rows):
        found = _found(grey, turned(found.view, 2))
    pieces = [*found.pieces, *found.finer.pieces]
    if all(piece.letters < FEW for piece in pieces) and _is_pale(grey):
        return ()
    height, width = grey.shape
    placed = reading_order(pieces, (*found.marks.horizontal, *found.finer.rules))
    return tuple(_on_page(one, found.view, width, height) for one in placed)


def lines_of_small_print(grey: Grey, ink: Grey) -> tuple[TextLine, ...]:
    """Lines of a page of which a copy shows only that there is some ink; takes little memory.

    Args:
        grey: (H, W), the page.
        ink: (h, w) of 0 and 1, where the copy shows ink.
    """
    height, width = grey.shape
    frame = identity(ink.shape[1], ink.shape[0], width / ink.shape[1])
    view = View(frame=frame, dark=ink * np.uint8(255), light=None)
    nothing = no_marks()
    view = oriented_by_small_print(grey, view, nothing, 0.0) or view
    marks = PageMarks(letters=nothing, horizontal=(), vertical=(), size=0.0, large=nothing)
    found = small_print(grey, view, marks, [])
    placed = reading_order(found.pieces, found.rules)
    return tuple(_on_page(one, view, width, height) for one in placed)


def _upright(grey: Grey) -> View:
    """The page reduced, turned and deskewed."""
    view, letters, size = reduced(grey)
    is_vague = size < SMALL and view.frame.scale > _REDUCED
    if len(letters) < FEW_LETTERS or is_vague:
        better = oriented_by_small_print(grey, view, letters, size)
        if better is not None:
            return better
    return oriented(view, letters, size)


def _found(grey: Grey, view: View) -> _Found:
    marks = marks_of(view)
    rows, small = rows_in(marks)
    if len(rows) and is_upside_down(rows, small):
        view = turned(view, 2)
        marks = marks_of(view)
        rows, small = rows_in(marks)
    pieces = make_pieces(rows, small, marks.size)
    if view.frame.scale >= COARSE:
        # Of letters that low some are seen and some are not; a finer look sees whole lines.
        pieces = [piece for piece in pieces if piece.size >= _CLEAR]
    pieces += large_print(view, marks, pieces)
    finer = small_print(grey, view, marks, pieces)
    return _Found(view=view, marks=marks, rows=rows, pieces=pieces, finer=finer)


def _is_pale(grey: Grey) -> bool:
    """Whether nothing on the page is much darker or lighter than most of it: stains, not print."""
    coarse = cv2.resize(grey, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    low, middle, high = np.percentile(coarse, (0.02, 50, 99.98))
    return bool(max(middle - low, high - middle) < _PALE)


def _on_page(placed: Placed, view: View, width: int, height: int) -> TextLine:
    piece, frame = placed.piece, view.frame
    x = np.linspace(piece.x0, piece.x1, 9)
    y = piece.base.at(x)
    ends = frame.to_page(np.array([[x[0], y[0]], [x[-1], y[-1]]]) - 0.5)
    outline = np.concatenate(
        (
            np.column_stack((x, y - piece.base.ascent)),
            np.column_stack((x, y + piece.base.descent)),
        )
    )
    corners = frame.to_page(outline - 0.5) + 0.5
    low, high = np.floor(corners.min(axis=0)), np.ceil(corners.max(axis=0))
    run = ends[1] - ends[0]
    sag = y[4] - (y[0] + y[-1]) / 2
    return TextLine(
        bbox=(
            int(np.clip(low[0], 0, width - 1)),
            int(np.clip(low[1], 0, height - 1)),
            int(np.clip(high[0], 1, width)),
            int(np.clip(high[1], 1, height)),
        ),
        start=(float(ends[0, 0]), float(ends[0, 1])),
        angle=float(np.degrees(np.arctan2(run[1], run[0]))),
        length=float(np.hypot(run[0], run[1])),
        ascent=piece.base.ascent * frame.scale,
        descent=piece.base.descent * frame.scale,
        size=piece.size * frame.scale,
        bow=float(sag) * frame.scale,
        inverted=piece.inverted != view.is_negative,
        glued=placed.glued,
        block=placed.block,
        row=placed.row,
        cell=placed.cell,
    )
