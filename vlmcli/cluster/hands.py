"""Who has which page: pages dealt out to workers within their bytes, and dealt again when one dies.

Counting and queues alone; pages are known by their keys and by the bytes of their pictures. A page
that was with a worker when it died is read again with a worker to itself, since a neighbour may
have been at fault; where that one dies too, the page is given up.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from vlmcli.reading import PageJob, PageReading

DIED = "two workers of the cluster died while they read the page, one of them with nothing else"


@dataclass(slots=True)
class _Hand:
    """The pages of one worker, in the order in which it was given them."""

    jobs: dict[int, PageJob] = field(default_factory=dict)
    num_bytes: int = 0
    is_reserved: bool = False
    """Whether it holds a page that is to be read alone, or becomes empty for one."""


class Hands:
    """Pages on their way to workers and with them.

    Args:
        max_bytes: of pictures with one worker; a worker without any page may have a larger one.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._hands: dict[int, _Hand] = {}
        self._waiting: deque[PageJob] = deque()
        self._suspects: deque[PageJob] = deque()
        self._alone: set[int] = set()
        self.num_again = 0
        """Pages that were read again because a worker died."""

    @property
    def has_pages(self) -> bool:
        """Whether a page waits or is with a worker."""
        waiting = self._waiting or self._suspects
        return bool(waiting) or any(hand.jobs for hand in self._hands.values())

    def put(self, job: PageJob) -> None:
        """Take a page; it waits for a worker."""
        self._waiting.append(job)

    def join(self, worker: int) -> None:
        """A worker can take pages from now on."""
        self._hands[worker] = _Hand()

    def holds(self, worker: int) -> bool:
        """Whether a worker has a page."""
        return bool(self._hands[worker].jobs)

    def deal(self, resting: Iterable[int]) -> dict[int, list[PageJob]]:
        """Pages for those workers that can be given some now, the least busy one first."""
        dealt: dict[int, list[PageJob]] = {worker: [] for worker in resting}
        self._deal_suspects(dealt)
        while self._waiting:
            job = self._waiting[0]
            worker = self._worker_for(job, dealt)
            if worker is None:
                break
            self._give(worker, self._waiting.popleft(), dealt)
        return {worker: jobs for worker, jobs in dealt.items() if jobs}

    def finish(self, worker: int, key: int) -> bool:
        """A worker has read a page; False where the page was not with it, being aborted before."""
        hand = self._hands[worker]
        job = hand.jobs.pop(key, None)
        if job is None:
            return False
        hand.num_bytes -= job.nbytes
        hand.is_reserved = hand.is_reserved and key not in self._alone
        self._alone.discard(key)
        return True

    def abort(self, key: int) -> int | None:
        """Forget a page; the worker that has it, if one does."""
        self._waiting = deque(job for job in self._waiting if job.key != key)
        self._suspects = deque(job for job in self._suspects if job.key != key)
        for worker, hand in self._hands.items():
            if key in hand.jobs:
                self.finish(worker, key)
                return worker
        return None

    def leave(self, worker: int) -> list[PageReading]:
        """A worker is no more; its pages wait again, but for one that it died of a second time."""
        hand = self._hands.pop(worker, _Hand())
        failed: list[PageReading] = []
        for key, job in hand.jobs.items():
            if key in self._alone:
                self._alone.discard(key)
                failed.append(
                    PageReading(
                        key=key, status="error", code="worker-died", message=DIED, attempts=2
                    )
                )
            else:
                self.num_again += 1
                self._suspects.append(job)
        return failed

    def _deal_suspects(self, dealt: dict[int, list[PageJob]]) -> None:
        """Suspects go to empty workers; while some wait, one worker is left to become empty."""
        for worker in dealt:
            hand = self._hands[worker]
            if self._suspects and not hand.jobs:
                job = self._suspects.popleft()
                self._alone.add(job.key)
                self._give(worker, job, dealt)
                hand.is_reserved = True
        if self._suspects and not any(hand.is_reserved for hand in self._hands.values()):
            least = min(self._hands.values(), key=lambda hand: hand.num_bytes, default=None)
            if least is not None:
                least.is_reserved = True
        if not self._suspects:
            for hand in self._hands.values():
                hand.is_reserved = any(key in self._alone for key in hand.jobs)

    def _worker_for(self, job: PageJob, dealt: dict[int, list[PageJob]]) -> int | None:
        room = [
            worker
            for worker in dealt
            if not (hand := self._hands[worker]).is_reserved
            and (not hand.jobs or hand.num_bytes + job.nbytes <= self._max_bytes)
        ]
        return min(room, key=lambda worker: self._hands[worker].num_bytes, default=None)

    def _give(self, worker: int, job: PageJob, dealt: dict[int, list[PageJob]]) -> None:
        hand = self._hands[worker]
        hand.jobs[job.key] = job
        hand.num_bytes += job.nbytes
        dealt[worker].append(job)
