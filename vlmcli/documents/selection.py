"""Which pages: `1,3-5,7-end`, counted from 1 as people and OCRmyPDF do. Pure."""

import re

from vlmcli.errors import UsageError

_PART = re.compile(r"(end|[0-9]+)(?:\s*-\s*(end|[0-9]+))?")
_REMEDY = "write page numbers and ranges, as in 1,3-5,7-end"

PageRange = tuple[int | None, int | None]
"""First and last page, both included; None stands for `end`."""


def parse_ranges(text: str) -> tuple[PageRange, ...]:
    """Check the grammar of a selection before any document is opened.

    Raises:
        UsageError: not a selection.
    """
    ranges: list[PageRange] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"not a page selection: {text!r}", remedy=_REMEDY)
        first = _number(match[1])
        last = first if match[2] is None else _number(match[2])
        if first == 0 or last == 0:
            raise UsageError(f"page selection {text!r} names page 0", remedy="pages count from 1")
        if last is not None and (first is None or first > last):
            raise UsageError(f"page selection {text!r} runs backwards", remedy=_REMEDY)
        ranges.append((first, last))
    return tuple(ranges)


def parse_pages(text: str, num_pages: int) -> tuple[int, ...]:
    """The selected page numbers of a document with `num_pages` pages, ascending, each once.

    Raises:
        UsageError: not a selection, or it names pages that the document does not have.
    """
    pages: set[int] = set()
    for first, last in parse_ranges(text):
        start = num_pages if first is None else first
        stop = num_pages if last is None else last
        if max(start, stop) > num_pages:
            count = f"{num_pages} page" + ("" if num_pages == 1 else "s")
            raise UsageError(
                f"page selection {text!r} goes beyond the end: the document has {count}",
                remedy=f"select pages 1 to {num_pages}",
            )
        pages.update(range(start, stop + 1))
    return tuple(sorted(pages))


def _number(word: str) -> int | None:
    if word == "end":
        return None
    # int() refuses thousands of digits; no document has that many pages.
    return int(word) if len(word) < 20 else 10**20
