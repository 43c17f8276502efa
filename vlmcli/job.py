"""One job's loop: pages to the workers, crops to the reader, records to whoever takes them.

Runs in one thread and holds no page longer than it must; back-pressure is counted in bytes. Knows
neither outputs nor journal nor terminal: records leave through two callbacks.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from vlmcli.assemble import (
    layer_suspects,
    own_record,
    prepared_record,
    read_record,
    scaled_lines,
)
from vlmcli.desk import TOO_LARGE, Desk
from vlmcli.documents.prepared import PreparedPage, PrepareSpec
from vlmcli.intake import Intake, Page
from vlmcli.ledger import Ledger
from vlmcli.listing import Listing
from vlmcli.memory.allocator import Trimmer, give_back
from vlmcli.memory.devices import resident_bytes
from vlmcli.memory.gate import MemoryGate
from vlmcli.memory.guard import MemoryGuard, Watched
from vlmcli.memory.settings import Budgets
from vlmcli.options import OcrOptions, draft_sources
from vlmcli.reading import Draft, PageJob, Reader
from vlmcli.repeats import Repeats, place_of
from vlmcli.report import Reporter, Tally
from vlmcli.results import PageRecord
from vlmcli.reuse.decide import Decision
from vlmcli.reuse.fingerprint import PageFingerprint
from vlmcli.reuse.recent import PageRef
from vlmcli.workers import DrawnPage, Failure, OpenTask, Outcome, WorkerPool

_DEATHS_BEFORE_GIVING_UP = 2
_FEWER_PAGES = "memory is short: fewer pages at a time from here on"

ReaderFactory = Callable[[Budgets], Reader]


class OcrJob:
    """The state of one job; `run` does it. Methods stand in the order of a page's way.

    Args:
        options: what was asked for.
        listing: the documents, in order.
        spec: what the workers do with a page.
        gate: plans the memory.
        make_reader: loads the model under the plan's bounds; called at the first page that needs
            it, and again where a later document asks for more.
        model: name and revision for the records.
        recipe: gives the digest of everything besides pixels that could change a text; None for a
            job without a model.
        done: records of an earlier run, by document and page.
        on_record: takes each new record at once, in any order (the journal).
        on_next: takes each record in document order (the outputs).
        reporter: is told what happens.
    """

    def __init__(
        self,
        options: OcrOptions,
        listing: Listing,
        *,
        spec: PrepareSpec,
        gate: MemoryGate,
        make_reader: ReaderFactory,
        model: str,
        recipe: Callable[[], bytes] | None,
        done: Mapping[tuple[str, int], PageRecord],
        on_record: Callable[[PageRecord], None],
        on_next: Callable[[PageRecord], None],
        reporter: Reporter,
    ) -> None:
        self._options = options
        self._make_reader = make_reader
        self._model = model
        self._reporter = reporter
        self._gate = gate
        self._pool = WorkerPool(gate.measuring_jobs(), timeout=options.page_timeout)
        self._desk = Desk(self._load_reader, timeout=options.page_timeout)
        self._repeats = Repeats(options, recipe, reporter.warning)
        host, device = gate.host_cap_bytes, gate.device_cap_bytes
        self._guard = MemoryGuard(
            Watched(name="memory", cap_bytes=host, read=self._resident),
            Watched(name="device_memory", cap_bytes=device, read=self._desk.device_bytes),
        )
        self._idle_seconds = 0.0
        """Time in which a loaded model had nothing to do but wait for pages."""
        self._has_layer_drafts = "text-layer" in draft_sources(options.drafts)
        self._has_warned = False
        self._heap = Trimmer()
        self._ledger = Ledger(
            lambda: listing.count,
            on_record=on_record,
            on_next=on_next,
            reporter=reporter,
            fail_fast=options.fail_fast,
        )
        self._intake = Intake(
            options,
            listing,
            spec=spec,
            look=lambda: self._repeats.look,
            gate=gate,
            pool=self._pool,
            done=done,
            ledger=self._ledger,
            reporter=reporter,
            on_plan=self._take_plan,
        )
        self._pages = self._intake.pages
        self._next_to_decide = 1
        """Serial number of the first page about which nothing is decided."""

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
            while not self._intake.is_finished:
                self._intake.hand_out()
                self._collect()
                self._decide()
                self._read()
                self._ledger.flush()
                self._keep_within_cap()
        finally:
            self._pool.close()

    def close(self) -> dict[str, float]:
        """Release the model, keep results; counters, and what memory was planned and taken."""
        self._desk.unload()
        self._repeats.close()
        own = {
            "seconds_transfer": round(self._pool.transfer_seconds, 3),
            "seconds_idle": round(self._idle_seconds, 3),
        }
        memory = self._gate.stats() | self._guard.stats()
        return own | self._desk.stats() | self._repeats.stats() | memory

    def _take_plan(self, budgets: Budgets) -> None:
        """The job has bounds, or others: a model with other bounds is given up."""
        self._desk.unload()
        self._repeats.set_room(self._gate.spare_bytes)
        self._intake.admission.make_room(self._repeats.in_work_bytes)

    # --- from the workers to a decision ----------------------------------------------------------

    def _collect(self) -> None:
        is_idle = not self._desk.has_work
        started = time.monotonic()
        answers = self._pool.collect(0.5 if is_idle else 0.0)
        if is_idle and self._desk.is_loaded:
            self._idle_seconds += time.monotonic() - started
        for task, outcome in answers:
            if isinstance(task, OpenTask):
                self._intake.take_document(task, outcome)
            else:
                self._take_drawn(self._pages[task.serial], outcome)

    def _take_drawn(self, page: Page, outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            self._take_failure(page, outcome)
            return
        assert isinstance(outcome, DrawnPage)
        prepared = outcome.page
        for text in prepared.warnings:
            self._reporter.warning(f"{page.identity.document}, page {page.identity.page}: {text}")
        is_empty = not prepared.crops and prepared.picture is None
        if prepared.outcome != "read" or is_empty:
            self._finish(page, prepared_record(page.identity, prepared))
            return
        page.prepared = prepared
        # A picture has a resized copy in the reader, which the plan has counted.
        size = prepared.nbytes if prepared.picture is None else page.cost.reader_bytes
        extra = 0
        if outcome.look is not None:
            page.ref = _ref(page, outcome.look)
            extra = outcome.look.nbytes
        self._intake.admission.prepared(page.task.serial, size, extra)
        if page.ref is None:
            self._hand_over(page)

    def _take_failure(self, page: Page, failure: Failure) -> None:
        if failure.may_pass and page.attempt < _DEATHS_BEFORE_GIVING_UP:
            self._intake.retry(page)
            return
        self._fail(
            page.task.serial,
            failure.code,
            failure.message,
            status="timeout" if failure.kind == "timeout" else "error",
        )

    def _decide(self) -> None:
        """Read a page, or take over another's result: decided in page order, as pages are drawn.

        In page order, so that what is taken over from which page does not depend on how fast they
        are drawn.
        """
        while self._repeats.is_on and self._next_to_decide <= self._intake.num_submitted:
            page = self._pages.get(self._next_to_decide)
            if page is not None:
                if page.ref is None:
                    return
                self._follow(page, self._repeats.decide(page.ref))
            self._next_to_decide += 1

    def _follow(self, page: Page, decision: Decision) -> None:
        """Do what was decided; a page that waits for another's result comes here again."""
        page.decision = decision
        if decision.is_read:
            self._hand_over(page)
        elif decision.record is not None:
            assert page.ref is not None and page.prepared is not None
            own = own_record(page.identity, page.prepared)
            found = layer_suspects(page.prepared, decision.record.text)
            own = replace(own, suspect=(*own.suspect, *found))
            self._finish(page, self._repeats.adopt(page.ref, decision, own))

    def _hand_over(self, page: Page) -> None:
        """A page goes to the model."""
        prepared = page.prepared
        assert prepared is not None
        job = PageJob(
            key=page.task.serial,
            crops=prepared.crops,
            picture=prepared.picture,
            draft_crops=prepared.draft_crops,
            drafts=self._drafts(prepared, page.decision),
        )
        page.prepared = replace(prepared, picture=None, draft_crops=())
        self._desk.put(job)

    def _drafts(self, prepared: PreparedPage, decision: Decision | None) -> tuple[Draft, ...]:
        """The texts that the page's may resemble, the likeliest first."""
        found = []
        if prepared.text and self._has_layer_drafts:
            found.append(Draft(name="text-layer", text=prepared.text, lines=prepared.lines))
        if decision is not None and decision.draft is not None:
            other = decision.draft
            size = (prepared.width, prepared.height)
            lines = scaled_lines(other.lines, (other.width, other.height), size)
            found.append(Draft(name="near-duplicate", text=other.text, lines=lines))
        return tuple(found)

    def _load_reader(self) -> Reader:
        return self._make_reader(self._gate.require_fit())

    # --- from the reader to the record -----------------------------------------------------------

    def _read(self) -> None:
        progress = self._desk.step(self._intake.admission.max_pages)
        for reading in progress.readings:
            page = self._pages[reading.key]
            assert page.prepared is not None
            record = read_record(page.identity, page.prepared, reading, model=self._model)
            if page.decision is not None:
                record = replace(record, reuse=page.decision.reuse)
            self._finish(page, record)
        if progress.num_pages is not None:
            self._be_careful(progress.num_pages)
        if progress.too_large is not None:
            self._fail(progress.too_large, "too-large", TOO_LARGE)
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

    def _finish(self, page: Page, record: PageRecord) -> None:
        """A page has its record; those that waited for it go on."""
        self._intake.leave(page)
        self._desk.done(page.task.serial)
        self._ledger.add(page.key, record)
        self._heap.trim()
        if page.ref is not None and page.decision is not None and page.decision.is_read:
            for other, decision in self._repeats.finish(page.ref, record, page.decision):
                assert isinstance(other.key, int)
                self._follow(self._pages[other.key], decision)

    # --- memory ----------------------------------------------------------------------------------

    def _keep_within_cap(self) -> None:
        """Where the cap is near: free memory first, then caches, then fewer pages at a time."""
        pressure = self._guard.look()
        if pressure == "calm":
            self._intake.admission.widen()
        elif pressure == "tight":
            give_back()
            if self._guard.is_tight:
                self._drop_caches()
            if self._guard.is_tight:
                self._be_careful(self._intake.admission.num_pages // 2)

    def _be_careful(self, num_pages: int) -> None:
        self._intake.admission.narrow(num_pages)
        if not self._has_warned:
            self._reporter.warning(_FEWER_PAGES)
            self._has_warned = True

    def _drop_caches(self) -> None:
        """Give up what only saves time, and idle workers, which start anew when needed."""
        self._desk.drop_caches()
        self._repeats.drop_caches()
        self._pool.stop_idle(lambda _: True)
        give_back()

    def _resident(self) -> int:
        """Main memory of this process and the workers, in bytes."""
        return sum(map(resident_bytes, (os.getpid(), *self._pool.pids)))


def _ref(page: Page, look: PageFingerprint) -> PageRef:
    """What the reuse layer knows a page by."""
    return PageRef(
        key=page.task.serial,
        document=page.identity.document,
        page=page.identity.page,
        place=place_of(page.task.source, page.identity.page),
        fingerprint=look,
    )
