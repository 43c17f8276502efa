"""The one thread that has the engine: takes chats from other threads and works on all of them.

A chat's pictures go to the page workers, its turns to the answerer once all are drawn; new chats
join while others are answered. Memory is kept within the plan as in a job of `ocr`: a chat waits
until its pictures have room, and where memory runs out all the same, the youngest chat is given up.
"""

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vlmcli.admission import Admission, Limits, PageCost
from vlmcli.chat import Answerer, Chat, Progress
from vlmcli.documents.prepared import PrepareSpec
from vlmcli.errors import VlmcliError
from vlmcli.memory.allocator import give_back
from vlmcli.memory.devices import resident_bytes
from vlmcli.memory.gate import MemoryGate
from vlmcli.memory.guard import MemoryGuard, Watched
from vlmcli.reading import OutOfMemoryError
from vlmcli.serve.faults import BusyError
from vlmcli.serve.work import Listener, Work, drawn
from vlmcli.workers import Failure, OpenedDocument, OpenTask, Outcome, PageTask, Task, WorkerPool

_DRAWING_SECONDS = 120.0
_PATIENCE = 0.02
"""Seconds to wait for a page worker where there is nothing else to do."""
_SNAPSHOT_SECONDS = 0.5
_NO_MEMORY = "memory ran out; try again later, or with fewer pixels"
_ENDING = "the server is about to end"


class Backend:
    """Answers chats in a thread of its own, from `start` to `close`.

    Args:
        gate: the memory plan.
        spec: how pictures are drawn.
        max_pixels: of one chat's pictures together.
        load: loads what answers; called in the thread.
        on_crash: is called in the thread where a fault of ours ends it.
    """

    def __init__(
        self,
        gate: MemoryGate,
        spec: PrepareSpec,
        *,
        max_pixels: int,
        load: Callable[[], Answerer],
        on_crash: Callable[[], None],
    ) -> None:
        self._gate = gate
        self._spec = spec
        self._max_pixels = max_pixels
        self._load = load
        self._on_crash = on_crash
        budgets = gate.require_fit()
        self._pool = WorkerPool(budgets.jobs, timeout=_DRAWING_SECONDS)
        self._admission = Admission(Limits.of(budgets))
        self._guard = MemoryGuard(
            Watched(name="memory", cap_bytes=gate.host_cap_bytes, read=self._resident)
        )
        self._inbox: queue.SimpleQueue[Work | int | None] = queue.SimpleQueue()
        self._works: dict[int, Work] = {}
        """Chats in the order of their arrival."""
        self._places: dict[int, tuple[int, int]] = {}
        """Chat and picture of every task of the workers, by its number."""
        self._again: set[int] = set()
        """Tasks that were handed out a second time."""
        self._num_tasks = 0
        self._is_ready = threading.Event()
        self._deadline = float("inf")
        self._next_snapshot = 0.0
        self._thread = threading.Thread(target=self._run, name="vlmcli-engine", daemon=True)
        self._answerer: Answerer | None = None
        self._is_over = False
        self.error: BaseException | None = None
        self.stats: dict[str, float] = {}
        """Counters of engine and memory, renewed twice a second."""

    # --- called from other threads ---------------------------------------------------------------

    def start(self) -> None:
        """Load the model; returns when chats can be answered.

        Raises:
            VlmcliError: it cannot be loaded.
        """
        self._thread.start()
        self._is_ready.wait()
        if self.error is not None:
            raise self.error

    @property
    def is_alive(self) -> bool:
        """Whether chats can be answered."""
        return self._is_ready.is_set() and not self._is_over

    def submit(self, key: int, chat: Chat, paths: Sequence[Path], listen: Listener) -> None:
        """Take a chat; `listen` is told everything, the last time with an end or an error."""
        self._inbox.put(Work.of(key, chat, paths, listen))
        if self._is_over:
            listen(Progress(key=key, error=BusyError(_ENDING)))

    def cancel(self, key: int) -> None:
        """Nobody waits for the chat any more; unknown keys are ignored."""
        self._inbox.put(key)

    def drain(self, seconds: float) -> None:
        """Give up what is not answered after so many seconds."""
        self._deadline = time.monotonic() + seconds

    def close(self) -> None:
        """End the thread after its step, whatever is in work."""
        if self._thread.ident is not None:
            self._inbox.put(None)
            self._thread.join()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._answerer = self._load()
            self._is_ready.set()
            while self._take_inbox():
                self._advance(self._answerer)
        except BaseException as error:
            self.error = error
            self._on_crash()
        finally:
            self._is_over = True
            self._is_ready.set()
            for key in list(self._works):
                self._fail(key, BusyError(_ENDING))
            self._turn_away()
            self._pool.close()
            if self._answerer is not None:
                self._answerer.close()

    def _take_inbox(self) -> bool:
        """Take what other threads have sent, waiting while there is nothing to do.

        Returns:
            False at the end.
        """
        is_idle = not self._works and not self._pool.num_pending
        try:
            while True:
                message = self._inbox.get(block=is_idle)
                is_idle = False
                if message is None:
                    return False
                if isinstance(message, int):
                    self._leave(message)
                else:
                    self._enter(message)
        except queue.Empty:
            return True

    def _turn_away(self) -> None:
        """Answer the chats that came in while the thread was ending; `submit` has later ones."""
        while not self._inbox.empty():
            message = self._inbox.get_nowait()
            if isinstance(message, Work):
                message.listen(Progress(key=message.key, error=BusyError(_ENDING)))

    def _advance(self, answerer: Answerer) -> None:
        if time.monotonic() > self._deadline:
            for key in list(self._works):
                self._fail(key, BusyError(_ENDING))
        self._hand_out()
        patience = 0.0 if answerer.has_work() else _PATIENCE
        for task, outcome in self._pool.collect(patience):
            self._take_outcome(task, outcome)
        self._hand_over(answerer)
        self._step(answerer)
        self._keep_within_cap(answerer)

    def _enter(self, work: Work) -> None:
        assert self._answerer is not None
        self._works[work.key] = work
        try:
            self._answerer.check(work.chat)
        except VlmcliError as error:
            self._fail(work.key, error)

    # --- pictures --------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Give the workers what they have room for: measure all pictures, draw in order."""
        for work in self._works.values():
            while work.num_opening < len(work.paths) and self._pool.can_take():
                number = self._number(work, work.num_opening)
                source = work.source(work.num_opening)
                work.num_opening += 1
                self._pool.submit(
                    OpenTask(number=number, source=source, password=None, strict=False)
                )
        for work in list(self._works.values()):
            if not work.is_admitted and not self._admit(work):
                return
            while len(work.serials) < len(work.paths) and self._pool.can_take():
                index = len(work.serials)
                number = self._number(work, index)
                work.serials.append(number)
                self._pool.submit(
                    PageTask(
                        serial=number,
                        source=work.source(index),
                        password=None,
                        index=0,
                        spec=self._spec,
                    )
                )

    def _admit(self, work: Work) -> bool:
        """Let a chat's pictures be drawn, if all are measured and there is room for them."""
        handles = [handle for handle in work.handles if handle is not None]
        if len(handles) < len(work.paths):
            return False
        demands = [self._gate.demand(handle) for handle in handles]
        cost = PageCost(
            worker_bytes=sum(demand.worker_bytes for demand in demands),
            reader_bytes=sum(demand.picture_bytes for demand in demands),
        )
        if not self._admission.admits(cost):
            return False
        self._admission.enter(work.key, cost)
        work.is_admitted = True
        return True

    def _take_outcome(self, task: Task, outcome: Outcome) -> None:
        number = task.number if isinstance(task, OpenTask) else task.serial
        key, index = self._places[number]
        work = self._works.get(key)
        is_first = number not in self._again
        if work and is_first and isinstance(outcome, Failure) and outcome.may_pass:
            self._again.add(number)
            self._pool.submit(task)
            return
        del self._places[number]
        self._again.discard(number)
        if work is None:
            return
        try:
            if isinstance(outcome, OpenedDocument):
                work.handles[index] = work.measured(index, outcome, self._max_pixels)
            else:
                work.pages[index] = drawn(index, outcome)
        except VlmcliError as error:
            self._fail(key, error)

    # --- answers ---------------------------------------------------------------------------------

    def _hand_over(self, answerer: Answerer) -> None:
        for work in list(self._works.values()):
            pages = [page for page in work.pages if page is not None]
            if not work.is_admitted or work.is_answered or len(pages) < len(work.paths):
                continue
            try:
                answerer.submit(work.key, work.chat, pages)
            except OutOfMemoryError:
                self._make_room(answerer)
                return
            except VlmcliError as error:
                self._fail(work.key, error)
                continue
            work.is_answered = True
            self._admission.prepared(work.key, sum(page.nbytes for page in pages))
            work.pages = []

    def _step(self, answerer: Answerer) -> None:
        if not answerer.has_work():
            return
        try:
            found = answerer.step()
        except OutOfMemoryError:
            self._make_room(answerer)
            return
        for progress in found:
            self._works[progress.key].listen(progress)
            if progress.is_over:
                self._leave(progress.key)

    def _make_room(self, answerer: Answerer) -> None:
        """Memory ran out: what only saves time goes first, then the youngest chat."""
        answerer.drop_caches()
        admitted = [work.key for work in self._works.values() if work.is_admitted]
        self._admission.narrow(len(admitted) - 1)
        self._fail(admitted[-1], BusyError(_NO_MEMORY))

    def _fail(self, key: int, error: VlmcliError) -> None:
        self._works[key].listen(Progress(key=key, error=error))
        self._leave(key)

    def _leave(self, key: int) -> None:
        """A chat is over, or nobody waits for it; what the workers have of it is ignored later."""
        work = self._works.pop(key, None)
        if work is None:
            return
        if work.is_answered:
            assert self._answerer is not None
            self._answerer.abort(key)
        if work.is_admitted:
            self._admission.leave(key)

    # --- memory ----------------------------------------------------------------------------------

    def _keep_within_cap(self, answerer: Answerer) -> None:
        pressure = self._guard.look()
        if pressure == "calm":
            self._admission.widen()
        elif pressure == "tight":
            give_back()
            answerer.drop_caches()
            self._pool.stop_idle(lambda _: True)
            give_back()
            if self._guard.is_tight:
                self._admission.narrow(self._admission.num_pages // 2)
        if time.monotonic() >= self._next_snapshot:
            self._next_snapshot = time.monotonic() + _SNAPSHOT_SECONDS
            self.stats = answerer.stats() | self._gate.stats() | self._guard.stats()

    def _resident(self) -> int:
        return sum(map(resident_bytes, (os.getpid(), *self._pool.pids)))

    def _number(self, work: Work, index: int) -> int:
        self._num_tasks += 1
        self._places[self._num_tasks] = (work.key, index)
        return self._num_tasks
