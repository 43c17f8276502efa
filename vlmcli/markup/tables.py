"""HTML tables in a text, written as Markdown or plain text.

Cells that span several columns or rows stand in the first place, the others are empty. A table
that a grid cannot say is left as it is: one with a table, a list or a picture in it, one that does
not end, one with more cells than any page has.
"""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from vlmcli.markup.grid import write_grid

_EDGE = re.compile(r"<(/?)table\b[^>]*>", re.IGNORECASE)
_MOST_CELLS = 20_000
_MOST_SPAN = 1_000
_NOT_IN_CELLS = frozenset(
    {
        *("table", "ul", "ol", "dl", "pre", "img", "math", "svg", "form"),
        # The library's parser reads these to their ends, and drops what does not end.
        *("script", "style", "textarea", "title", "iframe", "xmp", "noembed", "noframes"),
        "plaintext",
    }
)
_BREAKS = frozenset({"br", "p", "div", "li"})
_PARTS = frozenset({"thead", "tbody", "tfoot", "caption", "colgroup", "col"})


class _TooMuchError(Exception):
    """The table is none that a grid can say."""


def convert_tables(text: str, *, plain: bool) -> str:
    """The text with its HTML tables as Markdown tables, or as rows of plain text.

    Args:
        text: anything; outside of tables it stays as it is.
        plain: see `write_grid`.
    """
    pieces: list[str] = []
    done = 0
    for start, end in _outermost(text):
        grid = _read(text[start:end])
        if grid is not None:
            pieces += [text[done:start], _set_off(text[:start], grid, text[end:], plain)]
            done = end
    return "".join([*pieces, text[done:]])


def _set_off(before: str, grid: list[list[str]], after: str, plain: bool) -> str:
    """A table with empty lines around it, without which Markdown takes it for text."""
    table = write_grid(grid, plain=plain)
    above = "" if not before.strip() or before.endswith("\n\n") else "\n\n"
    below = "" if not after.strip() or after.startswith("\n\n") else "\n\n"
    if before.endswith("\n") and above:
        above = "\n"
    if after.startswith("\n") and below:
        below = "\n"
    return f"{above}{table}{below}"


def _outermost(text: str) -> list[tuple[int, int]]:
    """Where tables begin and end that are not in another one."""
    found = []
    depth = start = 0
    for edge in _EDGE.finditer(text):
        if not edge[1]:
            start = edge.start() if depth == 0 else start
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                found.append((start, edge.end()))
    return found


def _read(html: str) -> list[list[str]] | None:
    """The grid of one table; None where it has none."""
    if "<!" in html or "<?" in html:
        # Comments and declarations, at some of which the library's parser fails.
        return None
    parser = _TableParser()
    try:
        parser.feed(html)
        parser.close()
        grid = parser.grid()
    except _TooMuchError:
        return None
    return grid or None


@dataclass(slots=True)
class _Cell:
    across: int
    down: int
    text: list[str] = field(default_factory=list)


class _TableParser(HTMLParser):
    """Collects the cells of one table with their spans; end tags of rows and cells may lack.

    A comment, or an end tag that is none, could hold words that a grid does not show.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._rows: list[list[_Cell]] = []
        self._cell: _Cell | None = None
        self._is_open = self._is_caption = False
        self._caption: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A row or a cell begins, or the table turns out to be none that a grid can say."""
        if any(value is None and name != "nowrap" for name, value in attrs):
            # A tag that never closed has swallowed words of the page.
            raise _TooMuchError
        if tag == "table" and not self._is_open:
            self._is_open = True
        elif tag in _NOT_IN_CELLS:
            raise _TooMuchError
        elif tag == "tr":
            self._cell = None
            self._rows.append([])
        elif tag in ("td", "th"):
            if not self._rows:
                self._rows.append([])
            spans = dict(attrs)
            self._cell = _Cell(across=_span(spans.get("colspan")), down=_span(spans.get("rowspan")))
            self._rows[-1].append(self._cell)
        elif tag in _BREAKS:
            self.handle_data(" ")
        elif tag in _PARTS:
            self._cell = None
            self._is_caption = tag == "caption"

    def handle_endtag(self, tag: str) -> None:
        """A cell ends with its row or its part of the table, if it did not say so itself."""
        if tag in ("td", "th", "tr", *_PARTS):
            self._cell = None
            self._is_caption = False

    def handle_comment(self, data: str) -> None:
        """Words that a grid does not show."""
        raise _TooMuchError

    def handle_data(self, data: str) -> None:
        """Text, of the open cell if there is one."""
        if self._cell is not None:
            self._cell.text.append(data)
        elif data.strip():
            # Words between cells would be lost in a grid, and so would a caption's.
            raise _TooMuchError

    def grid(self) -> list[list[str]]:
        """Rows of cells' texts; spanned places are empty."""
        taken: dict[tuple[int, int], str] = {}
        for y, row in enumerate(self._rows):
            x = 0
            for cell in row:
                while (y, x) in taken:
                    x += 1
                if len(taken) + cell.across * cell.down > _MOST_CELLS:
                    raise _TooMuchError
                for dy in range(min(cell.down, len(self._rows) - y)):
                    for dx in range(cell.across):
                        taken.setdefault((y + dy, x + dx), "")
                taken[y, x] = "".join(cell.text)
                x += cell.across
        width = 1 + max((x for _, x in taken), default=-1)
        return [[taken.get((y, x), "") for x in range(width)] for y in range(len(self._rows))]


def _span(value: str | None) -> int:
    text = (value or "1").strip()
    return max(1, min(int(text), _MOST_SPAN)) if text.isascii() and text.isdigit() else 1
