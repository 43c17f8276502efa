"""Tiles: parts of a page seen finer than the page, for ink that is too small in the page's view.

All marks of all tiles are gathered in one measure before rows are looked for, so that no line is
cut at a border and memory stays that of one tile, however large the page.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.frame import View, deskewed, turned
from vlmcli.documents.lines.ink import Grey
from vlmcli.documents.lines.letters import PageMarks
from vlmcli.documents.lines.looks import marks_of
from vlmcli.documents.lines.marks import Floats, Marks, letter_size, no_marks
from vlmcli.documents.lines.rules import Rule
from vlmcli.documents.lines.views import scaled

_SIDE = 700
"""Pixels of a tile, a side: with its margin less than the view of a page has."""
_MARGIN = 64
"""Pixels around a tile that show letters on its border whole, and the paper around them."""

_Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where in a view small print may be."""

    view: View
    boxes: Floats
    """(N, 4): x0, y0, x1, y1 in pixels of the view."""
    explained: Grey
    """(H, W), 0 where ink is to be looked at and 1 where it is not: found lines, pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A part of the page, turned like its whole view."""

    view: View
    to_whole: _Matrix
    """(2, 3), from pixels of the tile to pixels of the whole view."""
    core: tuple[float, float, float, float]
    """What no other tile shows but as its margin, in pixels of the whole view."""


def tiles(grey: Grey, ground: Ground, scale: float) -> Iterator[Tile]:
    """Tiles over all boxes, `scale` page pixels to one of theirs, without explained ink."""
    side = _SIDE * scale / ground.view.frame.scale
    margin = _MARGIN * scale / ground.view.frame.scale
    for core in _cores(ground.boxes, side):
        tile = _tile(grey, ground.view, core, margin, scale)
        if tile is not None:
            yield _without(tile, ground.explained)


def _cores(boxes: Floats, side: float) -> Iterator[tuple[float, float, float, float]]:
    """For each cell of a grid the part that the boxes reach."""
    if not len(boxes):
        return
    first, last = np.floor(boxes[:, :2].min(0) / side), np.ceil(boxes[:, 2:].max(0) / side)
    for y in np.arange(first[1], last[1]) * side:
        for x in np.arange(first[0], last[0]) * side:
            low = np.maximum(boxes[:, :2], (x, y))
            high = np.minimum(boxes[:, 2:], (x + side, y + side))
            inside = (low < high).all(1)
            if inside.any():
                x0, y0 = low[inside].min(0)
                x1, y1 = high[inside].max(0)
                yield float(x0), float(y0), float(x1), float(y1)


def _tile(
    grey: Grey, view: View, core: tuple[float, float, float, float], margin: float, scale: float
) -> Tile | None:
    x0, y0, x1, y1 = core
    x, y = (x0 - margin, x1 + margin), (y0 - margin, y1 + margin)
    corners = view.frame.to_page(np.array([(a, b) for a in x for b in y]) - 0.5) + 0.5
    low = np.clip(np.floor(corners.min(0)), 0, grey.shape[::-1]).astype(int)
    high = np.clip(np.ceil(corners.max(0)), 0, grey.shape[::-1]).astype(int)
    if (high - low < 8).any():
        return None
    part, _, _ = scaled(np.ascontiguousarray(grey[low[1] : high[1], low[0] : high[0]]), scale)
    moved = part.frame.matrix + np.array([[0, 0, low[0]], [0, 0, low[1]]])
    part = replace(part, frame=replace(part.frame, matrix=moved))
    part = deskewed(turned(part, view.turn) if view.turn else part, view.skew)
    whole, own = np.eye(3), np.eye(3)
    whole[:2], own[:2] = view.frame.matrix, part.frame.matrix
    return Tile(view=part, to_whole=(np.linalg.inv(whole) @ own)[:2], core=core)


def _without(tile: Tile, explained: Grey) -> Tile:
    """The tile without the ink that is explained."""
    view = tile.view
    mask = cv2.warpAffine(
        explained,
        tile.to_whole,
        (view.dark.shape[1], view.dark.shape[0]),
        flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP,
    )
    if not mask.any():
        return tile
    dark = np.where(mask > 0, 0, view.dark).astype(np.uint8)
    # Light strength is 1 where there is no light ink but could be.
    light = view.light
    if light is not None:
        light = np.where(mask > 0, np.minimum(light, 1), light).astype(np.uint8)
    return replace(tile, view=replace(view, dark=dark, light=light))


def gathered(tile_views: Iterator[Tile], view: View, scale: float) -> PageMarks:
    """The marks of all tiles in pixels of a view of the whole page at `scale`."""
    gain = view.frame.scale / scale
    letters = no_marks()
    horizontal: list[Rule] = []
    vertical: list[Rule] = []
    for tile in tile_views:
        marks = marks_of(tile.view)
        own, right, down = placement(tile)
        moved = marks.letters.moved(own, right, down)
        moved = moved.take(_in_core(moved, tile.core))
        flipped = moved.inverted ^ (tile.view.is_negative != view.is_negative)
        letters = letters.joined(replace(moved, inverted=flipped).moved(gain, 0, 0))
        for kind, rules in ((horizontal, marks.horizontal), (vertical, marks.vertical)):
            kind += [rule.moved(own, right, down).moved(gain, 0, 0) for rule in rules]
    return PageMarks(
        letters=letters,
        horizontal=tuple(horizontal),
        vertical=tuple(vertical),
        size=letter_size(letters),
        large=no_marks(),
    )


def placement(tile: Tile) -> tuple[float, float, float]:
    """How edges in a tile lie in the whole view: gain, and then how far to the right and down."""
    gain = float(tile.to_whole[0, 0])
    # Pixel centres correspond; edges lie half a pixel before them.
    shift = tile.to_whole[:, 2] + 0.5 - 0.5 * gain
    return gain, float(shift[0]), float(shift[1])


def _in_core(marks: Marks, core: tuple[float, float, float, float]) -> npt.NDArray[np.bool_]:
    x, y = (marks.x0 + marks.x1) / 2, (marks.y0 + marks.y1) / 2
    x0, y0, x1, y1 = core
    return np.asarray((x >= x0) & (x < x1) & (y >= y0) & (y < y1))
