"""One job's loop: pages to the workers, crops to the reader, records to whoever takes them.

Runs in one thread and holds no page longer than it must; back-pressure is counted in bytes. Knows
neither outputs nor journal nor terminal: records leave through two callbacks.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vlmcli.assemble import PageIdentity, prepared_record, read_record, unreadable_document
from vlmcli.documents.prepared import PreparedPage, PrepareSpec
from vlmcli.documents.selection import parse_pages
from vlmcli.documents.source import Source
from vlmcli.errors import InputError, PageError, VlmcliError
from vlmcli.options import OcrOptions
from vlmcli.ordering import InOrder, Key
from vlmcli.processors import default_jobs
from vlmcli.reading import PageJob, Reader
from vlmcli.report import Reporter, Tally
from vlmcli.results import PageRecord
from vlmcli.workers import Failure, OpenedDocument, OpenTask, Outcome, PageTask, WorkerPool

PIXEL_BUDGET = 384 << 20
"""Bytes of pictures in the workers and the reader together, estimated before they are rendered."""
RECORD_BUDGET = 64 << 20
"""Bytes of finished records that may wait for an earlier page."""
READER_BUDGET = {"lines": 8 << 20, "page": 256 << 20}
"""Bytes of pixels that may wait in the reader: enough to keep its batches full."""
_RENDER_BYTES_PER_PIXEL = 8
"""RGB from the renderer, a grey copy, and the working copies of the line finder."""
_DEATHS_BEFORE_GIVING_UP = 2

ReaderFactory = Callable[[], Reader]


@dataclass(slots=True)
class _OpenDocument:
    """A document whose pages are being handed out."""

    opened: OpenedDocument
    selected: tuple[int, ...]
    cursor: int = 0

    @property
    def is_exhausted(self) -> bool:
        return self.cursor >= len(self.selected)

    def identity(self, place: int) -> PageIdentity:
        name = self.opened.source.name
        return PageIdentity(document=name, page=self.selected[place], pages=len(self.opened.pages))


@dataclass(slots=True)
class _Page:
    """A page between hand-out and record. `cost` is what it counts for in the pixel budget."""

    key: Key
    identity: PageIdentity
    task: PageTask
    cost: int
    attempt: int = 1
    prepared: PreparedPage | None = None
    job: PageJob | None = None


class OcrJob:
    """The state of one job; `run` does it. Methods stand in the order of a page's way.

    Args:
        options: what was asked for.
        sources: the documents, in order.
        spec: what the workers do with a page.
        make_reader: loads the model; called at the first page that needs it.
        model: name and revision for the records.
        done: records of an earlier run, by document and page.
        on_record: takes each new record at once, in any order (the journal).
        on_next: takes each record in document order (the outputs).
        reporter: is told what happens.
    """

    def __init__(
        self,
        options: OcrOptions,
        sources: Sequence[Source],
        *,
        spec: PrepareSpec,
        make_reader: ReaderFactory,
        model: str,
        done: Mapping[tuple[str, int], PageRecord],
        on_record: Callable[[PageRecord], None],
        on_next: Callable[[PageRecord], None],
        reporter: Reporter,
    ) -> None:
        self._options = options
        self._sources = sources
        self._spec = spec
        self._make_reader = make_reader
        self._model = model
        self._done = done
        self._on_record = on_record
        self._on_next = on_next
        self._reporter = reporter
        self._jobs = options.jobs or default_jobs()
        self._pool = WorkerPool(self._jobs, timeout=options.page_timeout)
        self._reader: Reader | None = None
        self._num_sent_to_open = 0
        self._num_opening = 0
        self._documents: dict[int, _OpenDocument] = {}
        self._current = 0
        self._pages: dict[int, _Page] = {}
        self._num_pages_submitted = 0
        self._order = InOrder()
        self._bytes_in_flight = 0
        self._bytes_in_reader = 0
        self._in_reader: dict[int, _Page] = {}
        self._first_since = 0.0
        """When the first page of `_in_reader` became the first."""
        self._num_announced = 0
        self.tally = Tally()

    def run(self) -> None:
        """Do the job.

        Raises:
            VlmcliError: the only document cannot be opened; the model cannot be loaded; a page
                failed under `fail_fast`; or what the callbacks raise.
        """
        try:
            while not self._is_finished():
                self._hand_out()
                self._collect()
                self._read()
                self._flush()
        finally:
            self._pool.close()

    def close(self) -> dict[str, float]:
        """Release the model; its counters, or nothing if it was never needed."""
        if self._reader is None:
            return {}
        stats = self._reader.stats()
        self._reader.close()
        return stats

    def _is_finished(self) -> bool:
        return self._current == len(self._sources) and not self._pages

    # --- from the documents to the workers -------------------------------------------------------

    def _hand_out(self) -> None:
        """Give work to the pool while it has room and the budgets allow."""
        while self._pool.can_take():
            document = self._current_document()
            if document is not None and self._has_room(document):
                self._submit_page(document)
            elif not self._open_next():
                return

    def _current_document(self) -> _OpenDocument | None:
        """The document whose pages are next, None while it is not open yet."""
        while (document := self._documents.get(self._current)) is not None:
            if not document.is_exhausted:
                return document
            del self._documents[self._current]
            self._current += 1
        return None

    def _open_next(self) -> bool:
        """Open a document ahead of its turn; no more of them than there are workers."""
        number = self._num_sent_to_open
        if number == len(self._sources) or len(self._documents) + self._num_opening > self._jobs:
            return False
        options = self._options
        self._pool.submit(
            OpenTask(
                number=number,
                source=self._sources[number],
                password=options.password,
                strict=options.strict,
            )
        )
        self._num_sent_to_open += 1
        self._num_opening += 1
        return True

    def _has_room(self, document: _OpenDocument) -> bool:
        """Whether the next page fits the budgets. Alone in flight, any page does."""
        if self._is_done_before(document) or not self._pages:
            return True
        return (
            self._bytes_in_flight + self._cost(document) <= PIXEL_BUDGET
            and self._bytes_in_reader <= READER_BUDGET[self._spec.reads]
            and self._order.waiting_bytes <= RECORD_BUDGET
        )

    def _cost(self, document: _OpenDocument) -> int:
        handle = document.opened.pages[document.selected[document.cursor] - 1]
        render = self._spec.render
        size = handle.pixel_size(render.dpi, render.max_pixels)
        return size.width * size.height * _RENDER_BYTES_PER_PIXEL

    def _is_done_before(self, document: _OpenDocument) -> bool:
        page = document.selected[document.cursor]
        return (document.opened.source.name, page) in self._done

    def _submit_page(self, document: _OpenDocument) -> None:
        key = (self._current, document.cursor)
        identity = document.identity(document.cursor)
        if self._is_done_before(document):
            document.cursor += 1
            self.tally.num_resumed += 1
            self._file(key, self._done[identity.document, identity.page])
            return
        cost = self._cost(document)
        document.cursor += 1
        self._num_pages_submitted += 1
        task = PageTask(
            serial=self._num_pages_submitted,
            source=document.opened.source,
            password=self._options.password,
            index=identity.page - 1,
            spec=self._spec,
        )
        self._pages[task.serial] = _Page(key=key, identity=identity, task=task, cost=cost)
        self._bytes_in_flight += cost
        self._reporter.page_started(identity.document, identity.page, 1)
        self._pool.submit(task)

    # --- from the workers to the reader ----------------------------------------------------------

    def _collect(self) -> None:
        is_reading = self._reader is not None and self._reader.has_work()
        for task, outcome in self._pool.collect(0.0 if is_reading else 0.5):
            if isinstance(task, OpenTask):
                self._num_opening -= 1
                self._take_document(task, outcome)
            else:
                self._take_prepared(self._pages[task.serial], outcome)

    def _take_document(self, task: OpenTask, outcome: Outcome) -> None:
        try:
            if isinstance(outcome, Failure):
                raise outcome.error or InputError(
                    f"cannot read {task.source.name}: {outcome.message}"
                )
            assert isinstance(outcome, OpenedDocument)
            selected = parse_pages(self._options.pages or "1-end", len(outcome.pages))
        except VlmcliError as error:
            self._fail_document(task, error)
            return
        for text in outcome.warnings:
            self._reporter.warning(f"{task.source.name}: {text}")
        self._announce(task.number, task.source.name, len(selected))
        self._documents[task.number] = _OpenDocument(opened=outcome, selected=selected)

    def _fail_document(self, task: OpenTask, error: VlmcliError) -> None:
        """A document that cannot be read: the end of a job of one, a record in a job of many."""
        if len(self._sources) == 1 or self._options.fail_fast:
            raise error
        self.tally.document_errors.append(error)
        self._reporter.warning(str(error))
        self._announce(task.number, task.source.name, 1)
        nothing = OpenedDocument(source=task.source, pages=(), warnings=())
        self._documents[task.number] = _OpenDocument(opened=nothing, selected=())
        record = unreadable_document(task.source.name, error.code, error.message)
        self._file((task.number, 0), record)

    def _announce(self, number: int, name: str, num_records: int) -> None:
        self._order.expect(number, num_records)
        self._num_announced += num_records
        self.tally.num_documents += 1
        if self.tally.num_documents == len(self._sources):
            self._reporter.start(self._num_announced)
        self._reporter.document(name, num_records)

    def _take_prepared(self, page: _Page, outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            self._take_failure(page, outcome)
            return
        assert isinstance(outcome, PreparedPage)
        for text in outcome.warnings:
            self._reporter.warning(f"{page.identity.document}, page {page.identity.page}: {text}")
        is_empty = not outcome.crops and outcome.picture is None
        if outcome.outcome != "read" or is_empty:
            self._finish(page, prepared_record(page.identity, outcome))
            return
        self._bytes_in_flight -= page.cost
        page.cost = 0
        self._submit_to_reader(page, outcome)

    def _take_failure(self, page: _Page, failure: Failure) -> None:
        if failure.kind == "died" and page.attempt < _DEATHS_BEFORE_GIVING_UP:
            # A neighbour in the same process may have been at fault; alone it may pass.
            page.attempt += 1
            self._reporter.page_started(page.identity.document, page.identity.page, page.attempt)
            self._pool.submit(page.task)
            return
        is_late = failure.kind == "timeout"
        code = {"died": "worker-died", "timeout": "timeout"}.get(failure.kind, "render")
        if isinstance(failure.error, VlmcliError):
            code = failure.error.code
        self._finish(
            page,
            page.identity.failed(
                code,
                failure.message,
                attempts=page.attempt,
                status="timeout" if is_late else "error",
            ),
        )

    def _submit_to_reader(self, page: _Page, prepared: PreparedPage) -> None:
        if self._reader is None:
            self._reader = self._make_reader()
        job = PageJob(
            key=page.task.serial,
            crops=prepared.crops,
            picture=prepared.picture,
            draft=prepared.text or None,
        )
        page.prepared = replace(prepared, picture=None)
        page.job = job
        if not self._in_reader:
            self._first_since = time.monotonic()
        self._in_reader[job.key] = page
        self._bytes_in_reader += job.nbytes
        self._reader.submit(job)

    # --- from the reader to the record -----------------------------------------------------------

    def _read(self) -> None:
        if self._reader is None or not self._reader.has_work():
            return
        for reading in self._reader.step():
            page = self._pages[reading.key]
            assert page.prepared is not None and page.job is not None
            record = read_record(
                page.identity, page.prepared, reading, crops=page.job.crops, model=self._model
            )
            self._finish(page, record)
        self._abort_late_page(self._reader)

    def _abort_late_page(self, reader: Reader) -> None:
        """Give up the page that has been in the reader longest, if it has been first for too long.

        The time of the pages behind it does not run: they may just be waiting for their turn.
        """
        timeout = self._options.page_timeout
        if timeout is None or not self._in_reader:
            return
        if time.monotonic() - self._first_since <= timeout:
            return
        page = next(iter(self._in_reader.values()))
        reader.abort(page.task.serial)
        message = f"not read within {timeout:g} s"
        self._finish(
            page,
            page.identity.failed("timeout", message, attempts=page.attempt, status="timeout"),
        )

    def _finish(self, page: _Page, record: PageRecord) -> None:
        serial = page.task.serial
        del self._pages[serial]
        self._bytes_in_flight -= page.cost
        if page.job is not None:
            self._bytes_in_reader -= page.job.nbytes
            if serial == next(iter(self._in_reader)):
                self._first_since = time.monotonic()
            del self._in_reader[serial]
        self._on_record(record)
        self._file(page.key, record)
        if record.is_failed and self._options.fail_fast:
            self._flush()
            raise PageError(
                f"stopped at {record.document}, page {record.page}: "
                f"{record.error.message if record.error else record.status}",
                code=record.error.code if record.error else "read",
            )

    def _file(self, key: Key, record: PageRecord) -> None:
        """Count a record and put it in its place in the order."""
        self._order.put(key, record)
        self.tally.count(record)
        is_complete = self.tally.num_documents == len(self._sources)
        total = self._num_announced if is_complete else None
        self._reporter.page_done(record, self.tally.num_pages, total)

    def _flush(self) -> None:
        for _, record in self._order.take():
            self._on_next(record)
