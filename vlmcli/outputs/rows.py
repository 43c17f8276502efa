"""Printed rows of a page, out of a record's lines: what structure is found in.

A row is what stands on one printed line of one column: a line, or lines that the text puts side by
side. Sizes are of the type, estimated from box and letters, since a box found on a picture is as
high as the letters in it happen to be. Knows geometry, no Markdown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from vlmcli.outputs.base import plain
from vlmcli.outputs.pieces import pieces
from vlmcli.outputs.words import bounds_of
from vlmcli.results import Line, PageRecord

_CELL_GAP = re.compile(r" {2,}|\t")
BROKEN_WORD = re.compile(r"(?<=[^\W\d_])[-¬\u00ad‐]$")
"""A hyphen behind a letter at a row's end."""
_TALL = re.compile(r"[^\W_acemnorsuvwxz]")
_LOW = re.compile(r"[gjpqyQ,;()\[\]{}|/_]")
_SAME_WIDTH = 0.06
"""Of the page's: text that ends this far apart is of one width."""
_X_HEIGHT, _ASCENT, _DESCENT = 0.50, 0.24, 0.22
"""Of the type size: typical of book faces and of Helvetica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One printed row; pixels. `column` counts the runs of rows that stand below each other.

    `left` and `right` are where most rows of the column begin and end. `is_apart`: an empty line
    stands before it in the text. `is_exact`: its size is that of a font, not of a box around ink.
    """

    cells: tuple[str, ...]
    box: tuple[int, int, int, int]
    size: float
    is_exact: bool
    is_apart: bool
    column: int = 0
    left: int = 0
    right: int = 0

    @property
    def text(self) -> str:
        """All cells; two spaces part them."""
        return "  ".join(self.cells)

    @property
    def width(self) -> int:
        """Of the column."""
        return max(1, self.right - self.left)

    @property
    def middle(self) -> float:
        """Of its height."""
        return (self.box[1] + self.box[3]) / 2

    def leaves_room_for(self, row: "Row") -> bool:
        """Whether the first word of `row` would have fitted behind this one: it ends by intent.

        Not where a word is broken at its end.
        """
        if BROKEN_WORD.search(self.text):
            return False
        letter = (self.box[2] - self.box[0]) / max(1, len(self.text))
        word = row.text.split(maxsplit=1)[0] if row.text.strip() else ""
        return self.right - self.box[2] > 1.2 * letter * (len(word) + 1)


def rows_of(record: PageRecord) -> list[Row] | None:
    """The rows of a page in reading order; None where its lines cannot tell them.

    That is where there are no lines, or not those of the text, and for writing that does not run
    from left to right with blanks between words.
    """
    if not record.lines or not _can_be_told(record):
        return None
    found = list(pieces(record))
    if "".join(piece for piece, _ in found) != record.text:
        return None
    rows: list[Row] = []
    lines: list[Line] = []
    text, gap, is_apart = "", "", False
    for piece, line in found:
        if line is None:
            gap = piece
            continue
        if "\n" in gap and lines:
            rows.append(_row(text, lines, is_apart))
            text, lines, is_apart = "", [], gap.count("\n") > 1
            gap = ""
        if piece.strip():
            text += gap + piece
            lines.append(line)
        gap = ""
    if lines:
        rows.append(_row(text, lines, is_apart))
    return _in_columns(rows, record.width) or None


def body_size(rows: Sequence[Row]) -> float:
    """The size of most of the text."""
    sizes = sorted((row.size, len(row.text)) for row in rows)
    half, seen = sum(length for _, length in sizes) / 2, 0
    for size, length in sizes:
        seen += length
        if seen >= half:
            return size
    return 1.0


def pitch_of(rows: Sequence[Row]) -> float:
    """The usual distance of two rows of a column; 0 where no column has two."""
    steps = [low.middle - high.middle for high, low in pairwise(rows) if high.column == low.column]
    return median(steps) if steps else 0.0


def _row(text: str, lines: list[Line], is_apart: bool) -> Row:
    """Lines side by side, which `text` puts one behind the other with the gaps between them."""
    parts = [part.strip() for part in _CELL_GAP.split(plain(text).replace("\n", " "))]
    return Row(
        cells=tuple(part for part in parts if part) or ("",),
        box=bounds_of(lines),
        size=max(map(_size, lines)),
        is_exact=all(line.confidence is None for line in lines),
        is_apart=is_apart,
    )


def _size(line: Line) -> float:
    """Of the type. Boxes of text layers are as high as the font, whatever stands in them."""
    height = float(line.bbox[3] - line.bbox[1])
    if line.confidence is None:
        return height
    parts = _X_HEIGHT
    parts += _ASCENT if _TALL.search(line.text) else 0.0
    parts += _DESCENT if _LOW.search(line.text) else 0.0
    return height * (_X_HEIGHT + _ASCENT + _DESCENT) / parts


def _can_be_told(record: PageRecord) -> bool:
    """Whether most letters are of scripts with blanks, from left to right, and lines lie flat."""
    letters = [char for char in record.text if char.isalpha()]
    known = sum(char < "\u0590" or "\u1e00" <= char < "\u2000" for char in letters)
    long = [line.bbox for line in record.lines if len(line.text) > 3]
    flat = sum(x1 - x0 >= y1 - y0 for x0, y0, x1, y1 in long)
    return known >= 0.8 * len(letters) and flat >= 0.8 * len(long)


def _in_columns(rows: list[Row], width: int) -> list[Row]:
    runs: list[list[Row]] = []
    for row in rows:
        if runs and _is_below(row, runs[-1]):
            runs[-1].append(row)
        else:
            runs.append([row])
    parts = [part for run in runs for part in _of_one_width(run, _SAME_WIDTH * width)]
    return [_placed(row, number, part) for number, part in enumerate(parts) for row in part]


def _is_below(row: Row, run: list[Row]) -> bool:
    left = min(other.box[0] for other in run[-8:])
    right = max(other.box[2] for other in run[-8:])
    common = min(right, row.box[2]) - max(left, row.box[0])
    narrower = min(right - left, row.box[2] - row.box[0])
    return row.middle > run[-1].middle and common >= 0.5 * narrower


def _of_one_width(run: list[Row], tolerance: float) -> list[list[Row]]:
    """A run cut where text of another width begins; single rows go with what follows."""
    parts: list[list[Row]] = []
    waiting: list[Row] = []
    for section in _sections(run):
        if len(section) == 1:
            waiting += section
            continue
        right = max(row.box[2] for row in section)
        before = max((row.box[2] for row in parts[-1]), default=0) if parts else None
        if before is not None and abs(right - before) <= tolerance:
            parts[-1] += waiting + section
        else:
            parts.append(waiting + section)
        waiting = []
    if waiting and parts:
        parts[-1] += waiting
    elif waiting:
        parts.append(waiting)
    return parts


def _sections(run: list[Row]) -> list[list[Row]]:
    sections: list[list[Row]] = []
    for row in run:
        if sections and not row.is_apart:
            sections[-1].append(row)
        else:
            sections.append([row])
    return sections


def _placed(row: Row, number: int, part: list[Row]) -> Row:
    lefts = sorted(other.box[0] for other in part)
    rights = sorted(other.box[2] for other in part)
    left, right = lefts[len(lefts) // 5], rights[-1 - len(rights) // 10]
    return replace(row, column=number, left=left, right=right)
