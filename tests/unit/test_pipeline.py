"""N pages in, N records out, in order, whatever happens to single pages on the way."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_reader import FakeReader
from scans import write_pages

from vlmcli.admission import Limits
from vlmcli.documents.source import PageHandle
from vlmcli.errors import ExitCode, InputError, PageError
from vlmcli.memory.demand import measure_pages
from vlmcli.memory.request import PlanRequest, make_planner
from vlmcli.options import OcrOptions
from vlmcli.pipeline import run_ocr
from vlmcli.reading import CropText, PageReading
from vlmcli.report import JobSummary, NullReporter


def run(reader: FakeReader, *inputs: Path, **options: Any) -> tuple[JobSummary, list[Any]]:
    stdout = io.BytesIO()
    summary = run_ocr(
        OcrOptions(
            inputs=tuple(map(str, inputs)),
            formats=("jsonl",),
            **{"text_layer": "ignore", "jobs": 2, "reuse": "off", **options},
        ),
        stdout=stdout,
        reporter=NullReporter(),
        make_reader=lambda checkpoint, options, budgets: reader,
    )
    return summary, [json.loads(line) for line in stdout.getvalue().splitlines()]


class SlowReader(FakeReader):
    """Reads one page after the other, each in 40 seconds by its own clock; some never."""

    clock = 0.0

    def step(self) -> Sequence[PageReading]:
        self.clock += 40
        key, (job, _) = next(iter(self.jobs.items()))
        if key in self.never:
            return []
        del self.jobs[key]
        return [PageReading(key=key, crops=(CropText(text="x", confidence=1.0),) * len(job.crops))]


@pytest.fixture(scope="module")
def ten_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pages(tmp_path_factory.mktemp("scan") / "ten.pdf", range(10))


@pytest.mark.parametrize("seed", range(3))
def test_records_come_in_page_order_with_their_own_text(ten_pages: Path, seed: int) -> None:
    reader = FakeReader(seed=seed)
    summary, records = run(reader, ten_pages)
    assert [record["page"] for record in records] == list(range(1, 11))
    for record in records:
        assert set(record["text"].split("\n")) - {""} == {f"serial {record['page']}"}
        assert len(record["lines"]) == 3
        assert record["pages"] == 10
    assert summary.exit_code == ExitCode.OK
    assert reader.is_closed


def test_failed_pages_are_records_and_the_job_goes_on(ten_pages: Path) -> None:
    summary, records = run(FakeReader(statuses={3: "error", 7: "looped"}), ten_pages)
    assert [record["page"] for record in records] == list(range(1, 11))
    statuses = {record["page"]: record["status"] for record in records}
    assert statuses == dict.fromkeys(range(1, 11), "ok") | {3: "error", 7: "looped"}
    assert records[2]["text"] == "" and records[2]["error"]["message"] == "injected error"
    assert records[6]["error"]["code"] == "looped"
    assert (summary.failed, summary.exit_code) == (2, ExitCode.PARTIAL)


def test_a_page_that_never_ends_is_a_timeout(ten_pages: Path) -> None:
    reader = FakeReader(never=frozenset({4}))
    summary, records = run(reader, ten_pages, page_timeout=5.0)
    assert [r["page"] for r in records if r["status"] == "timeout"] == [4]
    assert [r["page"] for r in records if r["status"] == "ok"] == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert reader.aborted == [4]
    assert summary.exit_code == ExitCode.PARTIAL


def test_waiting_for_ones_turn_is_no_timeout(
    ten_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SlowReader(never=frozenset({4}))
    monkeypatch.setattr("vlmcli.desk.time", SimpleNamespace(monotonic=lambda: reader.clock))
    _, records = run(reader, ten_pages, page_timeout=60.0)
    late = [record["page"] for record in records if record["status"] == "timeout"]
    assert len(late) == 1 and reader.clock > 60


CRASHING_WORKER = """
import os, sys
sys.path[:] = {path!r}
from vlmcli import page_worker
prepare = page_worker.prepare_page
def crash(document, index, spec, on_picture):
    if index == 3 or (index == 5 and not os.path.exists({once!r})):
        open({once!r}, "w").close()
        os.kill(os.getpid(), 11)
    return prepare(document, index, spec, on_picture)
page_worker.prepare_page = crash
page_worker.main({fd})
"""


def test_a_page_that_crashes_its_worker_costs_itself_and_has_a_second_chance(
    tmp_path: Path, ten_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = CRASHING_WORKER.replace("{once!r}", repr(str(tmp_path / "once")))
    monkeypatch.setattr("vlmcli.workers._CHILD", script)
    summary, records = run(FakeReader(), ten_pages, pages="2-6", jobs=1)
    assert [record["page"] for record in records] == [2, 3, 4, 5, 6]
    assert [record["status"] for record in records] == ["ok", "ok", "error", "ok", "ok"]
    crashed = records[2]
    assert crashed["error"]["code"] == "worker-died" and crashed["attempts"] == 2
    assert "signal 11" in crashed["error"]["message"]
    assert summary.exit_code == ExitCode.PARTIAL


def test_fail_fast_stops_at_the_first_failure(ten_pages: Path) -> None:
    with pytest.raises(PageError, match="page 1: injected error"):
        run(FakeReader(statuses={1: "error"}, max_delay=0), ten_pages, fail_fast=True, jobs=1)


def test_only_selected_pages_are_read(ten_pages: Path) -> None:
    reader = FakeReader()
    _, records = run(reader, ten_pages, pages="2,9-end")
    assert [record["page"] for record in records] == [2, 9, 10]
    assert reader.num_submitted == 3


def test_documents_keep_their_order_and_bad_ones_have_a_record(
    tmp_path: Path, ten_pages: Path
) -> None:
    broken, empty, page = tmp_path / "broken.pdf", tmp_path / "empty.pdf", tmp_path / "x.html.pdf"
    broken.write_bytes(b"%PDF-1.7\n%%EOF\n")
    empty.write_bytes(b"")
    page.write_text("<html><body>no</body></html>")
    one = write_pages(tmp_path / "one.pdf", [50])
    reader = FakeReader()
    summary, records = run(reader, broken, one, empty, ten_pages, page)
    places = [(Path(r["document"]).name, r["page"]) for r in records]
    assert places == [
        ("broken.pdf", 0),
        ("one.pdf", 1),
        ("empty.pdf", 0),
        *(("ten.pdf", n) for n in range(1, 11)),
        ("x.html.pdf", 0),
    ]
    codes = [r["error"]["code"] for r in records if r["status"] == "error"]
    assert len(set(codes)) == 3
    assert (summary.failed, summary.exit_code) == (3, ExitCode.PARTIAL)


def test_the_only_document_unreadable_is_an_error_of_the_job(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pdf"
    empty.write_bytes(b"")
    with pytest.raises(InputError, match=r"empty\.pdf"):
        run(FakeReader(), empty)


def test_all_documents_unreadable_is_exit_3(tmp_path: Path) -> None:
    empty, missing = tmp_path / "empty.pdf", tmp_path / "missing.pdf"
    empty.write_bytes(b"")
    summary, records = run(FakeReader(), empty, missing)
    assert summary.exit_code == ExitCode.INPUT
    assert [r["error"]["code"] for r in records] == ["empty", "missing"]


def test_resumed_equals_uninterrupted(tmp_path: Path, ten_pages: Path) -> None:
    def to_file(out: Path, reader: FakeReader, **options: Any) -> JobSummary:
        return run(reader, ten_pages, output=str(out), **options)[0]

    def without_seconds(file: Path) -> list[Any]:
        return [{**json.loads(line), "seconds": None} for line in file.read_text().splitlines()]

    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    to_file(whole, FakeReader(max_delay=0))

    class StopError(Exception):
        pass

    def stop(key: int) -> None:
        if key == 6:
            raise StopError

    with pytest.raises(StopError):
        to_file(cut, FakeReader(max_delay=0, on_submit=stop), jobs=1)
    kept = cut.read_text().splitlines()
    assert 0 < len(kept) < 10
    assert all(json.loads(line)["page"] for line in kept)

    reader = FakeReader(max_delay=0)
    shift = 10 - (10 - len(kept))
    summary = to_file(cut, reader, resume=True)
    assert summary.resumed == len(kept)
    assert reader.num_submitted == 10 - summary.resumed
    resumed = without_seconds(cut)
    for record in resumed[shift:]:
        serial = record["page"] - shift
        assert f"serial {serial}" in record["text"]
    assert resumed[:shift] == without_seconds(whole)[:shift]
    assert [r["page"] for r in resumed] == list(range(1, 11))
    assert not list(tmp_path.glob("*journal*"))


def test_bytes_in_the_reader_stay_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = write_pages(tmp_path / "many.pdf", range(40))
    single = FakeReader(on_submit=lambda key: sizes.append(single.max_bytes), max_delay=0)
    sizes: list[int] = []
    run(single, scan, jobs=1)
    largest = sizes[-1]
    shape = PageHandle(document="", index=0, num_pages=1, width=300, height=160, unit="pt")
    planner = make_planner(PlanRequest(inputs=("many.pdf",)))
    (demand,) = measure_pages([shape], planner.facts, planner.settings).demands
    limits = Limits(jobs=2, worker_bytes=1 << 40, reader_bytes=demand.picture_bytes + 4 * largest)
    monkeypatch.setattr("vlmcli.intake.Limits.of", lambda budgets: limits)
    reader = FakeReader(max_delay=60)
    _, records = run(reader, scan)
    assert len(records) == 40
    # One page more may be with the workers, for which its estimate is kept free.
    assert largest <= reader.max_bytes <= 5 * largest


def test_a_text_layer_job_never_loads_a_reader(tmp_path: Path) -> None:
    scan = write_pages(tmp_path / "scan.pdf", [1, 2])
    reader = FakeReader()
    _, records = run(reader, scan, text_layer="only")
    assert [record["source"] for record in records] == ["text-layer"] * 2
    assert reader.num_submitted == 0
    assert not reader.is_closed
