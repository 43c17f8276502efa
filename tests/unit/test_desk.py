"""A failed allocation costs time; a page is given up only when it fails alone, twice."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.desk import Desk
from vlmcli.reading import OutOfMemoryError, PageJob, PageReading


class Tight:
    """A reader with room for pages of a total size; one step reads the oldest page."""

    def __init__(self, room: int, sizes: dict[int, int], *, at_submit: bool) -> None:
        self.room, self.sizes, self.at_submit = room, sizes, at_submit
        self.jobs: dict[int, PageJob] = {}
        self.num_drops = 0
        self.is_closed = False

    def submit(self, job: PageJob) -> None:
        assert job.key not in self.jobs
        if self.at_submit:
            self._check([*self.jobs, job.key])
        self.jobs[job.key] = job

    def step(self) -> Sequence[PageReading]:
        self._check(list(self.jobs))
        key = next(iter(self.jobs))
        del self.jobs[key]
        return [PageReading(key=key)]

    def abort(self, key: int) -> None:
        del self.jobs[key]

    def has_work(self) -> bool:
        return bool(self.jobs)

    def drop_caches(self) -> None:
        self.num_drops += 1

    def device_bytes(self) -> int:
        return 0

    def stats(self) -> dict[str, float]:
        return {"steps": 1}

    def close(self) -> None:
        self.is_closed = True

    def _check(self, keys: list[int]) -> None:
        if sum(self.sizes[key] for key in keys) > self.room:
            raise OutOfMemoryError


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(1, 40),
    st.booleans(),
)
def test_every_page_that_fits_alone_is_read_once_and_the_others_are_named(
    sizes: list[int], room: int, at_submit: bool
) -> None:
    reader = Tight(room, dict(enumerate(sizes)), at_submit=at_submit)
    desk = Desk(lambda: reader, timeout=None)
    for key in range(len(sizes)):
        desk.put(PageJob(key=key))
    most: int | None = None
    read, failed = [], []
    for _ in range(200):
        if not desk.has_work:
            break
        progress = desk.step(most)
        if progress.num_pages is not None:
            most = progress.num_pages if most is None else min(most, progress.num_pages)
        if progress.too_large is not None:
            failed.append(progress.too_large)
            desk.done(progress.too_large)
        for reading in progress.readings:
            read.append(reading.key)
            desk.done(reading.key)
    assert not desk.has_work
    assert sorted(read + failed) == list(range(len(sizes)))
    assert failed == [key for key, size in enumerate(sizes) if size > room]
    assert read == sorted(read)
    assert most is None or most >= 1


def test_half_of_the_pages_leave_where_memory_runs_out() -> None:
    reader = Tight(4, dict.fromkeys(range(8), 1), at_submit=False)
    desk = Desk(lambda: reader, timeout=None)
    for key in range(8):
        desk.put(PageJob(key=key))
    progress = desk.step(None)
    assert (progress.num_pages, list(progress.readings)) == (4, [])
    assert list(reader.jobs) == [0, 1, 2, 3]
    assert reader.num_drops == 1


def test_counters_of_every_reader_are_added_up() -> None:
    readers = []

    def load() -> Tight:
        readers.append(Tight(1, {0: 1}, at_submit=False))
        return readers[-1]

    desk = Desk(load, timeout=None)
    for _ in range(3):
        desk.put(PageJob(key=0))
        desk.step(None)
        desk.done(0)
        desk.unload()
    assert len(readers) == 3 and all(reader.is_closed for reader in readers)
    assert desk.stats() == {"steps": 3}
    assert not desk.is_loaded


def test_the_time_of_a_page_begins_when_it_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("vlmcli.desk.time.monotonic", lambda: clock[0])
    desk = Desk(lambda: Tight(9, {0: 1, 1: 1}, at_submit=False), timeout=10)
    desk.put(PageJob(key=0))
    desk.put(PageJob(key=1))
    desk.step(None)
    clock[0] = 8
    desk.done(0)
    clock[0] = 17
    assert desk.late_page() is None
    clock[0] = 19
    assert desk.late_page() == 1
