"""A page worker that dies or hangs costs its task alone."""

import time
from pathlib import Path

import pytest
from scans import write_pages

from vlmcli.documents.prepared import PrepareSpec
from vlmcli.documents.source import RenderSpec, Source
from vlmcli.errors import InputError
from vlmcli.workers import (
    DrawnPage,
    Failure,
    OpenedDocument,
    OpenTask,
    Outcome,
    PageTask,
    Task,
    WorkerPool,
)

SPEC = PrepareSpec(
    render=RenderSpec(dpi=100, max_pixels=10**6),
    text_layer="ignore",
    reads="lines",
    line_height=28,
    max_line_width=1120,
)


def page_task(source: Source, index: int) -> PageTask:
    return PageTask(serial=index, source=source, password=None, index=index, spec=SPEC)


def collect_all(pool: WorkerPool) -> dict[Task, Outcome]:
    answers: dict[Task, Outcome] = {}
    deadline = time.monotonic() + 60
    while pool.num_pending and time.monotonic() < deadline:
        answers |= dict(pool.collect(1.0))
    return answers


def test_documents_and_pages_are_answered(tmp_path: Path) -> None:
    source = Source(path=write_pages(tmp_path / "a.pdf", range(3)), name="a.pdf")
    missing = Source(path=tmp_path / "b.pdf", name="b.pdf")
    pool = WorkerPool(2)
    try:
        opening = [
            OpenTask(number=n, source=s, password=None, strict=False)
            for n, s in enumerate((source, missing))
        ]
        for task in opening:
            pool.submit(task)
        answers = collect_all(pool)
        opened, failed = (answers[task] for task in opening)
        assert isinstance(opened, OpenedDocument) and len(opened.pages) == 3
        assert isinstance(failed, Failure) and isinstance(failed.error, InputError)
        assert "b.pdf" in failed.error.message
        for index in range(3):
            pool.submit(page_task(source, index))
        pages = collect_all(pool)
        assert sorted(p.page.number for p in pages.values() if isinstance(p, DrawnPage)) == [
            1,
            2,
            3,
        ]
    finally:
        pool.close()


def test_a_killed_worker_costs_its_running_task_only(tmp_path: Path) -> None:
    source = Source(path=write_pages(tmp_path / "a.pdf", range(2)), name="a.pdf")
    pool = WorkerPool(1)
    try:
        first, second = page_task(source, 0), page_task(source, 1)
        pool.submit(first)
        pool.submit(second)
        pool._workers[0].process.kill()
        answers = collect_all(pool)
        lost = answers[first]
        assert isinstance(lost, Failure) and lost.kind == "died"
        assert "out of memory" in lost.message
        assert isinstance(answers[second], DrawnPage)
    finally:
        pool.close()


def test_a_task_for_a_worker_that_has_just_died_over_another_loses_neither(tmp_path: Path) -> None:
    """Nobody has noticed yet: a job waited for ever for the page that had killed the worker."""
    source = Source(path=write_pages(tmp_path / "a.pdf", range(2)), name="a.pdf")
    pool = WorkerPool(1)
    try:
        first, second = page_task(source, 0), page_task(source, 1)
        pool.submit(first)
        pool._workers[0].process.kill()
        pool._workers[0].process.wait()
        pool.submit(second)
        assert pool.num_pending == 2
        answers = collect_all(pool)
        lost = answers[first]
        assert isinstance(lost, Failure) and lost.kind == "died"
        assert isinstance(answers[second], DrawnPage)
    finally:
        pool.close()


def test_an_idle_worker_that_died_is_replaced(tmp_path: Path) -> None:
    source = Source(path=write_pages(tmp_path / "a.pdf", range(1)), name="a.pdf")
    pool = WorkerPool(1)
    try:
        pool.submit(page_task(source, 0))
        assert isinstance(collect_all(pool)[page_task(source, 0)], DrawnPage)
        pool._workers[0].process.kill()
        pool._workers[0].process.wait()
        pool.submit(page_task(source, 0))
        assert isinstance(collect_all(pool)[page_task(source, 0)], DrawnPage)
    finally:
        pool.close()


def test_a_task_that_takes_too_long_is_cut(tmp_path: Path) -> None:
    scan = write_pages(tmp_path / "a.pdf", range(1), lines=30)
    source = Source(path=scan, name="a.pdf")
    pool = WorkerPool(1, timeout=0.001)
    try:
        pool.submit(page_task(source, 0))
        outcome = collect_all(pool)[page_task(source, 0)]
        assert isinstance(outcome, Failure) and outcome.kind == "timeout"
        assert "0.001 s" in outcome.message
    finally:
        pool.close()


def test_workers_end_with_their_pool(tmp_path: Path) -> None:
    source = Source(path=write_pages(tmp_path / "a.pdf", range(2)), name="a.pdf")
    pool = WorkerPool(2)
    for index in range(2):
        pool.submit(page_task(source, index))
    processes = [worker.process for worker in pool._workers]
    pool.close()
    assert len(processes) == 2
    assert all(process.poll() is not None for process in processes)


def test_workers_start_as_they_are_needed(tmp_path: Path) -> None:
    source = Source(path=write_pages(tmp_path / "a.pdf", range(5)), name="a.pdf")
    pool = WorkerPool(2, depth=2)
    try:
        counts = []
        for index in range(4):
            assert pool.can_take()
            pool.submit(page_task(source, index))
            counts.append(len(pool._workers))
        assert counts == [1, 2, 2, 2]
        assert not pool.can_take()
        assert len(collect_all(pool)) == 4
        pool.submit(page_task(source, 4))
        assert len(pool._workers) == 2
    finally:
        pool.close()


def test_a_worker_that_cannot_start_is_no_page_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlmcli.workers._CHILD", "raise SystemExit(1)")
    pool = WorkerPool(1)
    try:
        with pytest.raises(RuntimeError, match="could not start"):
            pool.submit(page_task(Source(path=tmp_path / "a.pdf", name="a.pdf"), 0))
            collect_all(pool)
    finally:
        pool.close()
