"""Headings, paragraphs, list items, tables and margins of a page, told from its rows alone.

Rules about sizes, distances, ends of rows and first characters; no model, no words of a language.
Where they do not decide, rows stay rows: a wrong table is worse than none. Texts change only where
a word was broken at a row's end.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Literal

from vlmcli.outputs.rows import BROKEN_WORD, Row, body_size, pitch_of, rows_of
from vlmcli.results import PageRecord

Kind = Literal["heading", "paragraph", "item", "table", "header", "footer"]

_BULLET = re.compile(r"[•●▪■◦‣∙*]\s+(?=\S)")
_NUMBER = re.compile(r"(\d{1,3})([.)])\s+(?=\S)")
_SENTENCE_END = re.compile(r"[.!?:;][\"'”’»)\]]*$")
_DASHES = ("—", "–")
"""What is said in turn begins with them."""
_NO_TITLE = re.compile(r"[.,;:-]$|[.!?] [^\W\d_a-z]")
"""A sentence, or a piece of one."""
_PAGE_NUMBER = re.compile(
    r"(^|\s)(\d{1,3}|[ivxl]{1,6})\W*$|^\W*\d{1,4}\b|\d\s?/\s?\d+$", re.IGNORECASE
)
_ONLY_NUMBER = re.compile(r"\W*(\w+\W+)?(\d{1,4}|[ivxl]{1,6})(\s?/\s?\d{1,4})?\W*", re.IGNORECASE)

_BREAK = 1.5
"""Rows further apart than this many pitches are not of one block."""
_SAME_PITCH = 1.25
_INDENT = 0.9
"""Of the size: where a row begins this far to the right, a paragraph does."""
_LARGER, _LARGER_ON_PICTURES = 1.18, 1.35
"""Type of a heading over that of the text. Boxes found on pictures are less exact."""
_ASIDE = 0.25
"""Of a column's width."""
_MAX_TITLE_WORDS = 16
_LEADS, _LEADS_ON_PICTURES = 1.08, 1.15
"""The same over the text that follows, of a row that stands apart above it."""
_LEVELS = (1.9, 1.45)
_MARGIN = 0.12
"""Of the page's height, above and below, is where running heads and page numbers stand."""
_SHORT_ROWS = 30
"""Characters. A column of no longer rows is no prose: its rows stay rows."""
_MIN_VERSES, _CAPITALS = 4, 0.8
_MIN_TABLE_ROWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of a page. `lines` stay apart; a table has `cells` in rows instead.

    `marker` is an item's: `-`, or a number with what stands behind it. `level` is a heading's.
    """

    kind: Kind
    lines: tuple[str, ...] = ()
    cells: tuple[tuple[str, ...], ...] = ()
    marker: str = ""
    level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A page's `blocks` in reading order.

    `margins` are the keys of the rows in its margins, of which those that come again on the next
    page are running heads.
    """

    blocks: list[Block]
    margins: frozenset[str]


def structure_of(record: PageRecord, running: frozenset[str] = frozenset()) -> Structure | None:
    """The structure of a page; None where its lines do not tell.

    Args:
        record: of the page.
        running: rows known to be running heads, as `running_key` has them.
    """
    rows = rows_of(record)
    if rows is None:
        return None
    page = _Page(rows, record.height)
    header, body, footer = page.margins(running)
    groups = page.groups(body)
    found: list[Block] = []
    for at, group in enumerate(groups):
        found += page.blocks(group, groups[at + 1] if at + 1 < len(groups) else [])
    blocks = _numbered(found)
    head = [Block(kind="header", lines=tuple(row.text for row in header))] if header else []
    foot = [Block(kind="footer", lines=tuple(row.text for row in footer))] if footer else []
    return Structure(
        blocks=[*head, *blocks, *foot],
        margins=frozenset(
            running_key(row.text) for row in rows if _in_margin(row, record.height) is not None
        ),
    )


def running_key(text: str) -> str:
    """What a running head has in common from page to page: its text without numbers."""
    return " ".join(re.sub(r"\d+", "#", text).casefold().split())


def _in_margin(row: Row, height: int) -> Literal["header", "footer"] | None:
    if row.box[3] <= _MARGIN * height:
        return "header"
    return "footer" if row.box[1] >= (1 - _MARGIN) * height else None


class _Page:
    """What all rules look at: the rows of a page, the size of its text, and its pitch."""

    def __init__(self, rows: list[Row], height: int) -> None:
        self._rows, self._height = rows, height
        self._size = body_size(rows)
        self._pitch = pitch_of(rows) or 2 * self._size
        self._items = _numbered_rows(rows, self._size)
        self._words = {word.strip(".,;:!?\"'()") for row in rows for word in row.text.split()}

    def margins(self, running: frozenset[str]) -> tuple[list[Row], list[Row], list[Row]]:
        """Rows of the running head, of the page itself, and of its foot."""
        rows = self._rows
        if len(rows) < 3:
            return [], rows, []
        head = [0] if self._is_margin(rows[0], rows[1], "header", running) else []
        foot = [len(rows) - 1] if self._is_margin(rows[-1], rows[-2], "footer", running) else []
        first, last = len(head), len(rows) - len(foot)
        return rows[:first], rows[first:last], rows[last:]

    def _is_margin(self, row: Row, neighbour: Row, place: str, running: frozenset[str]) -> bool:
        """A row of its own at the page's edge, with a page number or as on an earlier page."""
        if _in_margin(row, self._height) != place:
            return False
        is_known = running_key(row.text) in running
        is_apart = abs(row.middle - neighbour.middle) > _SAME_PITCH * self._pitch
        is_numbered = _PAGE_NUMBER.search(row.text) is not None and len(row.text) < 80
        is_number = _ONLY_NUMBER.fullmatch(row.text) is not None
        return is_known or is_number or (is_apart and is_numbered)

    def groups(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Rows that belong together."""
        found: list[list[Row]] = []
        for row in rows:
            if found and not self._begins(row, found[-1]):
                found[-1].append(row)
            else:
                found.append([row])
        return found

    def _begins(self, row: Row, group: list[Row]) -> bool:
        """Whether a row begins a block; `group` is the one above it."""
        above = group[-1]
        if self._is_item(row) or (len(row.cells) > 1) != (len(above.cells) > 1):
            return True
        if row.column != above.column and not self._is_like(row, above):
            return not self._goes_on(above, row)
        step = row.middle - above.middle
        is_far = step > _SAME_PITCH * self._pitch
        if step > _BREAK * self._pitch or _are_aside(row, above):
            return True
        if len(row.cells) > 1:
            return False
        has_room = above.leaves_room_for(row)
        if (has_room or is_far) and self._is_other_type(row, group):
            return True
        hangs = self._is_item(group[0])
        if not hangs and self._is_set_in(row) and not self._is_deep(group):
            return True
        if not has_room:
            return row.is_apart and is_far
        is_end = _SENTENCE_END.search(above.text) is not None or row.text[:1] in _DASHES
        return (is_end and not row.text[:1].islower()) or (row.is_apart and not hangs)

    def _is_like(self, row: Row, above: Row) -> bool:
        """Whether a row goes on below another, though the column gets wider or narrower there."""
        is_below = 0 < row.middle - above.middle <= _SAME_PITCH * self._pitch
        is_in_line = abs(row.box[0] - above.box[0]) < _INDENT * self._size
        return is_below and is_in_line and not row.is_apart

    def _is_other_type(self, row: Row, group: list[Row]) -> bool:
        size, larger = median(one.size for one in group), _least_ratio(row)
        return not 1 / larger < row.size / size < larger

    def _is_set_in(self, row: Row) -> bool:
        return row.box[0] - row.left > _INDENT * self._size

    def _is_deep(self, group: list[Row]) -> bool:
        """Whether the whole group is set in: its rows are no first rows of paragraphs."""
        return len(group) > 1 and all(map(self._is_set_in, group[1:]))

    def _goes_on(self, above: Row, row: Row) -> bool:
        """Whether a paragraph goes on at the top of the next column."""
        is_open = not _SENTENCE_END.search(above.text) and len(above.text) >= _SHORT_ROWS
        is_like = abs(above.size / row.size - 1) < 0.15
        is_prose = len(above.cells) == len(row.cells) == 1
        is_up = row.middle < above.middle
        return is_prose and is_up and is_open and is_like and row.text[:1].islower()

    def _is_item(self, row: Row) -> bool:
        return _BULLET.match(row.text) is not None or row in self._items

    def blocks(self, group: list[Row], after: list[Row]) -> list[Block]:
        """What a group of rows is, before another."""
        if len(group[0].cells) > 1:
            return _tables(group)
        level = self._heading_level(group, after)
        if level:
            return [Block(kind="heading", lines=(self._join(group),), level=level)]
        bullet = _BULLET.match(group[0].text)
        if bullet is not None:
            text = "\n".join(self._lines(group))[bullet.end() :]
            return [Block(kind="item", lines=tuple(text.split("\n")), marker="-")]
        return [Block(kind="paragraph", lines=tuple(self._lines(group)))]

    def _heading_level(self, group: list[Row], after: list[Row]) -> int:
        """0 where a group is no heading: larger type, a few short rows, no sentence."""
        text = " ".join(row.text for row in group)
        is_short = len(group) <= 3 and len(text.split()) <= _MAX_TITLE_WORDS
        has_letters = sum(char.isalpha() for char in text) > 2
        if not is_short or not has_letters or self._is_item(group[0]) or _NO_TITLE.search(text):
            return 0
        ratio = median(row.size for row in group) / self._size
        if ratio < _least_ratio(group[0]) and not self._leads(group, after):
            return 0
        return 1 + sum(ratio < level for level in _LEVELS)

    def _leads(self, group: list[Row], after: list[Row]) -> bool:
        """Whether a row stands apart above prose, as headings do: a bit larger, or in capitals."""
        row = group[0]
        if len(group) > 1 or len(after) < 2 or not row.text[:1].isupper():
            return False
        if not row.is_apart or not row.leaves_room_for(after[0]) or len(after[0].cells) > 1:
            return False
        ratio = row.size / median(one.size for one in after)
        is_in_capitals = row.text.isupper() and _in_margin(row, self._height) is None
        return is_in_capitals or ratio > (_LEADS if row.is_exact else _LEADS_ON_PICTURES)

    def _lines(self, group: list[Row]) -> list[str]:
        """The text of a block: rows joined where only the paper's width parted them."""
        column = [row for row in self._rows if row.column == group[0].column]
        is_prose = any(len(row.text) >= _SHORT_ROWS for row in column) and not _is_verse(group)
        lines = [[group[0]]]
        for above, row in pairwise(group):
            is_same_column = above.column == row.column
            if not is_prose or (is_same_column and above.leaves_room_for(row)):
                lines.append([row])
            else:
                lines[-1].append(row)
        return [self._join(rows) for rows in lines]

    def _join(self, rows: list[Row]) -> str:
        text = rows[0].text
        for row in rows[1:]:
            text = self._mended(text, row.text)
        return text

    def _mended(self, text: str, more: str) -> str:
        """Two rows as one; a word that was broken between them is whole again."""
        hyphen = BROKEN_WORD.search(text)
        if hyphen is None:
            return f"{text} {more}"
        if not more[:1].islower():
            # German compounds, and names: Linux-Kernel.
            return f"{text}{more}" if more[:1].isupper() else f"{text} {more}"
        start = text.split()[-1][:-1].lstrip("\"'“‘(")
        end = more.split()[0].rstrip(".,;:!?\"'”’)")
        is_compound = "-" in start or f"{start}-{end}" in self._words
        if is_compound and start + end not in self._words:
            return text[: hyphen.start()] + "-" + more
        return text[: hyphen.start()] + more


def _least_ratio(row: Row) -> float:
    return _LARGER if row.is_exact else _LARGER_ON_PICTURES


def _are_aside(row: Row, above: Row) -> bool:
    """Whether two rows of one column begin at quite different places, as in a form."""
    return abs(row.box[0] - above.box[0]) > _ASIDE * row.width


def _is_verse(group: list[Row]) -> bool:
    """Whether nearly every row begins with a capital letter, as those of poems and lists do."""
    capitals = sum(row.text.lstrip("\"'“‘„«—– ")[:1].isupper() for row in group)
    return len(group) >= _MIN_VERSES and capitals >= _CAPITALS * len(group)


def _tables(group: list[Row]) -> list[Block]:
    """Rows of cells: tables where as many cells as above stand in each, else rows as they are."""
    blocks = []
    for _, rows in groupby(group, key=lambda row: len(row.cells)):
        cells = tuple(row.cells for row in rows)
        if len(cells) >= _MIN_TABLE_ROWS:
            blocks.append(Block(kind="table", cells=cells))
        else:
            blocks.append(Block(kind="paragraph", lines=tuple("  ".join(row) for row in cells)))
    return blocks


def _numbered_rows(rows: list[Row], size: float) -> set[Row]:
    """Rows that begin with a number, in a column with a row that begins with the next one."""
    numbered = [(row, int(match[1])) for row in rows if (match := _NUMBER.match(row.text))]
    return {
        row
        for row, number in numbered
        if any(
            abs(number - other_number) == 1
            and other.column == row.column
            and abs(other.box[0] - row.box[0]) < size
            for other, other_number in numbered
        )
    }


def _numbered(blocks: list[Block]) -> list[Block]:
    """Neighbouring paragraphs that are numbered one after the other become items.

    Not where another list ends right above: Markdown would go on with its numbers.
    """
    found: list[Block] = []
    for run in _counting_runs(blocks):
        is_list = len(run) > 1 and not (found and found[-1].marker[:1].isdecimal())
        found += map(_as_item, run) if is_list else run
    return found


def _counting_runs(blocks: list[Block]) -> list[list[Block]]:
    runs: list[list[Block]] = []
    last: tuple[int, str] | None = None
    for block in blocks:
        match = _NUMBER.match(block.lines[0]) if block.kind == "paragraph" else None
        if match is not None and last == (int(match[1]) - 1, match[2]):
            runs[-1].append(block)
        else:
            runs.append([block])
        last = (int(match[1]), match[2]) if match is not None else None
    return runs


def _as_item(block: Block) -> Block:
    match = _NUMBER.match(block.lines[0])
    assert match is not None
    lines = (block.lines[0][match.end() :], *block.lines[1:])
    return Block(kind="item", lines=lines, marker=match[1] + match[2])
