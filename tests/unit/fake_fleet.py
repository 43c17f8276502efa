"""A fleet without Ray: workers that answer when it pleases them, and die of pages or without cause.

Follows what is with whom and asserts what a cluster's reader promises its workers: one call at a
time, pictures within their bytes, a suspect alone.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from vlmcli.cluster.reader import Answer, Lost
from vlmcli.cluster.worker import Progress
from vlmcli.errors import VlmcliError
from vlmcli.memory.settings import Budgets
from vlmcli.reading import PageJob, PageReading

BUDGETS = Budgets(
    kv_cache_bytes=1,
    vision_kv_bytes=1,
    vision_cache_bytes=1,
    encoder_cache_bytes=1,
    swap_bytes=1,
    graph_bytes=0,
    encoder_graph_tokens=0,
    max_num_seqs=1,
    max_num_batched_tokens=1,
    max_encoder_tokens=1,
    pages_in_flight=1,
    jobs=1,
    overlap=False,
    worker_bytes=1,
    reader_bytes=100,
)


@dataclass
class FakeFleet:
    """`deadly` pages kill whoever has them; `kills` workers die besides, as chance has it.

    Workers in `broken` cannot load the model; all die while they load it where `is_cursed`.
    """

    num_workers: int
    max_bytes: int
    seed: int = 0
    deadly: frozenset[int] = frozenset()
    kills: int = 0
    broken: dict[int, VlmcliError] = field(default_factory=dict)
    is_cursed: bool = False
    never: frozenset[int] = frozenset()
    pages: dict[int, dict[int, PageJob]] = field(default_factory=dict)
    calls: dict[int, tuple[str, tuple[Any, ...]]] = field(default_factory=dict)
    victims: list[int] = field(default_factory=list)
    """Pages that were with a worker when that died, in the order of the deaths."""
    loads: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    num_started: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        for _ in range(self.num_workers):
            self.start()

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(self.pages)

    def is_free(self, number: int) -> bool:
        return number not in self.calls

    def start(self) -> int:
        self.num_started += 1
        self.pages[self.num_started] = {}
        return self.num_started

    def call(self, number: int, name: str, *arguments: Any) -> None:
        assert number not in self.calls, "one call at a time"
        self.calls[number] = (name, arguments)
        if name == "advance":
            self.take(number, *arguments)

    def take(self, number: int, jobs: list[PageJob], stopped: list[int]) -> None:
        held = self.pages[number]
        self.stopped += stopped
        for key in stopped:
            held.pop(key, None)
        held |= {job.key: job for job in jobs}
        assert len(held) == 1 or sum(job.nbytes for job in held.values()) <= self.max_bytes
        if any(key in self.victims for key in held):
            assert len(held) == 1, "a suspect is read alone"

    def collect(self, seconds: float) -> list[Answer]:
        ready = [number for number in self.calls if self.random.random() < 0.6]
        return [self.answer(number) for number in ready]

    def answer(self, number: int) -> Answer:
        name, _ = self.calls.pop(number)
        return Answer(number=number, name=name, value=self.value(number, name))

    def value(self, number: int, name: str) -> Any:
        if name == "load":
            self.loads.append(number)
            if self.is_cursed:
                return self.die(number)
            return self.broken.get(number)
        held = self.pages[number]
        is_killed = self.kills and held and self.random.random() < 0.3
        if is_killed or self.deadly & held.keys():
            self.kills -= bool(is_killed)
            return self.die(number)
        able = [key for key in held if key not in self.never]
        done = [key for key in able if self.random.random() < 0.5]
        for key in done:
            del held[key]
        readings = tuple(PageReading(key=key, text=f"page {key}") for key in done)
        return Progress(readings=readings, stats={"pages": len(done)})

    def die(self, number: int) -> Lost:
        self.victims += self.pages.pop(number)
        return Lost(cause="of no cause")

    def end(self, number: int) -> None:
        self.calls.pop(number, None)
        del self.pages[number]
