"""What every output format promises: the Writer protocol, and what the textual formats share.

A writer gets the records of one target in order and either publishes the target whole or leaves
nothing half written. Knows records and bytes; where the bytes go is `files`' business, which target
a record belongs to is `sink`'s.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from vlmcli.outputs.files import OutputFile
from vlmcli.results import PageRecord

_CONTROLS: dict[int, str | None] = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)))
_TEXT = _CONTROLS | {ord("\n"): "\n", ord("\t"): "\t", ord("\f"): "\n", ord("\v"): "\n"}


class Writer(Protocol):
    """One target in one format. Calls come as `write`* and then `finish` or `abort`, once."""

    def write(self, record: PageRecord) -> None:
        """Take the next page. Raises OutputError where the target cannot be written."""

    def finish(self) -> None:
        """Publish the target: afterwards it is whole and on disk."""

    def abort(self) -> None:
        """Give the target up: afterwards it is as before, or holds whole lines only."""


class Formatter(ABC):
    """A format that is text: turns records into the pieces of the target, in order."""

    @abstractmethod
    def render(self, record: PageRecord) -> str:
        """What this page adds to the target."""

    def tail(self) -> str:
        """What stands behind the last page."""
        return ""


class TextWriter:
    """A `Writer` for every format that is text and grows page by page, in UTF-8."""

    def __init__(self, formatter: Formatter, file: OutputFile) -> None:
        self._formatter = formatter
        self._file = file

    def write(self, record: PageRecord) -> None:
        """Append the page."""
        self._file.write(encode(self._formatter.render(record)))

    def finish(self) -> None:
        """Publish the file."""
        tail = self._formatter.tail()
        if tail:
            self._file.write(encode(tail))
        self._file.publish()

    def abort(self) -> None:
        """Give the file up."""
        self._file.discard()


def encode(text: str) -> bytes:
    r"""UTF-8, never failing: lone surrogates (from odd file names and fonts) become `\udc80`.

    Inside a JSON string that is the escape that JSON itself prescribes, so records survive exactly.
    """
    return text.encode("utf-8", errors="backslashreplace")


def plain(text: str) -> str:
    """The text of a page without control characters: what may be shown on a terminal.

    A document must not be able to send escape sequences to the reader's terminal, nor form feeds
    that would be taken for page ends. Line ends become line feeds.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_TEXT)


def failure_note(record: PageRecord) -> str:
    """What stands in place of a failed page's text, without brackets: `page 3 failed: timeout`."""
    what = f"page {record.page}" if record.page else record.document
    code = record.error.code if record.error else record.status
    note = f"{what} {'cut' if record.status == 'looped' else 'failed'}: {code}"
    return plain(note).replace("\n", " ")
