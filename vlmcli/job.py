"""One job's loop: pages to the workers, crops to the reader, records to whoever takes them.

Runs in one thread and holds no page longer than it must; back-pressure is counted in bytes. Knows
neither outputs nor journal nor terminal: records leave through two callbacks.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vlmcli.admission import Admission, Limits, PageCost
from vlmcli.assemble import PageIdentity, prepared_record, read_record, unreadable_document
from vlmcli.desk import Desk
from vlmcli.documents.prepared import PreparedPage, PrepareSpec
from vlmcli.documents.source import PageHandle, Source
from vlmcli.errors import PageError, VlmcliError
from vlmcli.ledger import Ledger
from vlmcli.memory.allocator import give_back
from vlmcli.memory.devices import resident_bytes
from vlmcli.memory.gate import MemoryGate
from vlmcli.memory.guard import MemoryGuard, Watched
from vlmcli.memory.settings import Budgets
from vlmcli.openings import OpenDocument, Openings
from vlmcli.options import OcrOptions
from vlmcli.ordering import Key
from vlmcli.reading import PageJob, Reader
from vlmcli.report import Reporter, Tally
from vlmcli.results import PageRecord
from vlmcli.workers import Failure, OpenTask, Outcome, PageTask, WorkerPool

MEASURED_DOCUMENTS = 200
"""Documents that are measured before the first page is drawn."""
_DEATHS_BEFORE_GIVING_UP = 2
_NOTHING_YET = Limits(jobs=1, worker_bytes=0, reader_bytes=0)
_TOO_LARGE = "reading the page needs more memory than there is, even alone"
_FEWER_PAGES = "memory is short: fewer pages at a time from here on"

ReaderFactory = Callable[[Budgets], Reader]


@dataclass(slots=True)
class _Page:
    """A page between hand-out and record."""

    key: Key
    identity: PageIdentity
    task: PageTask
    cost: PageCost
    attempt: int = 1
    prepared: PreparedPage | None = None


class OcrJob:
    """The state of one job; `run` does it. Methods stand in the order of a page's way.

    Args:
        options: what was asked for.
        sources: the documents, in order.
        spec: what the workers do with a page.
        gate: plans the memory.
        make_reader: loads the model under the plan's bounds; called at the first page that needs
            it, and again where a later document asks for more.
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
        gate: MemoryGate,
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
        self._reporter = reporter
        self._gate = gate
        self._jobs = gate.measuring_jobs()
        self._pool = WorkerPool(self._jobs, timeout=options.page_timeout)
        self._admission = Admission(_NOTHING_YET)
        self._is_measured = False
        """Whether the first documents have been measured and the job is planned."""
        self._desk = Desk(self._load_reader, timeout=options.page_timeout)
        host, device = gate.host_cap_bytes, gate.device_cap_bytes
        self._guard = MemoryGuard(
            Watched(name="memory", cap_bytes=host, read=self._resident),
            Watched(name="device_memory", cap_bytes=device, read=self._desk.device_bytes),
        )
        self._openings = Openings(sources, options)
        self._pages: dict[int, _Page] = {}
        self._num_pages_submitted = 0
        self._again: deque[_Page] = deque()
        """Pages that cost a worker its life or ran out of memory; each has the workers alone."""
        self._has_warned = False
        self._ledger = Ledger(
            len(sources),
            on_record=on_record,
            on_next=on_next,
            reporter=reporter,
            fail_fast=options.fail_fast,
        )

    @property
    def tally(self) -> Tally:
        """What the job has come to so far."""
        return self._ledger.tally

    def run(self) -> None:
        """Do the job.

        Raises:
            VlmcliError: the only document cannot be opened; the job does not fit into memory; the
                model cannot be loaded; a page failed under `fail_fast`; or what the callbacks
                raise.
        """
        try:
            while not self._is_finished():
                self._hand_out()
                self._collect()
                self._read()
                self._ledger.flush()
                self._keep_within_cap()
        finally:
            self._pool.close()

    def close(self) -> dict[str, float]:
        """Release the model; its counters, and what memory was planned and taken."""
        self._desk.unload()
        return self._desk.stats() | self._gate.stats() | self._guard.stats()

    def _is_finished(self) -> bool:
        return self._openings.is_finished and not self._pages

    # --- from the documents to the workers -------------------------------------------------------

    def _hand_out(self) -> None:
        """Give work to the pool while it has room and the budgets allow."""
        if not self._is_measured and not self._measure():
            return
        while self._again:
            if self._pool.num_pending:
                return
            self._pool.submit(self._again.popleft().task)
        while self._pool.can_take():
            document = self._openings.current()
            if document is not None and self._has_room(document):
                self._submit_page(document)
            elif not self._open_next(ahead=self._jobs + 1):
                return

    def _measure(self) -> bool:
        """Open the first documents; True as soon as they all are and the job is planned."""
        wanted = min(MEASURED_DOCUMENTS, len(self._sources))
        while self._pool.can_take() and self._openings.num_sent < wanted:
            self._open_next(ahead=wanted)
        if self._openings.num_opened < wanted:
            return False
        self._apply(self._gate.open())
        self._is_measured = True
        return True

    def _apply(self, budgets: Budgets) -> None:
        """Work within these bounds from here on; a model with other bounds is given up."""
        self._desk.unload()
        self._jobs = budgets.jobs
        self._pool.resize(budgets.jobs)
        self._admission = Admission(Limits.of(budgets))

    def _open_next(self, ahead: int) -> bool:
        """Open a document ahead of its turn, if fewer than so many others are."""
        task = self._openings.next_task(ahead)
        if task is not None:
            self._pool.submit(task)
        return task is not None

    def _has_room(self, document: OpenDocument) -> bool:
        """Whether the next page fits the budgets. Alone in flight, any page does."""
        if self._is_done_before(document):
            return True
        if not self._is_planned(document):
            return False
        if not self._pages:
            return True
        is_behind = self._ledger.waiting_bytes > self._admission.limits.record_bytes
        return not is_behind and self._admission.admits(self._cost(document.handle))

    def _is_planned(self, document: OpenDocument) -> bool:
        """Whether the plan holds for the document; if not, plan again once nothing is in work."""
        if document.is_planned:
            return True
        handles = self._handles_to_read(document)
        if not self._gate.covers(handles):
            if self._pages:
                return False
            self._apply(self._gate.extend(handles))
        document.is_planned = True
        return True

    def _handles_to_read(self, document: OpenDocument) -> list[PageHandle]:
        name = document.opened.source.name
        return [page for number, page in document.handles() if (name, number) not in self._done]

    def _cost(self, handle: PageHandle) -> PageCost:
        demand = self._gate.demand(handle)
        return PageCost(worker_bytes=demand.worker_bytes, reader_bytes=demand.picture_bytes)

    def _is_done_before(self, document: OpenDocument) -> bool:
        return (document.identity.document, document.identity.page) in self._done

    def _submit_page(self, document: OpenDocument) -> None:
        key, identity, handle = document.key, document.identity, document.handle
        is_done_before = self._is_done_before(document)
        document.cursor += 1
        if is_done_before:
            self._ledger.tally.num_resumed += 1
            self._ledger.file(key, self._done[identity.document, identity.page])
            return
        try:
            self._gate.require_page(handle)
        except PageError as error:
            self._ledger.add(key, identity.failed(error.code, str(error)))
            return
        self._num_pages_submitted += 1
        task = PageTask(
            serial=self._num_pages_submitted,
            source=document.opened.source,
            password=self._options.password,
            index=identity.page - 1,
            spec=self._spec,
        )
        page = _Page(key=key, identity=identity, task=task, cost=self._cost(handle))
        self._pages[task.serial] = page
        self._admission.enter(task.serial, page.cost)
        self._reporter.page_started(identity.document, identity.page, 1)
        self._pool.submit(task)

    # --- from the workers to the reader ----------------------------------------------------------

    def _collect(self) -> None:
        for task, outcome in self._pool.collect(0.0 if self._desk.has_work else 0.5):
            if isinstance(task, OpenTask):
                self._take_document(task, outcome)
            else:
                self._take_prepared(self._pages[task.serial], outcome)

    def _take_document(self, task: OpenTask, outcome: Outcome) -> None:
        try:
            document = self._openings.take(task, outcome)
        except VlmcliError as error:
            self._fail_document(task, error)
            return
        for text in document.opened.warnings:
            self._reporter.warning(f"{task.source.name}: {text}")
        self._ledger.announce(task.number, task.source.name, len(document.selected))
        if not self._is_measured:
            self._gate.add(self._handles_to_read(document))
            document.is_planned = True

    def _fail_document(self, task: OpenTask, error: VlmcliError) -> None:
        """A document that cannot be read: the end of a job of one, a record in a job of many."""
        if len(self._sources) == 1 or self._options.fail_fast:
            raise error
        self._openings.give_up(task)
        self._ledger.tally.document_errors.append(error)
        self._reporter.warning(str(error))
        self._ledger.announce(task.number, task.source.name, 1)
        record = unreadable_document(task.source.name, error.code, error.message)
        self._ledger.file((task.number, 0), record)

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
        else:
            self._hand_over(page, outcome)

    def _take_failure(self, page: _Page, failure: Failure) -> None:
        is_over = page.attempt >= _DEATHS_BEFORE_GIVING_UP
        if failure.kind in ("died", "memory") and not is_over:
            # A neighbour in the same process may have been at fault; alone it may pass.
            page.attempt += 1
            self._reporter.page_started(page.identity.document, page.identity.page, page.attempt)
            self._again.append(page)
            return
        is_late = failure.kind == "timeout"
        codes = {"died": "worker-died", "timeout": "timeout", "memory": "too-large"}
        code = codes.get(failure.kind, "render")
        if isinstance(failure.error, VlmcliError):
            code = failure.error.code
        status: Literal["error", "timeout"] = "timeout" if is_late else "error"
        self._fail(page.task.serial, code, failure.message, status=status)

    def _hand_over(self, page: _Page, prepared: PreparedPage) -> None:
        """A page goes to the model."""
        job = PageJob(
            key=page.task.serial,
            crops=prepared.crops,
            picture=prepared.picture,
            draft=prepared.text or None,
        )
        page.prepared = replace(prepared, picture=None)
        # A picture has a resized copy in the reader, which the plan has counted.
        size = job.nbytes if prepared.picture is None else page.cost.reader_bytes
        self._admission.prepared(job.key, size)
        self._desk.put(job)

    def _load_reader(self) -> Reader:
        return self._make_reader(self._gate.require_fit())

    # --- from the reader to the record -----------------------------------------------------------

    def _read(self) -> None:
        progress = self._desk.step(self._admission.max_pages)
        for reading in progress.readings:
            page = self._pages[reading.key]
            assert page.prepared is not None
            self._finish(
                page, read_record(page.identity, page.prepared, reading, model=self._model)
            )
        if progress.num_pages is not None:
            self._be_careful(progress.num_pages)
        if progress.too_large is not None:
            self._fail(progress.too_large, "too-large", _TOO_LARGE)
        late = self._desk.late_page()
        if late is not None:
            self._desk.abort(late)
            message = f"not read within {self._options.page_timeout:g} s"
            self._fail(late, "timeout", message, status="timeout")

    def _fail(
        self, key: int, code: str, message: str, *, status: Literal["error", "timeout"] = "error"
    ) -> None:
        page = self._pages[key]
        self._finish(
            page, page.identity.failed(code, message, attempts=page.attempt, status=status)
        )

    def _finish(self, page: _Page, record: PageRecord) -> None:
        serial = page.task.serial
        del self._pages[serial]
        self._admission.leave(serial)
        self._desk.done(serial)
        self._ledger.add(page.key, record)

    # --- memory ----------------------------------------------------------------------------------

    def _keep_within_cap(self) -> None:
        """Where the cap is near: caches first, then fewer pages at a time."""
        pressure = self._guard.look()
        if pressure == "calm":
            self._admission.widen()
        elif pressure == "tight":
            self._drop_caches()
            if self._guard.is_tight:
                self._be_careful(self._admission.num_pages // 2)

    def _be_careful(self, num_pages: int) -> None:
        self._admission.narrow(num_pages)
        if not self._has_warned:
            self._reporter.warning(_FEWER_PAGES)
            self._has_warned = True

    def _drop_caches(self) -> None:
        """Give up what only saves time, and idle workers, which start anew when needed."""
        self._desk.drop_caches()
        self._pool.stop_idle(lambda _: True)
        give_back()

    def _resident(self) -> int:
        """Main memory of this process and the workers, in bytes."""
        return sum(map(resident_bytes, (os.getpid(), *self._pool.pids)))
