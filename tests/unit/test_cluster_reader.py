"""Pages on a cluster: each is read once, whoever dies meanwhile; one that kills is given up."""

from collections import Counter

import numpy as np
import pytest
from fake_fleet import BUDGETS, FakeFleet
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.cluster import reader as module
from vlmcli.cluster.reader import ClusterReader
from vlmcli.cluster.worker import LoadOrder
from vlmcli.errors import ModelError, UnreachableError
from vlmcli.options import OcrOptions
from vlmcli.reading import PageJob, PageReading

ORDER = LoadOrder(
    options=OcrOptions(inputs=()), budgets=BUDGETS, model="nano@1", code="c", max_bytes=None
)
MAX_BYTES = 100


def job(key: int, size: int) -> PageJob:
    return PageJob(key=key, picture=np.zeros((1, size, 1), np.uint8))


def reader_of(fleet: FakeFleet, **more) -> tuple[ClusterReader, list[str]]:
    warnings: list[str] = []
    return (
        ClusterReader(fleet, ORDER, max_bytes=MAX_BYTES, on_warning=warnings.append, **more),
        warnings,
    )


def read_all(reader: ClusterReader, jobs: list[PageJob]) -> list[PageReading]:
    """Submit a page now and then and step until all are read."""
    found: list[PageReading] = []
    waiting = list(jobs)
    for _ in range(20_000):
        if waiting:
            reader.submit(waiting.pop(0))
        found += reader.step()
        if not waiting and not reader.has_work():
            return found
    raise AssertionError(f"{len(jobs) - len(found)} pages are not read")


JOBS = st.lists(st.integers(1, 140), min_size=1, max_size=25).map(
    lambda sizes: [job(key, size) for key, size in enumerate(sizes, 1)]
)


@given(JOBS, st.integers(1, 4), st.integers(0, 5), st.integers(0, 1 << 30))
def test_n_pages_in_n_readings_out_whoever_dies(jobs, workers, kills, seed):
    fleet = FakeFleet(workers, MAX_BYTES, seed=seed, kills=kills)
    reader, warnings = reader_of(fleet)
    readings = read_all(reader, jobs)
    assert sorted(reading.key for reading in readings) == [page.key for page in jobs]
    deaths = Counter(fleet.victims)
    for reading in readings:
        assert deaths[reading.key] <= 2
        if reading.status == "ok":
            assert reading.text == f"page {reading.key}"
        else:
            assert deaths[reading.key] == 2 and reading.code == "worker-died"
    lost = kills - fleet.kills
    stats = reader.stats()
    assert stats["cluster_workers_lost"] == len(warnings) == lost
    assert stats["cluster_pages_again"] == len(deaths)
    assert fleet.num_started == workers + lost


@given(JOBS, st.integers(1, 4), st.sets(st.integers(1, 25)), st.integers(0, 1 << 30))
def test_pages_that_kill_are_given_up_and_cost_no_other_page(jobs, workers, deadly, seed):
    fleet = FakeFleet(workers, MAX_BYTES, seed=seed, deadly=frozenset(deadly))
    readings = read_all(reader_of(fleet)[0], jobs)
    failed = {reading.key for reading in readings if reading.status == "error"}
    assert failed == deadly & {page.key for page in jobs}
    assert len(readings) == len(jobs)


def test_a_page_that_is_stopped_is_not_heard_of_again():
    fleet = FakeFleet(2, MAX_BYTES, never=frozenset({2}))
    reader, _ = reader_of(fleet)
    jobs = [job(key, 10) for key in range(1, 6)]
    found = []
    for page in jobs:
        reader.submit(page)
    for _ in range(200):
        found += reader.step()
    assert sorted(reading.key for reading in found) == [1, 3, 4, 5]
    assert reader.has_work()
    reader.abort(2)
    assert not reader.has_work()
    for _ in range(50):
        assert not reader.step()
    assert fleet.stopped == [2] and not any(fleet.pages.values())


def test_a_page_that_waits_can_be_stopped_too():
    reader, _ = reader_of(FakeFleet(1, MAX_BYTES))
    reader.submit(job(1, 10))
    reader.abort(1)
    assert not reader.has_work()


def test_workers_that_cannot_read_are_left_out():
    error = ModelError("the model is another one")
    fleet = FakeFleet(3, MAX_BYTES, broken={1: error, 3: error})
    reader, warnings = reader_of(fleet)
    assert len(read_all(reader, [job(key, 10) for key in range(1, 9)])) == 8
    assert fleet.numbers == (2,)
    assert len(warnings) == 2 and "another one" in warnings[0]


def test_where_nobody_can_read_the_job_ends_with_the_cause():
    error = ModelError("the model is another one")
    reader, _ = reader_of(FakeFleet(2, MAX_BYTES, broken={1: error, 2: error}))
    with pytest.raises(ModelError, match="another one"):
        read_all(reader, [job(1, 10)])


def test_workers_that_die_as_they_load_are_not_started_for_ever():
    fleet = FakeFleet(2, MAX_BYTES, is_cursed=True)
    with pytest.raises(UnreachableError, match="die as they load the model"):
        read_all(reader_of(fleet)[0], [job(1, 10)])
    assert fleet.num_started <= 5


def test_patience_ends_where_no_worker_comes():
    fleet = FakeFleet(1, MAX_BYTES)
    fleet.collect = lambda seconds: []
    clock = iter(range(0, 10_000, 100))
    reader, _ = reader_of(fleet, clock=lambda: float(next(clock)))
    with pytest.raises(UnreachableError, match="could read for 600 s"):
        read_all(reader, [job(1, 10)])
    assert next(clock) > module.START_SECONDS


def test_a_reader_takes_over_the_workers_of_the_one_before():
    fleet = FakeFleet(3, MAX_BYTES)
    first, _ = reader_of(fleet)
    assert len(read_all(first, [job(1, 10)])) == 1
    first.close()
    second, _ = reader_of(fleet)
    assert len(read_all(second, [job(key, 10) for key in range(2, 30)])) == 28
    assert set(fleet.loads) == {1, 2, 3} and fleet.num_started == 3
    assert fleet.loads[-1] in (1, 2, 3) and len(fleet.loads) > 3
