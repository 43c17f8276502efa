"""Reading order: bands of equal column structure, columns within a band, rows within a table.

A band is a stack of levels (prints side by side) that leave common white lanes. A band whose lanes
part prose is read column by column, a band whose lanes part short entries row by row. After the
XY-cut of Nagy and Seth (1984), with the cuts across chosen by column structure instead of width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from vlmcli.documents.lines.blocks import (
    Block,
    column_blocks,
    continues,
    lines_of,
    row_block,
    stacked,
    table_block,
    usual_size,
)
from vlmcli.documents.lines.pieces import Piece
from vlmcli.documents.lines.rules import Rule

_LANE = 1.3
"""Narrowest lane between columns, in letter sizes."""
_RAGGED = 6.0
"""Lanes by which the left edge of a column may move: indents, centred cells."""
_PROSE = 17.0
"""Letter sizes from which the lines of a column are prose: some 20 characters."""
_BREAK = 4.6
"""White across all columns, in letter sizes, that ends a band: two empty lines."""
_CELL_LINES = 8
"""Most lines in a cell of a ruled table; more between two rules are columns of prose."""
_INITIAL = 1.9
"""Height of an initial in the letter sizes of the lines that it stands beside, at least."""
_DEEPEST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A piece with its place: block and row of the page, cell of the row where it has several."""

    piece: Piece
    block: int
    row: int
    cell: int | None
    glued: bool
    """An initial: the next piece continues its word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Band:
    levels: list[list[Piece]]
    is_ruled: bool
    """Cut off from the band above by a rule alone."""

    @property
    def pieces(self) -> list[Piece]:
        """All pieces, from the upper level to the lower."""
        return [piece for level in self.levels for piece in level]


_Interval = tuple[float, float]


def reading_order(pieces: Sequence[Piece], rules: Sequence[Rule]) -> list[Placed]:
    """Put pieces into reading order and blocks.

    Args:
        pieces: the pieces of a page, in any order.
        rules: horizontal rules.
    """
    if not pieces:
        return []
    lowered = [_lowered(piece, pieces) for piece in pieces]
    originals = {id(one): piece for one, piece in zip(lowered, pieces, strict=True)}
    placed = []
    row = 0
    for block, cells in enumerate(_order(lowered, rules, _DEEPEST)):
        first = cells[0].row
        for cell in cells:
            at = row + cell.row - first
            for one in cell.pieces:
                piece = originals[id(one)]
                glued = piece is not one
                placed.append(Placed(piece=piece, block=block, row=at, cell=cell.cell, glued=glued))
        row += cells[-1].row - first + 1
    return placed


def _lowered(piece: Piece, pieces: Sequence[Piece]) -> Piece:
    """An initial several lines high, as if it were a letter of the first line beside it."""
    if piece.letters > 1:
        return piece
    beside = [
        p
        for p in pieces
        if p.size * _INITIAL <= piece.size
        and -0.5 * p.size <= p.x0 - piece.x1 <= 2.5 * p.size
        and piece.foot - piece.base.ascent <= p.foot <= piece.foot + 0.5 * p.size
    ]
    if len(beside) < 2:
        return piece
    first = min(beside, key=lambda p: p.foot)
    base = replace(piece.base, offset=piece.base.offset + first.foot - piece.foot)
    return replace(piece, size=first.size, base=base)


def _order(pieces: list[Piece], rules: Sequence[Rule], depth: int) -> list[Block]:
    if len(pieces) == 1 or depth == 0:
        return column_blocks(pieces)
    bands = _bands(pieces, rules)
    if len(bands) > 1:
        blocks: list[Block] = []
        for band in bands:
            own = _order(band.pieces, rules, depth - 1)
            if band.is_ruled and len(own) == 1 and blocks and continues(blocks[-1], own[0]):
                blocks[-1] = stacked(blocks[-1], own[0])
            else:
                blocks += own
        return blocks
    columns = _columns(pieces)
    if len(columns) == 1:
        return column_blocks(pieces)
    if _is_one_row(columns, rules):
        pieces = [piece for column in columns for line in lines_of(column) for piece in line]
        return [row_block(pieces, columns)]
    if _is_prose(columns):
        return [block for column in columns for block in _order(column, rules, depth - 1)]
    return [table_block(columns)]


def _bands(pieces: list[Piece], rules: Sequence[Rule]) -> list[_Band]:
    """Cut across the page wherever the column structure changes."""
    levels = _levels(pieces)
    if len(levels) == 1:
        return [_Band(levels=levels, is_ruled=False)]
    lane = _LANE * usual_size(pieces)
    bands = [_Band(levels=[levels[0]], is_ruled=False)]
    taken = _merge([(p.x0, p.x1) for p in levels[0]], lane)
    spans = [_merge([(p.x0, p.x1) for p in level], lane) for level in levels]
    for index, level in enumerate(levels[1:], start=1):
        above, own = levels[index - 1], spans[index]
        union = _merge([*taken, *own], lane)
        if len(taken) == 1 and not _has_lane(own, spans[index + 1 : index + 2], lane):
            # A gap in one line alone is a wide word space.
            own = [(own[0][0], own[-1][1])]
        several = max(len(taken), len(own)) > 1
        if several and (_is_far(above, level) or not _fits(taken, own, union, lane)):
            heading = _heading_of(level, bands[-1].levels) if len(own) == 1 else []
            bands.append(_Band(levels=[*heading, level], is_ruled=False))
            taken = spans[index]
        elif several and _is_ruled_off(above, level, taken, rules):
            bands.append(_Band(levels=[level], is_ruled=True))
            taken = spans[index]
        else:
            bands[-1].levels.append(level)
            taken = union
    return bands


def _heading_of(level: list[Piece], above: list[list[Piece]]) -> list[list[Piece]]:
    """The last level of a band if it is a heading of the level below it; taken off the band.

    A heading at the left stands in the first column of the columns above it, but nearer to what
    it heads.
    """
    if len(above) < 2 or len(above[-1]) > 1:
        return []
    heading = above[-1][0]
    below = min(p.foot - p.base.ascent for p in level) - heading.foot
    before = max(p.foot for other in above[:-1] for p in other)
    if heading.foot - heading.base.ascent - before < max(1.3 * below, heading.size):
        return []
    return [above.pop()]


def _has_lane(
    own: Sequence[_Interval], following: Sequence[Sequence[_Interval]], lane: float
) -> bool:
    """Whether a level has a lane that goes on in the next one."""
    return all(len(_merge([*own, *spans], lane)) > 1 for spans in following) and bool(following)


def _fits(
    taken: Sequence[_Interval], own: Sequence[_Interval], union: Sequence[_Interval], lane: float
) -> bool:
    """Whether a level keeps the columns of a band: all lanes stay, and so do the left edges.

    A centred heading above columns leaves lanes, too, but moves the left edge of a column.
    """
    if len(union) < max(len(taken), min(len(own), 2)):
        return False
    if len(taken) > 1 and len(own) > 1:
        return True
    columns = taken if len(taken) > 1 else own
    edges = [start for start, _ in union]
    return all(
        start - max(edge for edge in edges if edge <= start) <= _RAGGED * lane
        for start, _ in columns
    )


def _is_far(above: list[Piece], below: list[Piece]) -> bool:
    """Whether wide white lies between two levels."""
    bottom, top = max(p.foot for p in above), min(p.foot - p.size for p in below)
    return top - bottom > _BREAK * usual_size([*above, *below])


def _is_ruled_off(
    above: list[Piece], below: list[Piece], taken: Sequence[_Interval], rules: Sequence[Rule]
) -> bool:
    """Whether a rule across a lane lies between two levels of columns."""
    slack = 0.3 * usual_size([*above, *below])
    top = max(p.foot for p in above) - slack
    bottom = min(p.foot - p.size for p in below) + slack
    lanes = [(a[1], b[0]) for a, b in pairwise(taken)]
    return any(
        top <= (rule.y0 + rule.y1) / 2 <= bottom and rule.x0 <= left and rule.x1 >= right
        for rule in rules
        for left, right in lanes
    )


def _columns(pieces: list[Piece]) -> list[list[Piece]]:
    """Pieces by column, left to right; one column if no lane runs through."""
    merged = _merge([(p.x0, p.x1) for p in pieces], _LANE * usual_size(pieces))
    columns: list[list[Piece]] = [[] for _ in merged]
    starts = np.array([start for start, _ in merged])
    for piece in pieces:
        columns[int(np.searchsorted(starts, piece.x0, side="right")) - 1].append(piece)
    return columns


def _is_prose(columns: list[list[Piece]]) -> bool:
    """Whether columns are read one after another: at least two hold several long lines.

    Short entries that do not stand level with each other are columns, too.
    """
    prose = 0
    for column in columns:
        lines = lines_of(column)
        lengths = [line[-1].x1 - line[0].x0 for line in lines]
        if len(lines) >= 2 and np.percentile(lengths, 75) >= _PROSE * usual_size(column):
            prose += 1
    if prose >= 2:
        return True
    if any(len(lines_of(column)) < 3 for column in columns):
        return False
    return _level_share(min(columns, key=len), columns) < 0.4


def _level_share(column: list[Piece], columns: list[list[Piece]]) -> float:
    """Share of the pieces of a column that stand level with a piece of another."""
    feet = np.array([p.foot for other in columns if other is not column for p in other])
    near = [float(np.abs(feet - p.foot).min()) <= 0.35 * p.size for p in column]
    return float(np.mean(near))


def _is_one_row(columns: list[list[Piece]], rules: Sequence[Rule]) -> bool:
    """Whether the columns are cells of one row: between two rules, with lines of their own.

    In a table that is ruled above and below only, the lines stand level across the columns.
    """
    longest = max(columns, key=len)
    few = len(lines_of(longest)) <= _CELL_LINES
    return few and _is_ruled(columns, rules) and _level_share(longest, columns) < 0.7


def _is_ruled(columns: list[list[Piece]], rules: Sequence[Rule]) -> bool:
    """Whether rules across the lanes lie right above and right below the columns."""
    pieces = [piece for column in columns for piece in column]
    reach = 4 * usual_size(pieces)
    top = min(p.foot - p.base.ascent for p in pieces)
    bottom = max(p.foot for p in pieces)
    left = max(p.x1 for p in columns[0])
    right = min(p.x0 for p in columns[-1])
    across = [(r.y0 + r.y1) / 2 for r in rules if r.x0 <= left and r.x1 >= right]
    above = any(top - reach <= y <= top + 0.1 * reach for y in across)
    return above and any(bottom - 0.1 * reach <= y <= bottom + reach for y in across)


def _levels(pieces: list[Piece]) -> list[list[Piece]]:
    """Groups of pieces that stand beside each other, from top to bottom.

    Only the x-height counts, so that close lines with long tails stay apart.
    """
    ordered = sorted(pieces, key=lambda p: (p.foot - p.size, p.x0))
    levels: list[list[Piece]] = []
    lowest = -np.inf
    for piece in ordered:
        if piece.foot - 0.85 * piece.size >= lowest:
            levels.append([])
            lowest = -np.inf
        levels[-1].append(piece)
        lowest = max(lowest, piece.foot - 0.15 * piece.size)
    return levels


def _merge(intervals: Sequence[_Interval], lane: float) -> list[_Interval]:
    """Union of intervals; gaps narrower than a lane are closed."""
    merged: list[_Interval] = []
    for start, stop in sorted(intervals):
        if merged and start - merged[-1][1] < lane:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged
