"""Whatever memory does, N pages in are N records out: later, or named too large."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fake_reader import FakeReader
from scans import write_pages

from vlmcli.bench.pages import page_picture, write_scan
from vlmcli.errors import ExitCode, WillNotFitError
from vlmcli.memory.demand import measure_pages
from vlmcli.memory.estimate import PDF_WRITER_BYTES
from vlmcli.memory.request import PlanRequest, make_planner
from vlmcli.memory.settings import Budgets
from vlmcli.options import OcrOptions
from vlmcli.pipeline import run_ocr
from vlmcli.reading import OutOfMemoryError, PageReading
from vlmcli.report import JobSummary, NullReporter
from vlmcli.workers import Failure, OpenTask, Outcome, Task, WorkerPool

MIB = 1 << 20


@dataclass
class Notes(NullReporter):
    warnings: list[str] = field(default_factory=list)

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def run(
    make_reader: Callable[[Budgets], FakeReader], *inputs: Path, **options: Any
) -> tuple[JobSummary, list[Any], list[str]]:
    stdout, notes = io.BytesIO(), Notes()
    summary = run_ocr(
        OcrOptions(
            inputs=tuple(map(str, inputs)),
            formats=("jsonl",),
            **{"text_layer": "ignore", "jobs": 2, **options},
        ),
        stdout=stdout,
        reporter=notes,
        make_reader=lambda checkpoint, options, budgets: make_reader(budgets),
    )
    records = [json.loads(line) for line in stdout.getvalue().splitlines()]
    return summary, records, notes.warnings


class TightReader(FakeReader):
    """Has room for three pages, and none for those in `huge`, by order of submission.

    Finishes nothing before it has run out of memory once.
    """

    huge: frozenset[int] = frozenset()
    most = 0

    def step(self) -> Sequence[PageReading]:
        if len(self.jobs) > 3 or self.huge & self.jobs.keys():
            raise OutOfMemoryError
        self.most = max(self.most, len(self.jobs))
        return super().step() if self.num_drops else []


@pytest.fixture(scope="module")
def ten_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pages(tmp_path_factory.mktemp("scan") / "ten.pdf", range(10))


def test_a_reader_without_room_gets_fewer_pages_and_all_are_read(ten_pages: Path) -> None:
    reader = TightReader(max_delay=3)
    summary, records, warnings = run(lambda _: reader, ten_pages)
    assert [record["page"] for record in records] == list(range(1, 11))
    assert {record["status"] for record in records} == {"ok"}
    assert 1 <= reader.most <= 3
    assert reader.num_drops >= 1 and len(warnings) == 1
    assert summary.exit_code == ExitCode.OK


def test_only_a_page_that_fails_alone_is_given_up(ten_pages: Path) -> None:
    reader = TightReader(max_delay=3)
    reader.huge = frozenset({4})
    summary, records, _ = run(lambda _: reader, ten_pages)
    assert [record["page"] for record in records] == list(range(1, 11))
    failed = [record for record in records if record["status"] != "ok"]
    assert [record["error"]["code"] for record in failed] == ["too-large"]
    assert "even alone" in failed[0]["error"]["message"]
    assert summary.exit_code == ExitCode.PARTIAL


class ShortPool(WorkerPool):
    """Some pages meet a failed allocation; `failures` counts down by index of the page."""

    failures: ClassVar[dict[int, int]] = {}

    def collect(self, timeout: float | None) -> Sequence[tuple[Task, Outcome]]:
        return [self._fate(*answer) for answer in super().collect(timeout)]

    def _fate(self, task: Task, outcome: Outcome) -> tuple[Task, Outcome]:
        if isinstance(task, OpenTask) or not self.failures.get(task.index):
            return task, outcome
        self.failures[task.index] -= 1
        return task, Failure(kind="memory", message="no memory")


def test_a_worker_without_memory_is_asked_again_alone(
    ten_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlmcli.job.WorkerPool", ShortPool)
    monkeypatch.setattr(ShortPool, "failures", {2: 1, 5: 9})
    _, records, _ = run(lambda _: FakeReader(), ten_pages)
    assert [record["page"] for record in records] == list(range(1, 11))
    failed = {r["page"]: r["error"]["code"] for r in records if r["status"] != "ok"}
    assert failed == {6: "too-large"}


def test_a_later_larger_document_has_the_model_loaded_anew(
    tmp_path: Path, ten_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlmcli.intake.MEASURED_DOCUMENTS", 1)
    small = write_pages(tmp_path / "small.pdf", [1])
    large = tmp_path / "large.pdf"
    write_scan(large, (page_picture(7, width=600, height=800, lines=3) for _ in range(2)))
    loaded: list[Budgets] = []
    readers: list[FakeReader] = []

    def make(budgets: Budgets) -> FakeReader:
        loaded.append(budgets)
        readers.append(FakeReader())
        return readers[-1]

    _, records, _ = run(make, small, ten_pages, large, ten_pages)
    assert [(Path(r["document"]).name, r["page"]) for r in records] == [
        ("small.pdf", 1),
        *(("ten.pdf", n) for n in range(1, 11)),
        *(("large.pdf", n) for n in (1, 2)),
        *(("ten.pdf", n) for n in range(1, 11)),
    ]
    assert {record["status"] for record in records} == {"ok"}
    assert len(loaded) == 2 and all(reader.is_closed for reader in readers)
    assert loaded[1].worker_bytes > loaded[0].worker_bytes


def test_a_later_page_that_cannot_fit_is_a_record_and_the_rest_is_read(
    tmp_path: Path, ten_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlmcli.intake.MEASURED_DOCUMENTS", 1)
    poster = tmp_path / "poster.pdf"
    write_scan(
        poster, (page_picture(s, width=w, height=w, lines=3) for s, w in ((1, 2400), (2, 160)))
    )
    planner = make_planner(PlanRequest(inputs=("x",), jobs=1))
    from vlmcli.documents.source import Source, open_document
    from vlmcli.memory.terms import least_bytes

    with open_document(Source(path=poster, name="poster.pdf")) as document:
        job = measure_pages([document.page(0)], planner.facts, planner.settings)
    summary, records, _ = run(
        lambda _: FakeReader(), ten_pages, poster, max_memory=least_bytes(job) - MIB, jobs=1
    )
    codes = [record.get("error", {}).get("code") for record in records]
    assert codes == [None] * 10 + ["too-large", None]
    assert (summary.failed, summary.exit_code) == (1, ExitCode.PARTIAL)


def test_a_job_that_cannot_fit_draws_no_page(
    ten_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Task] = []
    submit = WorkerPool.submit
    monkeypatch.setattr(
        WorkerPool, "submit", lambda self, task: (sent.append(task), submit(self, task))
    )
    with pytest.raises(WillNotFitError):
        run(lambda _: FakeReader(), ten_pages, max_memory=300 * MIB)
    assert sent and all(isinstance(task, OpenTask) for task in sent)


def test_next_to_the_cap_fewer_pages_are_in_work_and_idle_workers_end(
    ten_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlmcli.memory.guard.INTERVAL", 0.0)
    monkeypatch.setattr("vlmcli.job.resident_bytes", lambda pid: 1 << 40)
    reader = FakeReader(max_delay=20)
    _, records, warnings = run(lambda _: reader, ten_pages, max_memory=1 << 30)
    assert [record["page"] for record in records] == list(range(1, 11))
    assert {record["status"] for record in records} == {"ok"}
    assert reader.num_drops > 0
    assert len(warnings) == 1 and "fewer pages" in warnings[0]


@pytest.mark.skipif(sys.platform != "linux", reason="limits on address space")
def test_every_failed_allocation_of_a_page_worker_is_told_from_a_fault(tmp_path: Path) -> None:
    """MuPDF, Pillow, OpenCV and numpy run out of memory in turn; afterwards the worker works."""
    write_scan(tmp_path / "scan.pdf", [page_picture(1, width=300, height=420, lines=9)])
    from PIL import Image

    Image.fromarray(page_picture(2, width=300, height=420, lines=9)).convert("RGB").save(
        tmp_path / "page.png"
    )
    code = """
import resource, sys
from pathlib import Path
from vlmcli.documents.prepared import PrepareSpec
from vlmcli.documents.source import RenderSpec, Source
from vlmcli.page_worker import _OpenDocuments, answer
from vlmcli.workers import PageTask

documents, kinds = _OpenDocuments(), set()

def prepare(name, reads):
    spec = PrepareSpec(render=RenderSpec(dpi=200, max_pixels=10**7), text_layer="ignore",
                       reads=reads, line_height=28, max_line_width=1120)
    source = Source(path=Path(sys.argv[1]) / name, name=name)
    got = answer(documents, PageTask(serial=1, source=source, password=None, index=0, spec=spec,
                                      look="sketch"))
    return getattr(got, "kind", None) or got.page.outcome

for name in ("scan.pdf", "page.png"):
    for reads in ("lines", "page"):
        assert prepare(name, reads) == "read"
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        for extra in range(0, 20, 4):
            resource.setrlimit(resource.RLIMIT_AS, (taken + (extra << 20), -1))
            kind = prepare(name, reads)
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
            kinds.add(kind)
            assert kind in ("read", "memory"), (name, reads, extra, kind)
        assert prepare(name, reads) == "read"
assert kinds == {"read", "memory"}
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("formats", [("text",), ("text", "pdf")])
def test_a_document_that_is_written_again_is_planned(tmp_path, formats):
    """PyMuPDF is in the main process then, beside the model."""
    scan = write_pages(tmp_path / "scan.pdf", [1])
    planned = []
    for writes in (("jsonl",), formats):
        stats = tmp_path / "stats.json"
        run_ocr(
            OcrOptions(
                inputs=(str(scan),),
                formats=writes,
                output=f"{tmp_path}/out/",
                stats=str(stats),
                text_layer="ignore",
                jobs=1,
                cache=False,
                overwrite=True,
            ),
            stdout=io.BytesIO(),
            reporter=NullReporter(),
            make_reader=lambda checkpoint, options, budgets: FakeReader(),
        )
        planned.append(json.loads(stats.read_text())["memory_planned_bytes"])
    more = planned[1] - planned[0]
    assert (more >= PDF_WRITER_BYTES) if "pdf" in formats else (more == 0)
