r"""Markdown: the page's paragraphs under a page marker, escaped so that rendering keeps the text.

What a reader sees after rendering is what was recognised: a line that happens to begin with `1.` or
`#` does not turn into a list or a heading. Printed lines stay lines. Recovers no structure
(headings, lists, tables): that needs a layout, not a text.
"""

import re

from vlmcli.outputs.base import Formatter, failure_note, plain
from vlmcli.results import PageRecord

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

    def render(self, record: PageRecord) -> str:
        """The page's marker and its paragraphs, led by an empty line unless the target's first."""
        blocks: list[str] = []
        lead = "" if self._document is None else "\n"
        if self._name_documents and record.document != self._document:
            blocks.append(_comment(f"document {record.document}"))
        self._document = record.document
        if record.page:
            blocks.append(_comment(_page_mark(record)))
        blocks += _paragraphs(record.text)
        if record.is_failed:
            blocks.append(f"**[vlmcli: {escape(failure_note(record))}]**")
        return lead + "\n\n".join(blocks) + "\n"


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
