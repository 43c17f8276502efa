"""Pages on their way to the workers: documents opened ahead, pages planned, admitted, handed out.

Knows documents and budgets, no model and no results; a page leaves its care when it is finished.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vlmcli.admission import Admission, Limits, PageCost
from vlmcli.assemble import PageIdentity, unreadable_document
from vlmcli.documents.prepared import PreparedPage, PrepareSpec
from vlmcli.documents.source import PageHandle
from vlmcli.errors import PageError, VlmcliError
from vlmcli.ledger import Ledger
from vlmcli.listing import Listing
from vlmcli.memory.gate import MemoryGate
from vlmcli.memory.settings import Budgets
from vlmcli.openings import OpenDocument, Openings
from vlmcli.options import OcrOptions
from vlmcli.ordering import Key
from vlmcli.report import Reporter
from vlmcli.results import PageRecord
from vlmcli.reuse.decide import Decision
from vlmcli.reuse.recent import PageRef
from vlmcli.workers import Look, OpenTask, Outcome, PageTask, WorkerPool

MEASURED_DOCUMENTS = 200
"""Documents that are measured before the first page is drawn."""
_NOTHING_YET = Limits(jobs=1, worker_bytes=0, reader_bytes=0)


@dataclass(slots=True)
class Page:
    """A page between hand-out and record."""

    key: Key
    identity: PageIdentity
    task: PageTask
    cost: PageCost
    attempt: int = 1
    prepared: PreparedPage | None = None
    """Without its picture, once that is with the reader."""
    ref: PageRef | None = None
    """What the page looks like, where reuse is on and the page is for the model."""
    decision: Decision | None = None


class Intake:
    """Hands pages to the workers while they have room and the budgets allow.

    Args:
        options: what was asked for.
        listing: the documents, in order.
        spec: what the workers do with a page.
        look: how closely they look at it, asked for every page.
        gate: plans the memory.
        pool: the workers.
        done: records of an earlier run, by document and page.
        ledger: takes records of pages that need no work.
        reporter: is told what happens.
        on_plan: is told the bounds, and each time they change; nothing is in work then.
    """

    def __init__(
        self,
        options: OcrOptions,
        listing: Listing,
        *,
        spec: PrepareSpec,
        look: Callable[[], Look],
        gate: MemoryGate,
        pool: WorkerPool,
        done: Mapping[tuple[str, int], PageRecord],
        ledger: Ledger,
        reporter: Reporter,
        on_plan: Callable[[Budgets], None],
    ) -> None:
        self._options = options
        self._listing = listing
        self._spec = spec
        self._look = look
        self._gate = gate
        self._pool = pool
        self._done = done
        self._ledger = ledger
        self._reporter = reporter
        self._on_plan = on_plan
        self._openings = Openings(listing, options)
        self._jobs = gate.measuring_jobs()
        self._is_measured = False
        """Whether the first documents have been measured and the job is planned."""
        self._again: deque[Page] = deque()
        """Pages that cost a worker its life or ran out of memory; each has the workers alone."""
        self.num_submitted = 0
        """Pages that were handed out so far; they are numbered from 1."""
        self.admission = Admission(_NOTHING_YET)
        self.pages: dict[int, Page] = {}
        """Pages in work by serial number, in the order in which they were handed out."""

    @property
    def is_finished(self) -> bool:
        """Whether every page of every document has been handed out and is finished."""
        return self._openings.is_finished and not self.pages

    def hand_out(self) -> None:
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

    def take_document(self, task: OpenTask, outcome: Outcome) -> None:
        """A worker has opened a document, or could not.

        Raises:
            VlmcliError: it cannot be read, and that ends the job.
        """
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

    def retry(self, page: Page) -> None:
        """Hand a page out once more, with the workers to itself."""
        page.attempt += 1
        self._reporter.page_started(page.identity.document, page.identity.page, page.attempt)
        self._again.append(page)

    def leave(self, page: Page) -> None:
        """A page is finished."""
        del self.pages[page.task.serial]
        self.admission.leave(page.task.serial)

    def _measure(self) -> bool:
        """Open the first documents; True as soon as they all are and the job is planned."""
        openings = self._openings
        while openings.num_sent < MEASURED_DOCUMENTS and not self._listing.is_exhausted:
            if not self._pool.can_take():
                return False
            self._open_next(ahead=MEASURED_DOCUMENTS)
        if openings.num_opened < openings.num_sent:
            return False
        self._apply(self._gate.open())
        self._is_measured = True
        return True

    def _apply(self, budgets: Budgets) -> None:
        """Work within these bounds from here on."""
        self._jobs = budgets.jobs
        self._pool.resize(budgets.jobs)
        self.admission = Admission(Limits.of(budgets))
        self._on_plan(budgets)

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
        if not self.pages:
            return True
        is_behind = self._ledger.waiting_bytes > self.admission.limits.record_bytes
        return not is_behind and self.admission.admits(self._cost(document.handle))

    def _is_planned(self, document: OpenDocument) -> bool:
        """Whether the plan holds for the document; if not, plan again once nothing is in work."""
        if document.is_planned:
            return True
        handles = self._handles_to_read(document)
        if not self._gate.covers(handles):
            if self.pages:
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
        self.num_submitted += 1
        task = PageTask(
            serial=self.num_submitted,
            source=document.opened.source,
            password=self._options.password,
            index=identity.page - 1,
            spec=self._spec,
            look=self._look(),
            frame_interval=self._options.frame_interval,
        )
        page = Page(key=key, identity=identity, task=task, cost=self._cost(handle))
        self.pages[task.serial] = page
        self.admission.enter(task.serial, page.cost)
        self._reporter.page_started(identity.document, identity.page, 1)
        self._pool.submit(task)

    def _fail_document(self, task: OpenTask, error: VlmcliError) -> None:
        """A document that cannot be read: the end of a job of one, a record in a job of many."""
        if self._listing.is_single or self._options.fail_fast:
            raise error
        self._openings.give_up(task)
        self._ledger.tally.document_errors.append(error)
        self._reporter.warning(str(error))
        self._ledger.announce(task.number, task.source.name, 1)
        record = unreadable_document(task.source.name, error.code, error.message)
        self._ledger.file((task.number, 0), record)
