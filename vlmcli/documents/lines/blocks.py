"""Blocks of a column and of a table: lines of print, paragraphs, rows and cells."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from vlmcli.documents.lines.pieces import Piece

_APART = 7.0
"""Letter sizes between the pieces of a line from which they are cells, not words."""
_LEADING = 1.4
"""Usual leadings from baseline to baseline that part paragraphs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Pieces that are read together, as one line (`row`) of a block."""

    pieces: tuple[Piece, ...]
    row: int
    cell: int | None


Block = list[Cell]


def lines_of(pieces: list[Piece]) -> list[list[Piece]]:
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


def usual_size(pieces: Sequence[Piece]) -> float:
    """The median letter size of some pieces."""
    return float(np.median([piece.size for piece in pieces]))


def column_blocks(pieces: list[Piece]) -> list[Block]:
    """Blocks of a single column: parted by white, by a change of size, and by indents."""
    lines = lines_of(pieces)
    blocks: list[Block] = [[]]
    leading = _leading(lines)
    for row, line in enumerate(lines):
        if row and _starts_block(lines, row, leading):
            blocks.append([])
        blocks[-1] += _cells(line, row)
    return blocks


def _cells(line: list[Piece], row: int) -> Block:
    """The pieces of a line: one text with wide spaces, or cells where the gaps are wider."""
    far = _APART * usual_size(line)
    if all(right.x0 - left.x1 <= far for left, right in pairwise(line)):
        return [Cell(pieces=tuple(line), row=row, cell=None)]
    return [Cell(pieces=(piece,), row=row, cell=cell) for cell, piece in enumerate(line)]


def _starts_block(lines: list[list[Piece]], row: int, leading: float) -> bool:
    above, line = lines[row - 1], lines[row]
    size = usual_size(line)
    # Both measures, since either depends on which letters a short line happens to have.
    sizes = sorted((usual_size(above), size))
    ascents = sorted(float(np.median([p.base.ascent for p in one])) for one in (above, line))
    if sizes[1] > 1.3 * sizes[0] and ascents[1] > 1.25 * ascents[0]:
        return True
    if line[0].foot - above[0].foot > _LEADING * leading:
        return True
    indent = line[0].x0 - above[0].x0
    if not 0.8 * size <= indent <= 10 * size:
        return False
    # The second line of an item that hangs from its bullet is short, and the first one is full.
    edge = max(other[-1].x1 for other in lines) - 8 * size
    if above[-1].x1 > edge > line[-1].x1:
        return False
    # Ragged and centred lines have left edges of their own; a paragraph has a margin.
    flush = [abs(other[0].x0 - above[0].x0) <= 0.3 * size for other in lines]
    following = flush[row + 1 : row + 2]
    return all(following) and sum(flush) >= min(3, len(lines) - 1)


def _leading(lines: list[list[Piece]]) -> float:
    """The usual distance from baseline to baseline; infinite for a single line."""
    feet = np.array([line[0].foot for line in lines])
    steps = np.diff(feet)
    steps = steps[steps > 0]
    return float(np.percentile(steps, 35)) if steps.size else float("inf")


def table_block(columns: list[list[Piece]]) -> Block:
    """A block whose lines are read from left to right, one cell for each column."""
    lines = lines_of([piece for column in columns for piece in column])
    return [cell for row, line in enumerate(lines) for cell in row_block(line, columns, row)]


def row_block(entries: Sequence[Piece], columns: list[list[Piece]], row: int = 0) -> Block:
    """Pieces as cells of one row, in the order of the columns and, in a cell, as given."""
    where = {id(piece): cell for cell, column in enumerate(columns) for piece in column}
    block: Block = []
    for cell in sorted({where[id(piece)] for piece in entries}):
        own = tuple(piece for piece in entries if where[id(piece)] == cell)
        block.append(Cell(pieces=own, row=row, cell=cell))
    return block


def continues(above: Block, below: Block) -> bool:
    """Whether two blocks are rows of one table."""
    return any(c.cell is not None for c in above) and any(c.cell is not None for c in below)


def stacked(above: Block, below: Block) -> Block:
    """One block of the rows of two."""
    shift = above[-1].row + 1 - below[0].row
    return above + [replace(cell, row=cell.row + shift) for cell in below]
