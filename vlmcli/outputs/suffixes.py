"""Which format the name of a file asks for. Knows names alone; looks at no file."""

from collections.abc import Mapping
from pathlib import Path

from vlmcli.options import Format

_SUFFIXES: Mapping[str, Format] = {
    ".dolma.jsonl": "dolma",
    ".txt": "text",
    ".text": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".jsonl": "jsonl",
    ".hocr": "hocr",
    ".html": "hocr",
    ".htm": "hocr",
    ".alto": "alto",
    ".xml": "alto",
    ".pdf": "pdf",
}
"""Longer ones first where one ends with another. hOCR is HTML, ALTO is XML."""

_ALSO: Mapping[Format, Format] = {"dolma": "jsonl"}
"""Formats that are a kind of another one, whose suffix fits them too."""


def format_of(path: Path) -> Format | None:
    """The format whose suffix the name has, whatever its case; None where it has none of them."""
    name = path.name.lower()
    return next((format_ for end, format_ in _SUFFIXES.items() if name.endswith(end)), None)


def belongs_to_another(path: Path, format_: Format) -> Format | None:
    """The format that a reader of the name takes the file for, where it is not `format_`."""
    named = format_of(path)
    return None if named in (format_, _ALSO.get(format_)) else named
