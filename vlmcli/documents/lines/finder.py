"""Find the text lines of a page picture by image analysis.

Reduce, binarise, turn and deskew; sort the ink into letters, rules and pictures; link letters to
rows; cut rows at column borders; order the pieces for reading. About 0.2 CPU seconds for an A4
page. Handwriting, vertical scripts and strong perspective are not handled.
"""

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.frame import (
    View,
    deskewed,
    identity,
    is_sideways,
    measure_skew,
    turned,
)
from vlmcli.documents.lines.gutters import gutter_pairs
from vlmcli.documents.lines.ink import (
    THRESHOLD,
    Grey,
    denoised,
    ink_strength,
    light_strength,
    to_grey,
)
from vlmcli.documents.lines.letters import PageMarks, page_marks
from vlmcli.documents.lines.marks import Ints, Marks, label, letter_size
from vlmcli.documents.lines.order import Placed, reading_order
from vlmcli.documents.lines.pieces import make_pieces
from vlmcli.documents.lines.rows import Rows, find_phrases, join_phrases, neighbours
from vlmcli.documents.lines.shapes import TextLine
from vlmcli.documents.lines.texture import is_texture, regular_share
from vlmcli.documents.lines.upside import is_upside_down

_PIXELS = 2.2e6
"""Pixels of the reduced page: A4 at 150 dpi."""
_MOST_PIXELS = 9e6
_SMALL, _GOOD, _LARGE = 8.5, 12.0, 60.0
"""Letter heights in reduced pixels: too small to tell lines apart, enough, and wasteful."""


_PRINT_SHARE = 0.3
"""Share of letters in regular phrases from which small marks are small print, worth enlarging."""
_FEW = 3
"""Letters of a row from which a page has print beyond doubt."""
_PALE = 60
"""Contrast under which a page of lone marks has none."""


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
    view = _upright(grey)
    marks = _page_marks(view)
    rows, small = _rows(marks)
    if len(rows) and is_upside_down(rows):
        view = turned(view, 2)
        marks = _page_marks(view)
        rows, small = _rows(marks)
    pieces = make_pieces(rows, small, marks.size)
    if all(piece.letters < _FEW for piece in pieces) and _is_pale(grey):
        return ()
    height, width = grey.shape
    placed = reading_order(pieces, marks.horizontal)
    return tuple(_on_page(one, view, width, height) for one in placed)


def _is_pale(grey: Grey) -> bool:
    """Whether nothing on the page is much darker or lighter than most of it: stains, not print."""
    coarse = cv2.resize(grey, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    low, middle, high = np.percentile(coarse, (0.02, 50, 99.98))
    return bool(max(middle - low, high - middle) < _PALE)


def _page_marks(view: View) -> PageMarks:
    return page_marks((view.dark >= THRESHOLD).astype(np.uint8), view.light)


def _rows(marks: PageMarks) -> tuple[Rows, Ints]:
    """Rows of letters, and the small marks that belong to none yet."""
    phrases, small = find_phrases(marks.letters, marks.size)
    if not len(phrases):
        return phrases, small
    grains = is_texture(phrases, marks.size)
    if grains.any():
        if regular_share(phrases) < _PRINT_SHARE:
            # On a photograph the odd grain outside the patches is no letter either.
            grains |= np.array([len(members) < _FEW for members in phrases.members])
        phrases = phrases.take(np.flatnonzero(~grains))
    if not len(phrases):
        return phrases, small
    i, j = neighbours(phrases)
    blocked = gutter_pairs(phrases, i, j, marks.size, marks.vertical)
    return join_phrases(phrases, blocked, i, j), small


def _upright(grey: Grey) -> View:
    """The page reduced, turned and deskewed."""
    view, marks, size = _reduced(grey)
    if is_sideways(view.dark, marks, size):
        view = turned(view, 1)
        marks, size = _letters(view.dark)
    return deskewed(view, measure_skew(marks, size))


def _reduced(grey: Grey) -> tuple[View, Marks, float]:
    """The page at a scale that suits its letters, its letters and their size."""
    height, width = grey.shape
    scale = max(1.0, (height * width / _PIXELS) ** 0.5)
    view, marks, size = _scaled(grey, scale)
    if not size or _SMALL <= size <= _LARGE:
        return view, marks, size
    if size < _SMALL and regular_share(find_phrases(marks, size)[0]) < _PRINT_SHARE:
        return view, marks, size
    finest = max(0.5, (height * width / _MOST_PIXELS) ** 0.5)
    better = max(finest, scale * size / (_GOOD if size < _SMALL else _LARGE / 2))
    return (view, marks, size) if abs(better / scale - 1) < 0.15 else _scaled(grey, better)


def _scaled(grey: Grey, scale: float) -> tuple[View, Marks, float]:
    height, width = grey.shape
    new_width, new_height = max(8, round(width / scale)), max(8, round(height / scale))
    grey, floor = denoised(grey) if scale <= 1 else (grey, 0.0)
    if (new_width, new_height) != (width, height):
        how = cv2.INTER_AREA if scale > 1 else cv2.INTER_CUBIC
        grey = np.asarray(cv2.resize(grey, (new_width, new_height), interpolation=how), np.uint8)
    if scale > 1:
        grey, floor = denoised(grey)
    frame = identity(new_width, new_height, width / new_width)
    dark = ink_strength(grey, floor)
    marks, size = _letters(dark)
    if _is_mostly_dark(grey):
        negative = np.asarray(255 - grey, np.uint8)
        other = ink_strength(negative, floor)
        other_marks, other_size = _letters(other)
        if len(other_marks) > len(marks):
            view = View(frame=frame, dark=other, light=light_strength(negative), is_negative=True)
            return view, other_marks, other_size
    return View(frame=frame, dark=dark, light=light_strength(grey)), marks, size


def _is_mostly_dark(grey: Grey) -> bool:
    """Whether the page may be light on dark as a whole."""
    return float(np.median(grey[::4, ::4])) < 128


def _letters(strength: Grey) -> tuple[Marks, float]:
    """Marks shaped like letters, and the commonest height."""
    marks, _ = label((strength >= THRESHOLD).astype(np.uint8))
    size = letter_size(marks)
    height, width = marks.height, marks.width
    shaped = (height >= 0.5 * size) & (height <= 2.5 * size) & (width <= 3 * height)
    return marks.take(shaped), size


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
