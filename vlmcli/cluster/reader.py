"""A `reading.Reader` whose pages are read by workers elsewhere, each of which holds a model.

Deals pages out, gathers readings, and lets a worker's death cost time only: its pages are read
again, another worker is started in its place. Imports no Ray: workers are a `Fleet`, which tests
have of their own. Keeps no order and writes nothing; that is done where it is done without a
cluster, by the job. What workers take of memory is theirs to watch.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vlmcli.cluster.hands import Hands
from vlmcli.cluster.worker import LoadOrder, Progress
from vlmcli.errors import UnreachableError, VlmcliError
from vlmcli.reading import PageJob, PageReading

WAIT_SECONDS = 0.02
"""For workers, in one step: meanwhile drawn pages wait to be taken over."""
START_SECONDS = 600.0
"""Without any worker that can read: then the job ends. Loading a large model takes minutes."""
_FAILED_STARTS = 3
"""Workers that died one after another while they loaded the model; no more are started then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A worker has died, or its node has, or nobody can reach it."""

    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of calling the method `name` of a worker: its result, or `Lost`."""

    number: int
    name: str
    value: Any


class Fleet(Protocol):
    """Workers by number: each is called when it has answered its last call."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The workers that were started and not lost or ended since."""

    def is_free(self, number: int) -> bool:
        """Whether a worker has no call to answer."""

    def start(self) -> int:
        """Another worker."""

    def call(self, number: int, name: str, *arguments: Any) -> None:
        """Call a method of a worker that is free."""

    def collect(self, seconds: float) -> list[Answer]:
        """The answers that are there, waiting up to `seconds` for the first one."""

    def end(self, number: int) -> None:
        """End a worker."""


class ClusterReader:
    """Reads pages with the workers of a fleet. Each loads the model first, at the same time.

    Args:
        fleet: the workers; they are left when the reader is closed, for the next one.
        order: what they load.
        max_bytes: of pictures with one worker.
        on_warning: is told about workers that are lost or cannot read.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        fleet: Fleet,
        order: LoadOrder,
        *,
        max_bytes: int,
        on_warning: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet = fleet
        self._order = order
        self._hands = Hands(max_bytes)
        self._on_warning = on_warning
        self._clock = clock
        self._loading: set[int] = set()
        self._resting: set[int] = set()
        self._reading: set[int] = set()
        self._stopped: dict[int, list[int]] = {}
        """Pages that a worker has to be told to forget."""
        self._finished: list[PageReading] = []
        self._stats: dict[int, dict[str, float]] = {}
        self._num_lost = self._num_failed_starts = 0
        self._nobody_since = clock()
        self._error: VlmcliError | None = None
        for number in fleet.numbers:
            if fleet.is_free(number):
                self._load(number)

    def submit(self, job: PageJob) -> None:
        """Take a page; it is kept until it is read, however many workers it takes."""
        self._hands.put(job)

    def step(self) -> Sequence[PageReading]:
        """Give pages to workers at rest and take what others have finished.

        Raises:
            VlmcliError: no worker is left: the error of the last one that could not load the
                model, or `UnreachableError`.
        """
        self._deal()
        for answer in self._fleet.collect(WAIT_SECONDS):
            self._take(answer)
        self._require_workers()
        self._deal()
        finished, self._finished = self._finished, []
        return finished

    def abort(self, key: int) -> None:
        """Forget a page; the worker that reads it is told when it answers next."""
        self._finished = [reading for reading in self._finished if reading.key != key]
        worker = self._hands.abort(key)
        if worker is not None:
            self._stopped.setdefault(worker, []).append(key)

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""
        return self._hands.has_pages or bool(self._finished)

    def drop_caches(self) -> None:
        """Nothing is kept here that only saves time."""

    def device_bytes(self) -> int:
        """Nothing is taken of a device here."""
        return 0

    def stats(self) -> dict[str, float]:
        """Counters of all workers, added up, and what became of the workers."""
        total: dict[str, float] = {}
        for counts in self._stats.values():
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        return total | {
            "cluster_workers": len(self._stats),
            "cluster_workers_lost": self._num_lost,
            "cluster_pages_again": self._hands.num_again,
        }

    def close(self) -> None:
        """Nothing of it is left here; the workers keep the model until they load another."""

    def _load(self, number: int) -> None:
        self._loading.add(number)
        self._fleet.call(number, "load", self._order)

    def _deal(self) -> None:
        dealt = self._hands.deal(sorted(self._resting))
        for number in sorted(self._resting):
            stopped = self._stopped.pop(number, [])
            if stopped or self._hands.holds(number):
                self._resting.remove(number)
                self._reading.add(number)
                self._fleet.call(number, "advance", dealt.get(number, []), stopped)

    def _take(self, answer: Answer) -> None:
        number, value = answer.number, answer.value
        is_loading = number in self._loading
        is_known = is_loading or number in self._reading
        self._loading.discard(number)
        self._reading.discard(number)
        if isinstance(value, Lost):
            self._lose(number, value, is_loading=is_loading or not is_known)
        elif not is_known:
            # It was called by an earlier reader, or asked for its memory before there was one.
            self._load(number)
        elif isinstance(value, VlmcliError):
            self._error = value
            self._on_warning(f"a worker of the cluster cannot read: {value}")
            self._fleet.end(number)
        else:
            self._take_result(number, value)

    def _take_result(self, number: int, result: Progress | None) -> None:
        if result is None:
            self._num_failed_starts = 0
            self._hands.join(number)
        else:
            self._stats[number] = dict(result.stats)
            readings = (one for one in result.readings if self._hands.finish(number, one.key))
            self._finished += readings
        self._resting.add(number)

    def _lose(self, number: int, lost: Lost, *, is_loading: bool) -> None:
        self._num_lost += 1
        self._finished += self._hands.leave(number)
        self._stopped.pop(number, None)
        self._on_warning(f"a worker of the cluster is lost: {lost.cause}")
        if is_loading:
            self._num_failed_starts += 1
            cause = f"workers of the cluster die as they load the model: {lost.cause}"
            self._error = UnreachableError(cause, remedy="see Ray's logs of the node; memory?")
        if self._num_failed_starts < _FAILED_STARTS:
            self._load(self._fleet.start())

    def _require_workers(self) -> None:
        if self._resting or self._reading:
            self._nobody_since = self._clock()
            return
        if not self._loading and not self._fleet.numbers:
            raise self._error or UnreachableError("the cluster has no worker left")
        if self._clock() - self._nobody_since > START_SECONDS:
            raise UnreachableError(
                f"no worker of the cluster could read for {START_SECONDS:g} s",
                remedy="look at `ray status`; --resume goes on",
            )
