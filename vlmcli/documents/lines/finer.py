"""Small print: letters that vanish in a view of the whole page, or beside much larger ones.

The ink of the view that no line explains is looked at again, finer, in tiles, until letters that
are legible in the picture cannot have been lost. Ordinary pages have no such ink.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from vlmcli.documents.lines.frame import (
    FEW_LETTERS,
    View,
    deskewed,
    measure_skew,
    pieces_by_closing,
    runs_down,
    turned,
)
from vlmcli.documents.lines.ink import THRESHOLD, Grey
from vlmcli.documents.lines.letters import PageMarks
from vlmcli.documents.lines.looks import FEW, paint, rows_in
from vlmcli.documents.lines.marks import Floats, Marks, label, letter_size, median, no_marks
from vlmcli.documents.lines.pieces import Piece, make_pieces
from vlmcli.documents.lines.rows import Rows, find_phrases
from vlmcli.documents.lines.rules import Rule
from vlmcli.documents.lines.texture import is_regular, regular_share
from vlmcli.documents.lines.tiles import Ground, gathered, placement, tiles
from vlmcli.documents.lines.traces import traces_in_view
from vlmcli.documents.lines.views import COARSE, FINEST, GOOD, PRINT_SHARE, SMALL, letters_of

_LEGIBLE = 6.0
"""Page pixels: letters that are lower cannot be read."""
_LOWEST = 5.0
"""Page pixels: what is found no higher than this are dots and grain."""
_LEAST = 4.0
"""Pixels of a view: lower marks are no letters."""
_DWARF = 0.4
"""Height in usual letters of its look up to which a row is taken for dirt."""
_TALLEST = 2.2
"""Heights of a lost letter, with ascender and descender, in its x-heights."""
_ALIKE = 1.15
"""Heights of a lost letter up to which one is none that the view shows well."""
_NEAR = 4
"""Pixels of the view over which a word's bits are one."""
_WORD = 12
"""Pixels of the view: shorter ones of bits have no three letters."""
_MISSED = 1.5
"""Lost heights up to which letters are small print; larger ones were seen and taken for none."""
_SURE = 5
"""Letters of a row that stands among grains."""
_OUTVOTED = 3
"""Letters of small print to one of the view, from which they tell how the page is turned."""
_ENOUGH = 3000
"""Letters that tell how a page is turned."""
_LESS = 0.75
"""Share of what may have been lost before, from which another look finds nothing new."""
_LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finer:
    """What finer looks found, in pixels of the view of the whole page."""

    pieces: list[Piece]
    rules: tuple[Rule, ...]
    rows: tuple[Rows, ...]


def small_print(grey: Grey, view: View, marks: PageMarks, pieces: list[Piece]) -> Finer:
    """Text that is too small for a view.

    Args:
        grey: (H, W), the page.
        view: of the whole page.
        marks: what the view showed.
        pieces: the text that was found in it.
    """
    found = Finer(pieces=[], rules=(), rows=())
    whole = scale = view.frame.scale
    size, last, is_idle = marks.size, np.inf, False
    for _ in range(_LOOKS):
        lost = max(_LEAST, _DWARF * size) * scale
        finer = max(1.0, min(scale, lost / GOOD))
        if lost <= _LEGIBLE or lost > _LESS * last or (is_idle and finer > _LESS * scale):
            break
        ground = unexplained(grey, view, marks, [*pieces, *found.pieces], lost)
        if not len(ground.boxes):
            break
        known = len(found.pieces)
        scale, seen = _look(grey, ground, finer)
        grainy = is_grain(seen)
        limits = _LOWEST / whole, _MISSED * lost / whole if pieces else np.inf
        found = _added(found, seen, scale / whole, limits, grainy=grainy)
        if grainy:
            break
        # The same ink would be seen as before.
        is_idle = len(found.pieces) == known
        size, last = seen.size, lost
    return found


def _added(
    found: Finer, seen: PageMarks, gain: float, limits: tuple[float, float], *, grainy: bool
) -> Finer:
    """What was found, and in another look, whose pixels are `gain` of the view's.

    Letter sizes lie within `limits`, in pixels of the view; `grainy`: see `is_grain`.
    """
    if not seen.size:
        return found
    rows, small = rows_in(seen)
    # Where text was found already, odd grains in a row are likelier than more of it.
    regular = np.array([is_regular(rows.marks, some) for some in rows.members], bool)
    if grainy:
        # Nor do grains of a photograph belong to the print on it.
        regular &= np.array([len(some) >= _SURE for some in rows.members], bool)
        small = small[:0]
    rows = rows.take(np.flatnonzero(regular))
    pieces = [one.enlarged(gain) for one in make_pieces(rows, small, seen.size)]
    low, high = limits
    pieces = [one for one in pieces if one.letters >= FEW and low <= one.size <= high]
    rules = tuple(rule.moved(gain, 0, 0) for rule in seen.horizontal) if pieces else ()
    return Finer(pieces=found.pieces + pieces, rules=found.rules + rules, rows=(*found.rows, rows))


def _look(grey: Grey, ground: Ground, scale: float) -> tuple[float, PageMarks]:
    """The marks of the tiles, and the scale at which they were seen: enlarged where too low."""
    seen = gathered(tiles(grey, ground, scale), ground.view, scale)
    is_low = _LOWEST / scale <= seen.size < SMALL
    if not is_low or scale <= FINEST or is_grain(seen):
        return scale, seen
    scale = max(FINEST, scale * seen.size / GOOD)
    return scale, gathered(tiles(grey, ground, scale), ground.view, scale)


def is_grain(seen: PageMarks) -> bool:
    """Whether most marks of a look are the texture of a photograph, or dust."""
    if not seen.size:
        return False
    return regular_share(find_phrases(seen.letters, seen.size)[0]) < PRINT_SHARE


def unexplained(
    grey: Grey, view: View, marks: PageMarks, pieces: list[Piece], lost: float
) -> Ground:
    """Where a view shows ink that may be small print.

    Args:
        grey: (H, W), the page.
        view: of the whole page.
        marks: what it showed.
        pieces: text found so far.
        lost: height in page pixels up to which letters may have been overlooked.
    """
    ink = (view.dark >= THRESHOLD).view(np.uint8)
    if view.light is not None:
        ink |= (view.light >= THRESHOLD).view(np.uint8)
    explained = np.zeros_like(ink)
    paint(explained, pieces, 1)
    if view.frame.scale >= COARSE:
        # What looks like a rule there may be a row of words.
        ink |= traces_in_view(grey, view)
    else:
        for rule in (*marks.horizontal, *marks.vertical):
            corner = int(rule.x0) - 2, int(rule.y0) - 2
            cv2.rectangle(explained, corner, (int(rule.x1) + 2, int(rule.y1) + 2), 1, -1)
    ink &= ~explained & 1
    boxes = word_boxes(ink)
    if len(boxes) and view.frame.scale < COARSE:
        limits = _LOWEST / view.frame.scale, _TALLEST * lost / view.frame.scale
        _drop_others(ink, explained, boxes, limits)
        boxes = word_boxes(ink)
    return Ground(view=view, boxes=boxes, explained=explained)


def _drop_others(ink: Grey, explained: Grey, boxes: Floats, limits: tuple[float, float]) -> None:
    """Explain marks that are too tall for small print, and what has too few of the right height.

    Args:
        ink, explained: masks; changed.
        boxes: of what may be words, upright or on their side.
        limits: heights of letters.
    """
    low, high = limits
    for x0, y0, x1, y1 in boxes.astype(int).tolist():
        bits, labels = label(np.ascontiguousarray(ink[y0:y1, x0:x1]))
        across, along = np.minimum(bits.height, bits.width), np.maximum(bits.height, bits.width)
        tall = (across > high) | (bits.height > 4 * high)
        letters = ~tall & (along >= low)
        # Letters that touch count by their length. Most are letters that could not be seen.
        several = float((along[letters] / high).clip(1).sum()) >= FEW
        several = several and median(across[letters]) <= high / _TALLEST * _ALIKE
        others = tall if several else np.ones_like(tall)
        large = np.concatenate(([False], others))[labels]
        explained[y0:y1, x0:x1] |= large.view(np.uint8)
        ink[y0:y1, x0:x1] &= ~large


def word_boxes(ink: Grey) -> Floats:
    """Boxes of bits that together are long enough for a word; measured in cells, which is quick."""
    size = (-(-ink.shape[1] // _NEAR), -(-ink.shape[0] // _NEAR))
    padded = cv2.copyMakeBorder(
        ink, 0, size[1] * _NEAR - len(ink), 0, size[0] * _NEAR - ink.shape[1], cv2.BORDER_CONSTANT
    )
    share = cv2.resize(padded * np.uint8(255), size, interpolation=cv2.INTER_AREA)
    near, labels = label(cv2.dilate((share > 0).view(np.uint8), np.ones((3, 3), np.uint8)))
    inked = np.bincount(labels.ravel(), share.ravel(), len(near) + 1)[1:] * (_NEAR**2 / 255)
    long = _NEAR * (np.maximum(near.width, near.height) - 2) >= _WORD
    chosen = near.take(long & (inked >= 2 * _WORD))
    edges = np.column_stack((chosen.x0, chosen.y0, chosen.x1, chosen.y1)) * _NEAR
    return np.minimum(edges, (ink.shape[1], ink.shape[0]) * 2)


def oriented_by_small_print(grey: Grey, view: View, marks: Marks, size: float) -> View | None:
    """A level view of a page turned and deskewed by its small print; None where there is little.

    Args:
        grey: (H, W), the page.
        view: of the whole page as it stands.
        marks: the letters that it shows.
        size: their height.
    """
    lost = max(_LEAST, _DWARF * size) * view.frame.scale
    if lost <= _LEGIBLE:
        return None
    nothing = PageMarks(letters=marks, horizontal=(), vertical=(), size=size, large=marks)
    ground = unexplained(grey, view, nothing, [], lost)
    scale = max(1.0, lost / GOOD)
    counts = np.zeros(2, np.int64)
    small = no_marks()
    for tile in tiles(grey, ground, scale):
        letters, own = letters_of(tile.view.dark)
        if own:
            counts += pieces_by_closing(tile.view.dark, own)
            small = small.joined(letters.moved(*placement(tile)))
        if len(small) > _ENOUGH:
            break
    if len(small) < max(FEW_LETTERS, _OUTVOTED * len(marks)):
        return None
    if runs_down(counts):
        view, small = turned(view, 1), small.turned(view.frame.width)
    size = letter_size(small)
    if not size or regular_share(find_phrases(small, size)[0]) < PRINT_SHARE:
        return None
    return deskewed(view, measure_skew(small, size))
