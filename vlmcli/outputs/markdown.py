r"""Markdown: the page's structure under a page marker, escaped so that rendering keeps the text.

Headings, paragraphs, lists and simple tables come from where lines stand (`structure`); running
heads and page numbers become comments. A page without lines of its own, as readers of whole pages
give it, keeps its text as it is: printed lines stay lines. What a reader sees after rendering is
what was recognised: a line that happens to begin with `1.` or `#` does not turn into a list or a
heading.
"""

import re
from typing import TYPE_CHECKING

from vlmcli.outputs.base import Formatter, failure_note, plain
from vlmcli.results import PageRecord

if TYPE_CHECKING:
    from vlmcli.outputs.structure import Block

EXTENSION = ".md"

_INLINE = re.compile(
    r"""
      [\\`*\[\]|~]                      # always able to begin something
    | (?<![^\W_])_ | _(?![^\W_])        # emphasis, unless inside a word
    | <(?=[A-Za-z/!?])                  # tags, comments, autolinks
    | &(?=\#?\w+;)                      # character references
    | !(?=\[)                           # images
    """,
    re.VERBOSE,
)
_BLOCK = re.compile(
    r"""
      (?=\#{1,6}(?:\s|$)) | (?=>)       # headings, quotations
    | (?=[-+](?:\s|$))                  # bullets
    | (?=[-=:][-=:\s]*$)                # heading underlines, rules, table rulers
    | \d{1,9}(?=[.)](?:\s|$))           # numbered lists
    """,
    re.VERBOSE,
)


class MarkdownFormatter(Formatter):
    """Formatter of `-f markdown`.

    Args:
        name_documents: mark where a document begins; for targets that hold several.
    """

    def __init__(self, *, name_documents: bool = False) -> None:
        self._name_documents = name_documents
        self._document: str | None = None
        self._running: frozenset[str] = frozenset()
        """Rows in the margins of the last page of the same document."""

    def render(self, record: PageRecord) -> str:
        """The page's marker and its paragraphs, led by an empty line unless the target's first."""
        blocks: list[str] = []
        lead = "" if self._document is None else "\n"
        if self._name_documents and record.document != self._document:
            blocks.append(_comment(f"document {record.document}"))
        if record.document != self._document:
            self._running = frozenset()
        self._document = record.document
        if record.page:
            blocks.append(_comment(_page_mark(record)))
        blocks += self._content(record)
        if record.is_failed:
            blocks.append(f"**[vlmcli: {escape(failure_note(record))}]**")
        return lead + "\n\n".join(blocks) + "\n"

    def _content(self, record: PageRecord) -> list[str]:
        """The page's blocks, or its lines where nothing is known about them."""
        # Every command imports this file, and few write Markdown.
        from vlmcli.outputs.structure import structure_of

        found = structure_of(record, self._running) if record.answers is None else None
        if found is None:
            return _paragraphs(record.text)
        self._running = found.margins or self._running
        return _written(found.blocks)


def escape(line: str) -> str:
    """One line of plain text as Markdown that renders to the same line.

    Blanks at its ends are dropped: they mean code or a line break to Markdown, nothing to a reader.
    """
    line = _INLINE.sub(lambda match: "\\" + match[0], line.strip())
    block = _BLOCK.match(line)
    return line if block is None else f"{block[0]}\\{line[block.end() :]}"


def _paragraphs(text: str) -> list[str]:
    """Runs of non-empty lines, each escaped."""
    paragraphs: list[list[str]] = [[]]
    for line in plain(text).split("\n"):
        if line.strip():
            paragraphs[-1].append(escape(line))
        elif paragraphs[-1]:
            paragraphs.append([])
    return ["\n".join(lines) for lines in paragraphs if lines]


def _written(blocks: "list[Block]") -> list[str]:
    """Blocks of Markdown; neighbouring items of one list are one block."""
    texts: list[str] = []
    list_before = ""
    for block in blocks:
        kind_of_list = block.marker.lstrip("0123456789") if block.kind == "item" else ""
        text = _block(block)
        if kind_of_list and kind_of_list == list_before:
            texts[-1] += f"\n{text}"
        else:
            texts.append(text)
        list_before = kind_of_list
    return texts


def _block(block: "Block") -> str:
    if block.kind in ("header", "footer"):
        return _comment(f"{block.kind}: {' '.join(block.lines)}")
    if block.kind == "table":
        return _table(block.cells)
    lines = [escape(line) for line in block.lines if line.strip()]
    if block.kind == "heading":
        # A number sign at the end would be taken for the heading's own.
        text = re.sub(r"#$", r"\\#", " ".join(lines))
        return f"{'#' * block.level} {text}"
    indent = " " * (len(block.marker) + 1) if block.kind == "item" else ""
    lead = f"{block.marker} " if block.kind == "item" else ""
    return lead + f"\\\n{indent}".join(lines)


def _table(rows: tuple[tuple[str, ...], ...]) -> str:
    """A GFM table. Its first row is its head where it alone has no figures."""
    has_figures = [any(char.isdigit() for cell in row for char in cell) for row in rows]
    has_head = not has_figures[0] and sum(has_figures) > 0.5 * len(rows)
    head = rows[0] if has_head else ("",) * len(rows[0])
    body = rows[1:] if has_head else rows
    lines = [head, ("---",) * len(head), *body]
    return "\n".join(
        f"| {' | '.join(cell if cell == '---' else escape(cell) for cell in line)} |"
        for line in lines
    )


def _page_mark(record: PageRecord) -> str:
    """Which page begins; for a frame of a video also when, as in `page 3, 0:02:05`."""
    if record.time is None:
        return f"page {record.page}"
    minutes, seconds = divmod(int(record.time), 60)
    return f"page {record.page}, {minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def _comment(text: str) -> str:
    """A comment; `--` inside is taken apart, since it could end the comment."""
    safe = plain(text).replace("\n", " ").replace("--", "-\u200b-").replace("--", "-\u200b-")
    return f"<!-- {safe} -->"
