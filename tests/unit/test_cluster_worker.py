"""A cluster's worker, without a cluster: it reads what it is given, or says why it does not."""

import os
from dataclasses import replace

import numpy as np
import pytest
from fake_fleet import BUDGETS
from fake_reader import FakeReader

import vlmcli.cluster
import vlmcli.readers
from vlmcli.checkpoint import find_checkpoint
from vlmcli.cluster import open_cluster
from vlmcli.cluster.worker import Worker, order_for
from vlmcli.errors import ExitCode, ModelError, UsageError
from vlmcli.options import OcrOptions
from vlmcli.reading import OutOfMemoryError, PageJob

OPTIONS = OcrOptions(inputs=("secret.pdf",), password="secret", threads=7, device="cpu")
NANO = find_checkpoint("nano")


def job(key: int) -> PageJob:
    return PageJob(key=key, picture=np.zeros((4, 4, 3), np.uint8))


def order(**more):
    known = {"model": NANO.label, "threads": 2, "max_bytes": 1 << 40}
    return order_for(OPTIONS, BUDGETS, **{**known, **more})


@pytest.fixture
def worker(monkeypatch):
    """A worker that loads a new fake reader whenever it is told to load one; and these."""
    readers = []

    def load_reader(checkpoint, options, budgets):
        readers.append(FakeReader(seed=len(readers)))
        return readers[-1]

    monkeypatch.setattr(vlmcli.readers, "load_reader", load_reader)
    return Worker({}), readers


def test_every_page_comes_back_once(worker):
    worker, _ = worker
    assert worker.load(order()) is None
    found = []
    for key in range(1, 20):
        found += worker.advance([job(key)], []).readings
    while len(found) < 19:
        found += worker.advance([], []).readings
    assert sorted(reading.key for reading in found) == list(range(1, 20))
    rest = worker.advance([], [])
    assert not rest.readings and rest.stats == {"fake_pages": 19}


def test_a_page_that_is_stopped_does_not_come_back(worker, monkeypatch):
    monkeypatch.setattr("vlmcli.cluster.worker.SLICE_SECONDS", 0.0)
    worker, readers = worker
    worker.load(order())
    readers[0].never = frozenset({1, 2})
    worker.advance([job(1), job(2), job(3)], [])
    found = worker.advance([], [1]).readings
    readers[0].never = frozenset()
    for _ in range(30):
        found += worker.advance([], []).readings
    assert {reading.key for reading in found} <= {2, 3} and 2 in {r.key for r in found}


def test_a_page_too_large_for_a_worker_is_an_error_and_the_others_go_on(worker, monkeypatch):
    worker, readers = worker
    worker.load(order())

    def step():
        if 2 in readers[0].jobs:
            raise OutOfMemoryError("no room")
        return FakeReader.step(readers[0])

    readers[0].step = step
    found = []
    for jobs in ([job(1), job(2), job(3)], *[[]] * 60):
        found += worker.advance(jobs, []).readings
    assert {reading.key: reading.code for reading in found} == {1: "", 2: "too-large", 3: ""}


def test_another_model_or_other_code_is_refused(worker):
    worker, readers = worker
    for wrong in (order(model="nano@another"), replace(order(), code="0" * 64)):
        error = worker.load(wrong)
        assert isinstance(error, ModelError) and "a node of the cluster" in error.message
    assert not readers
    assert worker.load(order()) is None


def test_a_second_model_takes_the_place_of_the_first(worker):
    worker, readers = worker
    worker.load(order())
    worker.advance([job(1)], [])
    worker.load(order())
    assert readers[0].is_closed and not readers[1].is_closed
    assert worker.advance([job(2)], []).stats == {"fake_pages": 2}


def test_what_a_worker_is_told():
    told = order().options
    assert (told.password, told.inputs, told.threads) == (None, (), 2)
    assert (
        order_for(
            OcrOptions(inputs=(), device="cuda:3"), BUDGETS, model="m", threads=1, max_bytes=1
        ).options.device
        == "cuda"
    )


def test_libraries_are_set_as_the_driver_set_them_unless_the_node_has_its_own(monkeypatch):
    monkeypatch.setenv("HERE", "own")
    monkeypatch.delenv("NOT_HERE", raising=False)
    Worker({"HERE": "driver", "NOT_HERE": "driver"})
    assert (os.environ["HERE"], os.environ.pop("NOT_HERE")) == ("own", "driver")


def test_without_ray_the_remedy_is_how_to_install_it(monkeypatch):
    monkeypatch.setattr(vlmcli.cluster, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="not installed") as caught:
        open_cluster(OcrOptions(inputs=(), ray="local"), NANO, print)
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.remedy == "pip install 'vlmcli[ray]'"
