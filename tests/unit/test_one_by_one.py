"""Readers that take one page at a time: no page is lost, doubled, or waited for when given up."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.desk import Desk
from vlmcli.errors import PageError
from vlmcli.readers.one_by_one import IsStopped, OneByOneReader
from vlmcli.reading import OutOfMemoryError, PageJob, PageReading

PICTURE = np.zeros((2, 2, 3), np.uint8)


class Scripted:
    """Reads a page as its key's action says; `waits` blocks until it is told to stop."""

    def __init__(self, actions: dict[int, str]) -> None:
        self.actions = actions
        self.tries: list[int] = []
        self.at_once = threading.Lock()

    def read(self, job: PageJob, is_stopped: IsStopped) -> PageReading:
        assert self.at_once.acquire(blocking=False), "two pages at once"
        try:
            self.tries.append(job.key)
            action = self.actions.get(job.key, "reads")
            if action == "fails":
                raise PageError("no", code="read")
            if action == "memory" or (action == "memory once" and self.tries.count(job.key) == 1):
                raise MemoryError
            if action == "bug":
                raise ZeroDivisionError
            while action == "waits" and not is_stopped():
                pass
            return PageReading(key=job.key, text=f"page {job.key}")
        finally:
            self.at_once.release()

    def drop_caches(self) -> None:
        assert not self.at_once.locked(), "in the middle of a page"

    def device_bytes(self) -> int:
        return 7

    def stats(self) -> dict[str, float]:
        return {"tries": len(self.tries)}


def job(key: int) -> PageJob:
    return PageJob(key=key, picture=PICTURE)


def drain(reader: OneByOneReader) -> list[PageReading]:
    found: list[PageReading] = []
    while reader.has_work():
        found += reader.step()
    return found


@given(st.lists(st.sampled_from(["reads", "fails", "memory", "memory once"]), max_size=6))
def test_every_page_comes_to_an_end_whatever_happens_to_it(kinds: list[str]) -> None:
    model = Scripted(dict(enumerate(kinds)))
    reader = OneByOneReader(model)
    desk = Desk(lambda: reader, timeout=None)
    for key in range(len(kinds)):
        desk.put(job(key))
    ends: dict[int, str] = {}
    most: int | None = None
    for _ in range(1000):
        progress = desk.step(most)
        most = progress.num_pages or most
        for reading in progress.readings:
            assert reading.key not in ends
            ends[reading.key] = "reads" if reading.status == "ok" else reading.code
            desk.done(reading.key)
        if progress.too_large is not None:
            ends[progress.too_large] = "too large"
            desk.done(progress.too_large)
        if not desk.has_work:
            break
    expected = {"reads": "reads", "fails": "read", "memory": "too large", "memory once": "reads"}
    assert ends == {key: expected[kind] for key, kind in enumerate(kinds)}
    desk.unload()


def test_a_page_that_is_given_up_gives_nothing_and_the_next_one_is_read() -> None:
    model = Scripted({1: "waits"})
    reader = OneByOneReader(model)
    for key in (1, 2, 3):
        reader.submit(job(key))
    for _ in range(3):
        assert reader.step() == ()
    reader.abort(1)
    reader.abort(3)
    assert [reading.text for reading in drain(reader)] == ["page 2"]
    assert model.tries == [1, 2]


def test_closing_does_not_wait_for_a_page_to_be_finished() -> None:
    reader = OneByOneReader(Scripted({1: "waits"}))
    reader.submit(job(1))
    assert reader.step() == ()
    reader.drop_caches()
    reader.close()
    assert not reader.has_work()
    assert not [one for one in threading.enumerate() if one.name.startswith("vlmcli-reader")]


def test_our_own_faults_are_not_the_pages() -> None:
    reader = OneByOneReader(Scripted({1: "bug"}))
    reader.submit(job(1))
    with pytest.raises(ZeroDivisionError):
        drain(reader)
    reader.submit(job(2))
    assert [reading.key for reading in drain(reader)] == [2]


def test_failed_allocations_leave_the_page_where_it_was() -> None:
    reader = OneByOneReader(Scripted({1: "memory once"}))
    reader.submit(job(1))
    with pytest.raises(OutOfMemoryError):
        drain(reader)
    assert reader.has_work()
    assert [reading.key for reading in drain(reader)] == [1]
    stats = reader.stats()
    assert (stats["tries"], stats["pages_read"], reader.device_bytes()) == (2, 1, 7)
