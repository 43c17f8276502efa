"""Pages with the model: those that wait for it, those that it reads, and what is done without room.

Loads the reader when the first page comes, fills it, and sees to it that a failed allocation costs
time and not a page: half of the pages leave the reader and come back later, and only a page that
fails alone, twice, is given up. Knows pages by their keys and decides nothing about records.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vlmcli.reading import OutOfMemoryError, PageJob, PageReading, Reader

TOO_LARGE = "reading the page needs more memory than there is, even alone"
"""What is said of `Progress.too_large`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one step came to.

    Attributes:
        readings: the pages that are finished.
        too_large: a page that does not fit even alone, by key.
        num_pages: how many pages at a time there is room for; None where memory did not run out.
    """

    readings: Sequence[PageReading] = ()
    too_large: int | None = None
    num_pages: int | None = None


class Desk:
    """A reader that is loaded when it is needed, and the pages in front of it.

    Args:
        load: loads the reader.
        timeout: seconds that the page which has been read longest may take; None for ever.
    """

    def __init__(self, load: Callable[[], Reader], *, timeout: float | None) -> None:
        self._load = load
        self._timeout = timeout
        self._reader: Reader | None = None
        self._stats: dict[str, float] = {}
        self._waiting: deque[PageJob] = deque()
        self._reading: dict[int, PageJob] = {}
        self._first_since = 0.0
        """When the first page of `_reading` became the first."""
        self._failed_alone: int | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether there is a reader."""
        return self._reader is not None

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._waiting) or (self._reader is not None and self._reader.has_work())

    def put(self, job: PageJob) -> None:
        """Take a page; the first one has the reader loaded.

        Raises:
            VlmcliError: the reader cannot be loaded.
        """
        if self._reader is None:
            self._reader = self._load()
        self._waiting.append(job)

    def step(self, most: int | None) -> Progress:
        """Fill the reader with up to `most` pages and advance it."""
        if self._reader is None:
            return Progress()
        try:
            self._fill(self._reader, most)
            return Progress(readings=self._reader.step() if self._reader.has_work() else ())
        except OutOfMemoryError:
            return self._make_room(self._reader)

    def late_page(self) -> int | None:
        """The page that has been in the reader longest, if it has been first for too long.

        The time of the pages behind it does not run: they may just be waiting for their turn.
        """
        if self._timeout is None or not self._reading:
            return None
        is_late = time.monotonic() - self._first_since > self._timeout
        return next(iter(self._reading)) if is_late else None

    def abort(self, key: int) -> None:
        """Stop reading a page, or waiting to; `done` must follow."""
        assert self._reader is not None
        if key in self._reading:
            self._reader.abort(key)
        else:
            self._waiting = deque(job for job in self._waiting if job.key != key)

    def done(self, key: int) -> None:
        """A page is finished, whatever became of it. Pages that were never here may be named."""
        if key not in self._reading:
            return
        if key == next(iter(self._reading)):
            self._first_since = time.monotonic()
        del self._reading[key]

    def drop_caches(self) -> None:
        """Give up what only saves time."""
        if self._reader is not None:
            self._reader.drop_caches()

    def device_bytes(self) -> int:
        """What the reader takes on a device of its own; 0 without one."""
        return 0 if self._reader is None else self._reader.device_bytes()

    def unload(self) -> None:
        """Give up the reader, between two pages or at the end; its counters are kept."""
        if self._reader is None:
            return
        for name, count in self._reader.stats().items():
            self._stats[name] = self._stats.get(name, 0) + count
        self._reader.close()
        self._reader = None

    def stats(self) -> dict[str, float]:
        """Counters of all readers that were unloaded, added up."""
        return self._stats

    def _fill(self, reader: Reader, most: int | None) -> None:
        while self._waiting and (most is None or len(self._reading) < most):
            job = self._waiting[0]
            reader.submit(job)
            if not self._reading:
                self._first_since = time.monotonic()
            self._reading[job.key] = self._waiting.popleft()

    def _make_room(self, reader: Reader) -> Progress:
        """Memory ran out, with some pages in the reader or as the first one was handed to it."""
        reader.drop_caches()
        jobs = list(self._reading.values())
        first = jobs[0] if jobs else self._waiting[0]
        if len(jobs) <= 1 and first.key == self._failed_alone:
            if jobs:
                reader.abort(first.key)
            else:
                self._waiting.popleft()
            return Progress(too_large=first.key)
        kept = max(1, len(jobs) // 2)
        for job in reversed(jobs[kept:]):
            reader.abort(job.key)
            del self._reading[job.key]
            self._waiting.appendleft(job)
        self._failed_alone = first.key if len(jobs) <= 1 else None
        return Progress(num_pages=kept)
