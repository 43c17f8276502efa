"""Page workers: processes that open documents and prepare pages, supervised from here.

A page that crashes, hangs or devours its process costs that page, not the job. Workers are plain
child processes on a socket pair (no multiprocessing start-up tricks), started when there is work
for them: they end by themselves when this process dies, whatever killed it. What a worker does with
a task is `page_worker`'s business.
"""

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from vlmcli import transfer
from vlmcli.documents.prepared import PreparedPage, PrepareSpec
from vlmcli.documents.source import PageHandle, Source
from vlmcli.errors import VlmcliError
from vlmcli.options import DEFAULT_FRAME_INTERVAL
from vlmcli.reuse.fingerprint import PageFingerprint

_CHILD = "import sys; sys.path[:] = {path!r}; from vlmcli.page_worker import main; main({fd})"
READY = "ready"
"""What a worker says once, when it can take tasks."""
_NOT_STARTED = "a page worker could not start; is the installation complete?"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTask:
    """Open a document and measure its pages. `number` is its place in the job."""

    number: int
    source: Source
    password: str | None
    strict: bool
    frame_interval: float = DEFAULT_FRAME_INTERVAL


Look = Literal["none", "hash", "sketch"]
"""How closely pages for the model are looked at: not at all, or their fingerprints are taken, also
with a sketch that later pages can be compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTask:
    """Prepare one page (0-based `index`) of a document that an `OpenTask` has opened before.

    `serial` is the caller's name for the page; the answer comes back with it.
    """

    serial: int
    source: Source
    password: str | None
    index: int
    spec: PrepareSpec
    look: Look = "none"
    frame_interval: float = DEFAULT_FRAME_INTERVAL


Task = OpenTask | PageTask


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDocument:
    """A document's pages, measured and not rendered."""

    source: Source
    pages: tuple[PageHandle, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPage:
    """A page made ready, and what it looks like if it is for the model and that was asked for."""

    page: PreparedPage
    look: PageFingerprint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A task that did not give its result; `error` is a `VlmcliError` that a document raised.

    Of kind `memory`, an allocation failed in the worker, which goes on.
    """

    kind: Literal["error", "died", "timeout", "memory"]
    message: str
    error: VlmcliError | None = None

    @property
    def may_pass(self) -> bool:
        """Whether another try makes sense: a neighbour in the same process may be at fault."""
        return self.kind in ("died", "memory")

    @property
    def code(self) -> str:
        """What stands as `error.code` in the record of a page that comes to nothing by it."""
        return self.error.code if self.error is not None else _CODES[self.kind]


_CODES = {
    "error": "render",
    "died": "worker-died",
    "timeout": "timeout",
    "memory": "too-large",
}

Outcome = OpenedDocument | DrawnPage | Failure


class _Worker:
    """One child process; tasks are answered in the order in which they were sent."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs, _interrupts_blocked():
            code = _CHILD.format(path=sys.path, fd=theirs.fileno())
            environment = dict(os.environ) | dict.fromkeys(_THREAD_VARIABLES, "1")
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=environment,
            )
        self.connection = Connection(ours.detach())
        self.tasks: deque[Task] = deque()
        self.is_ready = False
        """Whether its imports are done: until then no task's time runs."""
        self.deadline = math.inf

    def send(self, task: Task, timeout: float) -> bool:
        """Whether the worker took the task; a dead one does not."""
        try:
            transfer.send(self.connection, task)
        except OSError:
            return False
        self.tasks.append(task)
        if len(self.tasks) == 1:
            self.start_clock(timeout)
        return True

    def start_clock(self, timeout: float) -> None:
        """The first task's time begins now, or when the worker is ready."""
        is_running = self.is_ready and self.tasks
        self.deadline = time.monotonic() + timeout if is_running else math.inf

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()


class WorkerPool:
    """A few workers behind one queue. Not thread-safe: one thread submits and collects.

    Args:
        jobs: most processes at a time; one more is started when all others are busy.
        timeout: seconds that a task may take before its worker is killed; None for ever.
        depth: tasks that a worker holds at a time, so that it need not wait for the next one.
    """

    def __init__(self, jobs: int, *, timeout: float | None = None, depth: int = 2) -> None:
        self._timeout = math.inf if timeout is None else timeout
        self._depth = depth
        self._jobs = max(1, jobs)
        self._workers: list[_Worker] = []
        self.transfer_seconds = 0.0
        """Time that went into taking over what the workers made."""

    def can_take(self) -> bool:
        """Whether `submit` would find a worker with room."""
        return len(self._workers) < self._jobs or any(
            len(worker.tasks) < self._depth for worker in self._workers[: self._jobs]
        )

    @property
    def num_pending(self) -> int:
        """Tasks submitted and not yet answered."""
        return sum(len(worker.tasks) for worker in self._workers)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that are running."""
        return tuple(worker.process.pid for worker in self._workers)

    def resize(self, jobs: int) -> None:
        """From now on so many processes at the most; those too many end when they are idle."""
        self._jobs = max(1, jobs)
        self.stop_idle(lambda _: len(self._workers) > self._jobs)

    def stop_idle(self, is_unwanted: Callable[[int], bool]) -> None:
        """End idle workers for whose process id the function is true; they start when needed."""
        for worker in list(self._workers):
            if not worker.tasks and is_unwanted(worker.process.pid):
                self._workers.remove(worker)
                worker.kill()

    def submit(self, task: Task) -> None:
        """Give the task to the least busy worker. Callers ask `can_take` first."""
        wanted = self._workers[: self._jobs]
        worker = min(wanted, key=lambda worker: len(worker.tasks), default=None)
        if worker is None or (worker.tasks and len(self._workers) < self._jobs):
            worker = _Worker()
            self._workers.append(worker)
        if worker.send(task, self._timeout):
            return
        if worker.tasks:
            # It died over its first task; `collect` answers that one and has a new one go on.
            worker.tasks.append(task)
        else:
            # It died while idle: there is nothing to answer for, a new one takes the task.
            self._send(self._replace(worker), task)

    def collect(self, timeout: float | None) -> Sequence[tuple[Task, Outcome]]:
        """Answers that are there, waiting up to `timeout` seconds for the first one."""
        busy = {worker.connection: worker for worker in self._workers if worker.tasks}
        if not busy:
            return ()
        ready = wait(list(busy), self._patience(list(busy.values()), timeout))
        answers: list[tuple[Task, Outcome]] = []
        for connection in ready:
            assert isinstance(connection, Connection)
            answers += self._receive(busy[connection])
        return answers + self._overdue()

    def close(self) -> None:
        """End all workers at once; unanswered tasks are forgotten."""
        for worker in self._workers:
            worker.kill()
        self._workers = []

    def _patience(self, busy: list[_Worker], timeout: float | None) -> float | None:
        left = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
        patience = min(left, math.inf if timeout is None else timeout)
        return None if patience == math.inf else patience

    def _receive(self, worker: _Worker) -> list[tuple[Task, Outcome]]:
        started = time.perf_counter()
        try:
            answer: Any = transfer.receive(worker.connection)
            self.transfer_seconds += time.perf_counter() - started
        except (EOFError, OSError):
            status = worker.process.wait()
            if status > 0 and not worker.is_ready:
                raise RuntimeError(_NOT_STARTED) from None
            message = f"the page worker died ({_describe(status)})"
            return self._fail(worker, Failure(kind="died", message=message))
        if answer == READY:
            worker.is_ready = True
            worker.start_clock(self._timeout)
            return []
        task = worker.tasks.popleft()
        worker.start_clock(self._timeout)
        self.stop_idle(lambda _: len(self._workers) > self._jobs)
        return [(task, answer)]

    def _overdue(self) -> list[tuple[Task, Outcome]]:
        answers: list[tuple[Task, Outcome]] = []
        for worker in list(self._workers):
            if worker.tasks and time.monotonic() >= worker.deadline:
                done = "opened" if isinstance(worker.tasks[0], OpenTask) else "rendered"
                message = f"not {done} within {self._timeout:g} s"
                answers += self._fail(worker, Failure(kind="timeout", message=message))
        return answers

    def _fail(self, worker: _Worker, failure: Failure) -> list[tuple[Task, Outcome]]:
        """Answer the running task with the failure and give the waiting ones to a new worker."""
        first = worker.tasks.popleft()
        waiting = list(worker.tasks)
        fresh = self._replace(worker)
        for task in waiting:
            self._send(fresh, task)
        return [(first, failure)]

    def _send(self, fresh: _Worker, task: Task) -> None:
        if not fresh.send(task, self._timeout):
            raise RuntimeError(_NOT_STARTED)

    def _replace(self, worker: _Worker) -> _Worker:
        worker.kill()
        fresh = _Worker()
        self._workers[self._workers.index(worker)] = fresh
        return fresh


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Put SIGINT off; for children that are started meanwhile, for good.

    Ctrl-C reaches the whole process group, but what becomes of the workers is decided here.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _describe(status: int) -> str:
    if status == -9:
        return "killed, probably out of memory"
    return f"signal {-status}" if status < 0 else f"exit status {status}"
