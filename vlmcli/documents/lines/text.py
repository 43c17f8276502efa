"""Page text from the texts of its lines."""

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Protocol

CELL_GAP = "  "
"""Between cells of a row: two spaces keep cells apart for people, grep and awk alike."""


class _Placed(Protocol):
    @property
    def block(self) -> int: ...
    @property
    def row(self) -> int: ...
    @property
    def cell(self) -> int | None: ...
    @property
    def glued(self) -> bool: ...


def join_text(lines: Sequence[_Placed], texts: Sequence[str]) -> str:
    """The text of a page: a printed line a line, an empty line between blocks.

    Cells of a table row stand on one line, two spaces apart; lines of one cell are joined with a
    space. Lines without text leave no trace.

    Args:
        lines: lines in reading order; anything with `block`, `row`, `cell` and `glued`.
        texts: the text of each.
    """
    filled = [
        (line, " ".join(text.split()))
        for line, text in zip(lines, texts, strict=True)
        if text.strip()
    ]
    blocks = []
    for _, block in groupby(filled, key=lambda pair: pair[0].block):
        rows = [_join_row(list(row)) for _, row in groupby(block, key=lambda pair: pair[0].row)]
        blocks.append("\n".join(rows))
    return "\n\n".join(blocks)


def _join_row(row: Sequence[tuple[_Placed, str]]) -> str:
    text = row[0][1]
    for (before, _), (line, following) in pairwise(row):
        gap = "" if before.glued else " " if before.cell == line.cell else CELL_GAP
        text += gap + following
    return text
