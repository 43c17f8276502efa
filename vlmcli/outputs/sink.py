"""Takes a job's records in order and hands each to the writers of its target.

The records of a document come together, page by page, documents in the job's order; at most one
document's files are open. A directory output publishes a document when the next one begins or the
job ends. Nothing is created before the first record.
"""

import io
from collections.abc import Callable
from typing import BinaryIO

from vlmcli.options import Format
from vlmcli.outputs.alto import AltoFormatter
from vlmcli.outputs.base import Formatter, TextWriter, Writer
from vlmcli.outputs.dolma import DolmaFormatter
from vlmcli.outputs.files import AtomicFile, GrowingFile, OutputFile, StreamFile
from vlmcli.outputs.hocr import HocrFormatter
from vlmcli.outputs.jsonl import JsonlFormatter
from vlmcli.outputs.markdown import MarkdownFormatter
from vlmcli.outputs.targets import OutputPlan
from vlmcli.outputs.text import TextFormatter
from vlmcli.results import PageRecord

_FORMATTERS: dict[Format, Callable[[], Formatter]] = {
    "text": TextFormatter,
    "jsonl": JsonlFormatter,
    "hocr": HocrFormatter,
    "alto": AltoFormatter,
    "dolma": DolmaFormatter,
}


def _pdf_writer(name: str, plan: OutputPlan, file: OutputFile) -> Writer:
    # Imports numpy and, later, PyMuPDF, which no other format needs in this process.
    from vlmcli.documents.base import Source
    from vlmcli.outputs.searchable_pdf import SearchablePdfWriter

    source = Source(path=plan.sources[name], name=name)
    return SearchablePdfWriter(
        source, plan.password, file, pdfa=plan.pdfa, max_pixels=plan.max_pixels
    )


class RecordSink:
    """The one place that a pipeline writes results to.

    Calls come as `begin`, `write`*, then `finish` or `abort`. `write` and `finish` raise
    OutputError where a target cannot be written, and ReaderGoneError where a pipe's reader has
    gone; the caller then calls `abort`.

    Args:
        plan: where the records go.
        stdout: the stream that carries results when the plan names no file.
    """

    def __init__(self, plan: OutputPlan, stdout: BinaryIO | io.RawIOBase) -> None:
        self._plan = plan
        self._stdout = stdout
        self._document: str | None = None
        self._writers: list[Writer] = []
        self._finished: set[str] = set()

    def begin(self) -> None:
        """Open the writers of an output that takes all documents. Creates no file yet."""
        if self._plan.kind != "directory":
            self._writers = [self._writer(format_, "") for format_ in self._plan.formats]

    def write(self, record: PageRecord) -> None:
        """Hand on the next record.

        A document that could not be opened at all has one record with page 0. A directory output
        has a place for it in JSONL only: a text file with nothing but an error in it would look
        like a result.
        """
        if self._plan.kind == "directory" and record.document != self._document:
            self._next_document(record)
        for writer in self._writers:
            writer.write(record)

    def finish(self) -> None:
        """Publish what is open."""
        for writer in self._writers:
            writer.finish()
        self._writers = []

    def abort(self) -> None:
        """Give up what is open; published documents stay. Callable at any time, never raises."""
        for writer in self._writers:
            writer.abort()
        self._writers = []

    def _next_document(self, record: PageRecord) -> None:
        self.finish()
        assert record.document not in self._finished, f"came back: {record.document}"
        self._finished.add(record.document)
        self._document = record.document
        formats = self._plan.formats if record.page else ("jsonl",)
        self._writers = [
            self._writer(format_, record.document)
            for format_ in self._plan.formats
            if format_ in formats
        ]

    def _writer(self, format_: Format, document: str) -> Writer:
        file = self._file(format_, document)
        if format_ == "pdf":
            name = document or next(iter(self._plan.sources))
            return _pdf_writer(name, self._plan, file)
        return TextWriter(self._formatter(format_), file)

    def _formatter(self, format_: Format) -> Formatter:
        if format_ == "markdown":
            is_shared = self._plan.kind != "directory" and self._plan.num_documents > 1
            return MarkdownFormatter(name_documents=is_shared)
        return _FORMATTERS[format_]()

    def _file(self, format_: Format, document: str) -> OutputFile:
        plan = self._plan
        if plan.kind == "stream":
            name = "stdout" if plan.path is None else str(plan.path)
            return StreamFile(self._stdout if plan.path is None else None, name)
        path = plan.files_of(document)[format_]
        if format_ == "jsonl":
            return GrowingFile(path, resume=plan.resume, overwrite=plan.overwrite)
        return AtomicFile(path)
