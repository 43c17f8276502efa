"""Reading order of the fragments of a text layer: columns one after another, tables row by row.

Pure geometry, no text understanding. Columns of prose and columns of a table look alike on paper;
the content stream tells them apart: programs write prose column by column and tables row by row.
Gave up: text around a figure, and tables whose cells hold several lines, written row by row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
import numpy.typing as npt

from vlmcli.documents.base import Box, Fragment

_SAME_LINE = 0.3
"""Base lines closer than this share of the font size are one line."""

_GUTTER = 0.7
"""Least width of the white between two columns, in font sizes."""

_PROSE_ROWS = 3
_PROSE_CHARACTERS = 12
_PROSE_FILL = 0.5
"""A column has this many rows; its middle row this many characters, and this share of its width."""

_COLUMN_SWITCHES = 0.34
"""Changes of side in the content stream, per row: one in all for columns, two a row for tables."""

_CELLS = 1.5
"""A gap of more font sizes within a row parts cells; a narrower one is a space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A fragment in its own frame: `u` runs with the writing, `v` across; `index` in the stream."""

    fragment: Fragment
    index: int
    u0: float
    u1: float
    v0: float
    v1: float
    base: float

    @property
    def size(self) -> float:
        """Font size in pixels."""
        return self.fragment.size


Row = tuple[Placed, ...]
"""One printed line: fragments on one base line, by `u`."""


def reading_order(fragments: Sequence[Fragment]) -> list[list[Row]]:
    """Blocks of rows, as they are read. The writing direction with most text comes first.

    Args:
        fragments: non-empty texts, in the order of the content stream.
    """
    frames: dict[tuple[int, bool], list[Placed]] = {}
    for index, fragment in enumerate(fragments):
        key = round(fragment.angle / 90) % 4, fragment.vertical
        frames.setdefault(key, []).append(_place(fragment, index))
    by_amount = sorted(
        frames.values(), key=lambda placed: -sum(len(item.fragment.text) for item in placed)
    )
    return [block for placed in by_amount for block in _order(placed)]


def row_box(row: Row) -> Box:
    """The box around a row, in pixels of the page."""
    boxes = [item.fragment.box for item in row]
    return (
        min(box[0] for box in boxes),
        min(box[1] for box in boxes),
        max(box[2] for box in boxes),
        max(box[3] for box in boxes),
    )


def are_cells(left: Placed, right: Placed) -> bool:
    """Whether so much white lies between two neighbours in a row that they are cells of a table."""
    return right.u0 - left.u1 > _CELLS * max(left.size, right.size)


def are_touching(left: Placed, right: Placed) -> bool:
    """Whether two neighbours in a row belong to one word."""
    return right.u0 - left.u1 < 0.1 * min(left.size, right.size)


def _place(fragment: Fragment, index: int) -> Placed:
    """Turn a fragment so that its writing runs along u, and rows follow each other along v."""
    x0, y0, x1, y1 = fragment.box
    x, y = fragment.origin
    quarter = 1 if fragment.vertical else round(fragment.angle / 90) % 4
    u0, u1, v0, v1, base = (
        (x0, x1, y0, y1, y),
        (y0, y1, -x1, -x0, -x),
        (-x1, -x0, -y1, -y0, -y),
        (-y1, -y0, x0, x1, x),
    )[quarter]
    return Placed(fragment=fragment, index=index, u0=u0, u1=u1, v0=v0, v1=v1, base=base)


def _order(placed: Sequence[Placed]) -> list[list[Row]]:
    rows = _rows(placed)
    split = _find_columns(rows)
    if split is None:
        return _blocks(rows)
    first, last, gutter = split
    inside = [item for row in rows[first : last + 1] for item in row]
    left = [item for item in inside if item.u1 <= gutter]
    right = [item for item in inside if item.u1 > gutter]
    above = [item for row in rows[:first] for item in row]
    below = [item for row in rows[last + 1 :] for item in row]
    return [block for part in (above, left, right, below) if part for block in _order(part)]


def _rows(placed: Sequence[Placed]) -> list[Row]:
    """Fragments with one base line together, from top to bottom."""
    groups: list[list[Placed]] = []
    for item in sorted(placed, key=lambda item: item.base):
        if groups and item.base - groups[-1][0].base <= _SAME_LINE * min(
            item.size, groups[-1][0].size
        ):
            groups[-1].append(item)
        else:
            groups.append([item])
    return [tuple(sorted(group, key=lambda item: item.u0)) for group in groups]


def _blocks(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows parted where more white than usual lies between two of them."""
    if not rows:
        return []
    pitches = [after[0].base - before[0].base for before, after in pairwise(rows)]
    usual = median(pitches) if len(pitches) >= 4 else 0.0
    blocks = [[rows[0]]]
    for pitch, before, after in zip(pitches, rows, rows[1:], strict=False):
        size = max(item.size for item in (*before, *after))
        limit = max(1.35 * usual, 1.3 * size) if usual else 1.9 * size
        if pitch > limit:
            blocks.append([])
        blocks[-1].append(after)
    return blocks


def _find_columns(rows: Sequence[Row]) -> tuple[int, int, float] | None:
    """The longest run of rows that two columns of prose share: first row, last row, gutter."""
    if len(rows) < _PROSE_ROWS:
        return None
    size = median(item.size for row in rows for item in row)
    step = max(size / 4, 0.5)
    covered = _coverage(rows, step)
    start = min(item.u0 for row in rows for item in row)
    stops = _stops(rows)
    best: tuple[int, int, float] | None = None
    for first in range(len(rows) - _PROSE_ROWS + 1):
        if best is not None and len(rows) - first <= best[1] - best[0] + 1:
            break
        union = np.zeros_like(covered[0])
        for last in range(first, len(rows)):
            union |= covered[last]
            gutters = _gaps(union, round(_GUTTER * size / step))
            if not gutters:
                break
            longer = last - first > (best[1] - best[0] if best is not None else 1)
            ends = last in stops or not _gaps(
                union | covered[last + 1], round(_GUTTER * size / step)
            )
            if not (longer and ends):
                continue
            for low, high in gutters:
                gutter = start + (low + high) / 2 * step
                if _is_prose(rows[first : last + 1], gutter):
                    best = first, last, gutter
                    break
    return best


def _coverage(rows: Sequence[Row], step: float) -> npt.NDArray[np.bool_]:
    """For each row, which cells of `step` pixels along u hold text."""
    start = min(item.u0 for row in rows for item in row)
    end = max(item.u1 for row in rows for item in row)
    covered = np.zeros((len(rows), int((end - start) / step) + 2), np.bool_)
    for number, row in enumerate(rows):
        for item in row:
            low, high = int((item.u0 - start) / step), int((item.u1 - start) / step)
            covered[number, low : high + 1] = True
    return covered


def _gaps(covered: npt.NDArray[np.bool_], least: int) -> list[tuple[int, int]]:
    """White runs of at least `least` cells between text on both sides, widest first."""
    cells = np.flatnonzero(covered)
    white = np.diff(cells) - 1
    found = [(int(cells[i]) + 1, int(cells[i + 1])) for i in np.flatnonzero(white >= least)]
    return sorted(found, key=lambda gap: gap[0] - gap[1])


def _stops(rows: Sequence[Row]) -> set[int]:
    """Rows after which more white than usual follows, and the last one."""
    pitches = [after[0].base - before[0].base for before, after in pairwise(rows)]
    usual = median(pitches)
    return {number for number, pitch in enumerate(pitches) if pitch > 1.35 * usual} | {
        len(rows) - 1
    }


def _is_prose(rows: Sequence[Row], gutter: float) -> bool:
    """Whether the rows hold two columns of prose beside `gutter`, not cells of a table."""
    items = sorted((item for row in rows for item in row), key=lambda item: item.index)
    sides = [item.u1 <= gutter for item in items]
    switches = sum(before != after for before, after in pairwise(sides))
    for is_left in (True, False):
        side = [[item for item in row if (item.u1 <= gutter) == is_left] for row in rows]
        side = [row for row in side if row]
        if len(side) < _PROSE_ROWS or switches > max(1, _COLUMN_SWITCHES * len(side)):
            return False
        width = max(row[-1].u1 for row in side) - min(row[0].u0 for row in side)
        fill = median(sum(item.u1 - item.u0 for item in row) for row in side) / width
        characters = median(sum(len(item.fragment.text) for item in row) for row in side)
        if fill < _PROSE_FILL or characters < _PROSE_CHARACTERS:
            return False
    return True
