"""Readers that are not our engine: one page at a time, in a thread of their own.

Such a model answers when it is done and not before, which may take a minute. In a thread it leaves
the job's loop free to watch the clock, take pages from the workers and file records. A page that is
given up is told so and its answer dropped; the next one waits until the model is free again.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Protocol

from vlmcli.errors import PageError
from vlmcli.reading import OutOfMemoryError, PageJob, PageReading

IsStopped = Callable[[], bool]

_PATIENCE = 0.05
"""Seconds that a step waits for the page in work."""


class PageModel(Protocol):
    """Reads one page when called; knows nothing of queues, threads and time limits."""

    def read(self, job: PageJob, is_stopped: IsStopped) -> PageReading:
        """The page's reading; where `is_stopped` turns true, any reading, soon.

        Raises:
            PageError: this page cannot be read.
            OutOfMemoryError: an allocation failed.
        """

    def drop_caches(self) -> None:
        """Give up whatever only saves time; called between two pages."""

    def device_bytes(self) -> int:
        """Bytes taken on a device of its own; 0 without one."""

    def stats(self) -> dict[str, float]:
        """Counters of the whole run, by name."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """One page with the model, since when, what comes of it, and whether somebody still waits."""

    job: PageJob
    reading: Future[PageReading]
    stop: threading.Event
    since: float


class OneByOneReader:
    """A `reading.Reader` around a `PageModel`.

    Args:
        model: loaded; used by nobody else.
        patience: seconds that a step waits for the page in work.
    """

    def __init__(self, model: PageModel, *, patience: float = _PATIENCE) -> None:
        self._model = model
        self._patience = patience
        self._waiting: deque[PageJob] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vlmcli-reader")
        self._turn: _Turn | None = None
        self._seconds = 0.0
        self._num_pages = 0

    def submit(self, job: PageJob) -> None:
        """Queue a page."""
        self._waiting.append(job)

    def step(self) -> Sequence[PageReading]:
        """Wait a moment for the page in work; it, if it is finished.

        Raises:
            OutOfMemoryError: an allocation failed; the page waits for another try.
        """
        if self._turn is None:
            self._begin()
        turn = self._turn
        if turn is None or not wait([turn.reading], self._patience).done:
            return ()
        self._turn = None
        self._seconds += time.monotonic() - turn.since
        if turn.stop.is_set():
            return ()
        try:
            reading = turn.reading.result()
        except PageError as error:
            reading = PageReading(
                key=turn.job.key, status="error", code=error.code, message=str(error)
            )
        except (MemoryError, OutOfMemoryError) as error:
            self._waiting.appendleft(turn.job)
            raise OutOfMemoryError(str(error)) from error
        self._num_pages += 1
        return (replace(reading, key=turn.job.key),)

    def abort(self, key: int) -> None:
        """Forget a page; the model may go on with it for a while, and nothing comes of it."""
        self._waiting = deque(job for job in self._waiting if job.key != key)
        if self._turn is not None and self._turn.job.key == key:
            self._turn.stop.set()

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""
        return bool(self._waiting) or (self._turn is not None and not self._turn.stop.is_set())

    def drop_caches(self) -> None:
        """Give up what only saves time, where no page is in work."""
        if self._turn is None:
            self._model.drop_caches()

    def device_bytes(self) -> int:
        """Bytes taken on a device of its own."""
        return self._model.device_bytes()

    def stats(self) -> dict[str, float]:
        """The model's counters, pages, and the seconds in which it had one in work."""
        own = {"pages_read": self._num_pages, "seconds_reading": round(self._seconds, 3)}
        return {**self._model.stats(), **own}

    def close(self) -> None:
        """Forget all pages and wait for the one in work: its thread holds the model."""
        self._waiting.clear()
        if self._turn is not None:
            self._turn.stop.set()
            self._turn = None
        self._thread.shutdown()

    def _begin(self) -> None:
        if self._waiting:
            job, stop = self._waiting.popleft(), threading.Event()
            reading = self._thread.submit(self._model.read, job, stop.is_set)
            self._turn = _Turn(job, reading, stop, time.monotonic())
