"""Reading order: bands of equal column structure, columns within a band, rows within a table.

A band is a stack of levels (prints side by side) that leave common white lanes. A band whose lanes
part prose is read column by column, a band whose lanes part short entries row by row. After the
XY-cut of Nagy and Seth (1984), with the cuts across chosen by column structure instead of width.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vlmcli.documents.lines.letters import Rule
from vlmcli.documents.lines.pieces import Piece

_LANE = 1.3
"""Narrowest lane between columns, in letter sizes."""
_PROSE = 17.0
"""Letter sizes from which the lines of a column are prose: some 20 characters."""
_BREAK = 6.0
"""White across all columns, in letter sizes, that ends a band: two to three empty lines."""
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
class _Cell:
    """Pieces that are read together, as one line (`row`) of a block."""

    pieces: tuple[Piece, ...]
    row: int
    cell: int | None


_Block = list[_Cell]
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


def _order(pieces: list[Piece], rules: Sequence[Rule], depth: int) -> list[_Block]:
    if len(pieces) == 1 or depth == 0:
        return _column(pieces)
    bands = _bands(pieces, rules)
    if len(bands) > 1:
        return [block for band in bands for block in _order(band, rules, depth - 1)]
    columns = _columns(pieces)
    if len(columns) == 1:
        return _column(pieces)
    if _is_prose(columns):
        return [block for column in columns for block in _order(column, rules, depth - 1)]
    return _table(columns, rules)


def _bands(pieces: list[Piece], rules: Sequence[Rule]) -> list[list[Piece]]:
    """Cut across the page wherever the column structure changes."""
    levels = _levels(pieces)
    if len(levels) == 1:
        return [pieces]
    lane = _LANE * _usual_size(pieces)
    bands: list[list[Piece]] = [list(levels[0])]
    taken = _merge([(p.x0, p.x1) for p in levels[0]], lane)
    for above, level in itertools.pairwise(levels):
        own = _merge([(p.x0, p.x1) for p in level], lane)
        union = _merge([*taken, *own], lane)
        several = max(len(taken), len(own)) > 1
        if several and (
            len(union) < max(min(len(taken), 2), min(len(own), 2))
            or (len(taken) > 1 and len(union) < len(taken))
            or _is_parted(above, level, taken, rules)
        ):
            bands.append(list(level))
            taken = own
        else:
            bands[-1] += level
            taken = union
    return bands


def _is_parted(
    above: list[Piece], below: list[Piece], taken: Sequence[_Interval], rules: Sequence[Rule]
) -> bool:
    """Whether wide white or a rule across the lanes lies between two levels of columns."""
    bottom = max(p.foot for p in above)
    top = min(p.foot - p.size for p in below)
    size = _usual_size([*above, *below])
    if top - bottom > _BREAK * size:
        return True
    if len(taken) < 2:
        return False
    lanes = [(a[1], b[0]) for a, b in itertools.pairwise(taken)]
    for rule in rules:
        if bottom - 0.3 * size <= (rule.y0 + rule.y1) / 2 <= top + 0.3 * size:
            crossed = sum(rule.x0 <= left and rule.x1 >= right for left, right in lanes)
            if crossed:
                return True
    return False


def _columns(pieces: list[Piece]) -> list[list[Piece]]:
    """Pieces by column, left to right; one column if no lane runs through."""
    merged = _merge([(p.x0, p.x1) for p in pieces], _LANE * _usual_size(pieces))
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
        lines = _lines(column)
        lengths = [line[-1].x1 - line[0].x0 for line in lines]
        if len(lines) >= 2 and np.percentile(lengths, 75) >= _PROSE * _usual_size(column):
            prose += 1
    if prose >= 2:
        return True
    if any(len(_lines(column)) < 3 for column in columns):
        return False
    return _level_share(columns) < 0.4


def _level_share(columns: list[list[Piece]]) -> float:
    """Share of the lines of the shortest column that stand level with a line of another."""
    shortest = min(columns, key=len)
    others = [p.foot for column in columns if column is not shortest for p in column]
    feet = np.array(others)
    near = [float(np.abs(feet - p.foot).min()) <= 0.35 * p.size for p in shortest]
    return float(np.mean(near))


def _table(columns: list[list[Piece]], rules: Sequence[Rule]) -> list[_Block]:
    """One block whose rows are read from left to right."""
    where = {id(piece): cell for cell, column in enumerate(columns) for piece in column}
    pieces = [piece for column in columns for piece in column]
    lines = _lines(pieces)
    rows = [[line] for line in lines]
    block: _Block = []
    for row, group in enumerate(rows):
        entries = [piece for line in group for piece in line]
        for cell in sorted({where[id(piece)] for piece in entries}):
            own = tuple(piece for piece in entries if where[id(piece)] == cell)
            block.append(_Cell(pieces=own, row=row, cell=cell))
    return [block]


def _column(pieces: list[Piece]) -> list[_Block]:
    """Blocks of a single column: parted by white, by a change of size, and by indents."""
    lines = _lines(pieces)
    blocks: list[_Block] = [[]]
    leading = _leading(lines)
    for row, line in enumerate(lines):
        if row and _starts_block(lines, row, leading):
            blocks.append([])
        if len(line) == 1:
            blocks[-1].append(_Cell(pieces=(line[0],), row=row, cell=None))
        else:
            blocks[-1] += [
                _Cell(pieces=(piece,), row=row, cell=cell) for cell, piece in enumerate(line)
            ]
    return blocks


def _starts_block(lines: list[list[Piece]], row: int, leading: float) -> bool:
    above, line = lines[row - 1], lines[row]
    size_above, size = _usual_size(above), _usual_size(line)
    if max(size, size_above) > 1.35 * min(size, size_above):
        return True
    if line[0].foot - above[0].foot > 1.4 * leading:
        return True
    indent = line[0].x0 - above[0].x0
    following = lines[row + 1] if row + 1 < len(lines) else None
    if not 0.8 * size <= indent <= 10 * size:
        return False
    return following is None or abs(following[0].x0 - above[0].x0) <= 0.5 * size


def _leading(lines: list[list[Piece]]) -> float:
    """The usual distance from baseline to baseline; infinite for a single line."""
    feet = np.array([line[0].foot for line in lines])
    steps = np.diff(feet)
    steps = steps[steps > 0]
    return float(np.percentile(steps, 35)) if steps.size else float("inf")


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


def _lines(pieces: list[Piece]) -> list[list[Piece]]:
    """Pieces grouped by baseline, top to bottom, each line left to right."""
    lines: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda p: (p.foot, p.x0)):
        if lines and _same_line(lines[-1], piece):
            lines[-1].append(piece)
        else:
            lines.append([piece])
    for line in lines:
        line.sort(key=lambda p: p.x0)
    return lines


def _same_line(line: list[Piece], piece: Piece) -> bool:
    foot = float(np.median([p.foot for p in line]))
    size = min(min(p.size for p in line), piece.size)
    if piece.foot - foot > 0.6 * size:
        return False
    overlaps = any(min(p.x1, piece.x1) - max(p.x0, piece.x0) > 0.5 * size for p in line)
    return not overlaps


def _merge(intervals: Sequence[_Interval], lane: float) -> list[_Interval]:
    """Union of intervals; gaps narrower than a lane are closed."""
    merged: list[_Interval] = []
    for start, stop in sorted(intervals):
        if merged and start - merged[-1][1] < lane:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


def _usual_size(pieces: Sequence[Piece]) -> float:
    return float(np.median([piece.size for piece in pieces]))
