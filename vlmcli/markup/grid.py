"""A table as rows of cells, written as Markdown or as plain text."""

from collections.abc import Sequence

Grid = Sequence[Sequence[str]]
_CELL_GAP = "  "


def write_grid(grid: Grid, *, plain: bool) -> str:
    """A table; rows that are short are filled up with empty cells.

    Args:
        grid: rows of cells, the first row being the head. White in a cell counts as one space.
        plain: cells two spaces apart, without a head, instead of Markdown (GitHub's pipe tables).
    """
    rows = [[" ".join(cell.split()) for cell in row] for row in grid]
    if plain:
        return "\n".join(_CELL_GAP.join(filter(None, row)) for row in rows).strip("\n")
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""
    filled = [[*map(_escaped, row), *[""] * (width - len(row))] for row in rows]
    head, *body = (f"| {' | '.join(row)} |" for row in filled)
    return "\n".join([head, "|" + " --- |" * width, *body])


def _escaped(cell: str) -> str:
    r"""A cell that no `|` of its own ends: `\|`. Backslashes before one, or last, are doubled."""
    out: list[str] = []
    run = 0
    for char in cell:
        if char == "|":
            out.append("\\" * (run + 1))
        run = run + 1 if char == "\\" else 0
        out.append(char)
    return "".join(out) + "\\" * run
