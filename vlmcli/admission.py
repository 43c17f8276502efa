"""How many pages may be in work at once, in bytes: the job's side of the memory budget.

A page counts for what drawing it takes while it is with the workers, and for its pixels while it
waits for the model or is read. Pure counting; where the numbers come from is the plan's business.
"""

from dataclasses import dataclass
from heapq import nlargest
from typing import Self

from vlmcli.memory.settings import Budgets

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCost:
    """What a page is expected to take, in bytes: with the workers, and as pixels in the reader."""

    worker_bytes: int
    reader_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a job's pages in work. Sizes in bytes.

    Attributes:
        jobs: page workers at a time.
        worker_bytes: what the pages that are drawn at the same time may take together.
        reader_bytes: pixels that wait for the model or are read; enough to keep its batches full.
        record_bytes: finished records that wait for an earlier page.
        max_pages: pages in work at a time; None for no bound but the others.
    """

    jobs: int
    worker_bytes: int
    reader_bytes: int
    record_bytes: int = 8 * MIB
    max_pages: int | None = None

    @classmethod
    def of(cls, budgets: Budgets) -> Self:
        """The bounds of a plan."""
        return cls(
            jobs=budgets.jobs,
            worker_bytes=budgets.worker_bytes,
            reader_bytes=budgets.reader_bytes,
            max_pages=None if budgets.overlap else 1,
        )


class Admission:
    """Counts the pages in work and says whether one more may join them.

    `max_pages` begins as the limits say and is narrowed where memory turns out to be short.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.max_pages = limits.max_pages
        self._in_workers: dict[int, PageCost] = {}
        self._in_reader: dict[int, tuple[int, int]] = {}
        self._reader_bytes = self._extra_bytes = self._extra_room = 0

    @property
    def num_pages(self) -> int:
        """Pages in work."""
        return len(self._in_workers) + len(self._in_reader)

    def admits(self, cost: PageCost) -> bool:
        """Whether a page of this cost may join those in work. Into nothing, any page may."""
        if not self.num_pages:
            return True
        if self.max_pages is not None and self.num_pages >= self.max_pages:
            return False
        return (
            self._drawn_together(cost) <= self.limits.worker_bytes
            and self._waiting_bytes + cost.reader_bytes <= self.limits.reader_bytes
        )

    def enter(self, serial: int, cost: PageCost) -> None:
        """A page goes to the workers; its place in the reader is kept from now on."""
        self._in_workers[serial] = cost
        self._reader_bytes += cost.reader_bytes

    def prepared(self, serial: int, reader_bytes: int, extra_bytes: int = 0) -> None:
        """A page has come back from the workers: so many bytes of pixels, and beside them."""
        self._reader_bytes += reader_bytes - self._in_workers.pop(serial).reader_bytes
        self._extra_bytes += extra_bytes
        self._in_reader[serial] = (reader_bytes, extra_bytes)

    def leave(self, serial: int) -> None:
        """A page is finished, wherever it was."""
        if serial in self._in_workers:
            self._reader_bytes -= self._in_workers.pop(serial).reader_bytes
        else:
            pixels, extra = self._in_reader.pop(serial)
            self._reader_bytes -= pixels
            self._extra_bytes -= extra

    def make_room(self, extra_bytes: int) -> None:
        """So much may be kept of the pages in work beside their pixels; more counts as pixels."""
        self._extra_room = extra_bytes

    @property
    def _waiting_bytes(self) -> int:
        return self._reader_bytes + max(0, self._extra_bytes - self._extra_room)

    def narrow(self, num_pages: int) -> None:
        """From now on no more than so many pages, and not more than before; at least one."""
        most = num_pages if self.max_pages is None else min(num_pages, self.max_pages)
        self.max_pages = max(1, most)

    def widen(self) -> None:
        """One page more than the bound, where it was narrowed."""
        if self.max_pages is not None and self.max_pages != self.limits.max_pages:
            self.max_pages += 1

    def _drawn_together(self, cost: PageCost) -> int:
        """Bytes of the costliest pages that the workers can have in hand at the same time."""
        costs = [one.worker_bytes for one in self._in_workers.values()]
        return sum(nlargest(self.limits.jobs, [*costs, cost.worker_bytes]))
