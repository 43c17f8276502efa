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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The fragments of some rows as arrays, row by row; `starts[r]` is the first of row r."""

    starts: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]
    u0: npt.NDArray[np.float64]
    u1: npt.NDArray[np.float64]
    characters: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "_Columns":
        items = [(number, item) for number, row in enumerate(rows) for item in row]
        return cls(
            starts=np.cumsum([0, *(len(row) for row in rows)]),
            row=np.array([number for number, _ in items]),
            index=np.array([item.index for _, item in items]),
            u0=np.array([item.u0 for _, item in items]),
            u1=np.array([item.u1 for _, item in items]),
            characters=np.array([len(item.fragment.text) for _, item in items]),
        )


def _find_columns(rows: Sequence[Row]) -> tuple[int, int, float] | None:
    """The longest run of rows that two columns of prose share: first row, last row, gutter."""
    if len(rows) < _PROSE_ROWS:
        return None
    size = median(item.size for row in rows for item in row)
    step = max(size / 4, 0.5)
    least = round(_GUTTER * size / step)
    covered = _coverage(rows, step)
    start = min(item.u0 for row in rows for item in row)
    stops = _stops(rows)
    columns = _Columns.of(rows)
    best: tuple[int, int, float] | None = None
    longest = _PROSE_ROWS - 1
    for first in range(len(rows) - _PROSE_ROWS + 1):
        union = covered[first].copy()
        gutters = _gaps(union, least)
        for last in range(first, len(rows)):
            following: list[tuple[int, int]] = []
            if last + 1 < len(rows):
                union |= covered[last + 1]
                following = _gaps(union, least)
            if last - first + 1 > longest and (last in stops or not following):
                for low, high in gutters:
                    gutter = start + (low + high) / 2 * step
                    if _is_prose(columns, first, last, gutter):
                        best, longest = (first, last, gutter), last - first + 1
                        break
            if not following:
                break
            gutters = following
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
    wide = np.flatnonzero(cells[1:] - cells[:-1] > least)
    found = [(int(cells[i]) + 1, int(cells[i + 1])) for i in wide]
    return sorted(found, key=lambda gap: gap[0] - gap[1])


def _stops(rows: Sequence[Row]) -> set[int]:
    """Rows after which more white than usual follows, and the last one."""
    pitches = [after[0].base - before[0].base for before, after in pairwise(rows)]
    usual = median(pitches)
    return {number for number, pitch in enumerate(pitches) if pitch > 1.35 * usual} | {
        len(rows) - 1
    }


def _is_prose(columns: _Columns, first: int, last: int, gutter: float) -> bool:
    """Whether rows `first` to `last` hold two columns of prose beside `gutter`, not table cells."""
    part = slice(columns.starts[first], columns.starts[last + 1])
    u0, u1, row = columns.u0[part], columns.u1[part], columns.row[part] - first
    is_left = u1 <= gutter
    in_stream = is_left[np.argsort(columns.index[part])]
    switches = np.count_nonzero(in_stream[1:] != in_stream[:-1])
    for side in (is_left, ~is_left):
        num_rows = len(np.unique(row[side]))
        if num_rows < _PROSE_ROWS or switches > max(1, _COLUMN_SWITCHES * num_rows):
            return False
        present = np.bincount(row[side]) > 0
        widths = np.bincount(row[side], (u1 - u0)[side])[present]
        characters = np.bincount(row[side], columns.characters[part][side])[present]
        width = u1[side].max() - u0[side].min()
        if np.median(widths) < _PROSE_FILL * width or np.median(characters) < _PROSE_CHARACTERS:
            return False
    return True
