"""The reuse layer in a job: what is read, what waits, what is taken over, what memory it takes."""

import hashlib
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_reader import FakeReader
from PIL import Image
from reuse_pages import invoice, scan, with_other_digit
from scans import write_pages

from vlmcli.admission import Limits
from vlmcli.bench.pages import Paper, write_print
from vlmcli.errors import PageError
from vlmcli.options import OcrOptions
from vlmcli.pipeline import run_ocr
from vlmcli.reading import CropText, PageJob, PageReading
from vlmcli.report import JobSummary, NullReporter
from vlmcli.results import PageRecord


@dataclass
class PixelReader(FakeReader):
    """Says of each crop what its pixels hash to, or `says` of the first one of a page."""

    says: str = ""

    drafts: dict[int, list[str]] = field(default_factory=dict)
    """Texts of the drafts that came with a page, by its key."""

    def submit(self, job: PageJob) -> None:
        self.drafts[job.key] = [draft.text for draft in job.drafts]
        super().submit(job)

    def step(self) -> Sequence[PageReading]:
        jobs = {key: job for key, (job, _) in self.jobs.items()}
        return [
            reading
            if reading.status != "ok"
            else PageReading(key=reading.key, crops=self._texts(jobs[reading.key]))
            for reading in super().step()
        ]

    def _texts(self, job: PageJob) -> tuple[CropText, ...]:
        hashes = (hashlib.sha256(crop.pixels.tobytes()).hexdigest()[:8] for crop in job.crops)
        first, *rest = [self.says] if self.says else hashes
        words = (first, *rest, *[""] * (len(job.crops) - 1 - len(rest)))
        return tuple(CropText(text=word, confidence=1.0) for word in words)


@dataclass
class Notes(NullReporter):
    warnings: list[str] = field(default_factory=list)

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def run(
    reader: FakeReader, *inputs: Path, notes: NullReporter | None = None, **options: Any
) -> tuple[JobSummary, list[Any]]:
    stdout = io.BytesIO()
    summary = run_ocr(
        OcrOptions(
            inputs=tuple(map(str, inputs)),
            formats=("jsonl",),
            **{"text_layer": "ignore", "jobs": 2, "cache": False, **options},
        ),
        stdout=stdout,
        reporter=notes or NullReporter(),
        make_reader=lambda checkpoint, options, budgets: reader,
    )
    return summary, [json.loads(line) for line in stdout.getvalue().splitlines()]


def write_frames(path: Path, frames: Sequence[np.ndarray]) -> Path:
    first, *rest = [Image.fromarray(frame) for frame in frames]
    first.save(path, save_all=True, append_images=rest)
    return path


@pytest.fixture(scope="module")
def sheets() -> list[np.ndarray]:
    """A sheet and one with another digit."""
    sheet = invoice(5, size=12)
    return [sheet.print(150), with_other_digit(sheet, random.Random(5)).print(150)]


@pytest.fixture(scope="module")
def rescans(tmp_path_factory: pytest.TempPathFactory, sheets: list[np.ndarray]) -> Path:
    """Sheet and other sheet, each scanned three times in turn."""
    rng = np.random.default_rng(5)
    frames = [scan(sheets[number % 2], rng, noise=3) for number in range(6)]
    return write_frames(tmp_path_factory.mktemp("scan") / "rescans.tiff", frames)


def origins(records: list[Any]) -> list[tuple[str, int | None]]:
    return [
        (record["reuse"]["kind"], (record["reuse"]["from"] or {}).get("page")) for record in records
    ]


def test_equal_pages_are_read_once(tmp_path: Path) -> None:
    same = write_pages(tmp_path / "same.pdf", [7] * 60)
    reader = PixelReader()
    summary, records = run(reader, same)
    assert reader.num_submitted == 1
    assert [record["page"] for record in records] == list(range(1, 61))
    assert {record["text"] for record in records} == {records[0]["text"]} != {""}
    assert origins(records) == [("none", None), *[("exact", 1)] * 59]
    assert summary.pages == 60 and summary.failed == 0


@pytest.mark.parametrize("seed", range(3))
def test_rescans_are_verified_and_changed_pages_have_drafts_however_fast_they_come(
    rescans: Path, seed: int
) -> None:
    reader = PixelReader(seed=seed, max_delay=3 * seed)
    _, records = run(reader, rescans, jobs=1 + seed)
    kinds = origins(records)
    assert kinds[0] == ("none", None) and kinds[1][0] in ("none", "draft")
    assert kinds[2:] == [("verified", 1), ("verified", 2)] * 2
    assert reader.num_submitted == 2
    assert [record["text"] for record in records] == [records[0]["text"], records[1]["text"]] * 3
    assert records[0]["text"] != records[1]["text"]
    assert records[2]["source"] == "reuse" and records[2]["model"] == records[0]["model"]


@pytest.mark.parametrize(("mode", "num_read"), [("off", 6), ("exact", 6), ("similar", 1)])
def test_each_mode_goes_as_far_as_it_says(rescans: Path, mode: Any, num_read: int) -> None:
    reader, notes = PixelReader(), Notes()
    _, records = run(reader, rescans, reuse=mode, notes=notes)
    assert reader.num_submitted == num_read
    kinds = {kind for kind, _ in origins(records)}
    assert kinds <= ({"none", "verified", "similar"} if mode == "similar" else {"none", "draft"})
    assert [("may be wrong" in text) for text in notes.warnings] == [True] * (mode == "similar")


def test_every_page_off_is_what_it_is_alone(rescans: Path) -> None:
    _, alone = run(PixelReader(), rescans, reuse="off")
    _, exact = run(PixelReader(), rescans, reuse="exact")
    assert [r["text"] for r in alone] == [r["text"] for r in exact]
    assert len({r["text"] for r in alone}) == 6


@pytest.mark.parametrize("options", [{"drafts": "text-layer"}, {"question": ("Who?",)}])
def test_no_old_text_is_lent_where_none_is_wanted(tmp_path: Path, options: Any) -> None:
    scans = tmp_path / "scan.pdf"
    write_pages(scans, [1, 2])
    run(PixelReader(), scans, cache=True, **options)
    write_pages(scans, [1, 3])
    reader = PixelReader()
    _, records = run(reader, scans, cache=True, **options)
    assert [kind for kind, _ in origins(records)] == ["exact", "none"]
    assert list(reader.drafts.values()) == [[]]


def test_who_waited_for_a_page_that_failed_is_read_instead(tmp_path: Path) -> None:
    same = write_pages(tmp_path / "same.pdf", [7] * 12)
    reader = PixelReader(statuses={1: "error", 2: "looped"}, max_delay=3)
    _, records = run(reader, same)
    assert [record["status"] for record in records] == ["error", "looped", *["ok"] * 10]
    assert origins(records) == [*[("none", None)] * 3, *[("exact", 3)] * 9]
    assert reader.num_submitted == 3


def test_the_first_page_of_many_equal_ones_may_take_too_long(tmp_path: Path) -> None:
    same = write_pages(tmp_path / "same.pdf", [7] * 6)
    reader = PixelReader(never=frozenset({1}))
    _, records = run(reader, same, page_timeout=4.0)
    assert [record["status"] for record in records] == ["timeout", *["ok"] * 5]
    assert origins(records)[2:] == [("exact", 2)] * 4


def test_fail_fast_ends_the_job_and_keeps_what_was_read(tmp_path: Path) -> None:
    scans = write_pages(tmp_path / "scan.pdf", [1, 2, 3, 4])
    reader = PixelReader(statuses={3: "error"}, max_delay=0)
    with pytest.raises(PageError, match="page 3"):
        run(reader, scans, fail_fast=True, jobs=1, cache=True)
    _, records = run(PixelReader(), scans, cache=True)
    assert [kind for kind, _ in origins(records)[:2]] == ["exact"] * 2
    assert records[0]["reuse"]["from"]["run"] == "earlier"
    assert records[2]["source"] == "model"


def test_an_interrupted_job_and_its_resumption_leave_one_text_a_page(
    tmp_path: Path, rescans: Path
) -> None:
    def stop(key: int) -> None:
        if key == 2:
            raise KeyboardInterrupt

    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(PixelReader(on_submit=stop, max_delay=0), rescans, output=str(out), cache=True, jobs=1)
    summary, _ = run(PixelReader(), rescans, output=str(out), cache=True, resume=True)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["page"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert summary.failed == 0
    _, whole = run(PixelReader(), rescans)
    assert [record["text"] for record in records] == [record["text"] for record in whole]


class PagesInWork(NullReporter):
    """Counts the pages that have begun and are not finished."""

    now = most = 0

    def page_started(self, document: str, page: int, attempt: int) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def page_done(self, record: PageRecord, done: int, total: int | None) -> None:
        self.now -= 1


def test_pages_that_wait_count_as_pages_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = write_pages(tmp_path / "same.pdf", [7] * 40)
    limits = Limits(jobs=2, worker_bytes=1 << 40, reader_bytes=1 << 20)
    monkeypatch.setattr("vlmcli.intake.Limits.of", lambda budgets: limits)
    reader, pages = PixelReader(max_delay=300, seed=3), PagesInWork()
    _, records = run(reader, same, notes=pages)
    assert len(records) == 40 and reader.num_submitted == 1
    # The first one is read for long enough to let all the others be drawn, were there room.
    assert 1 < pages.most < 20


def test_with_no_memory_left_equal_pages_are_still_read_once_and_nothing_else_is_tried(
    rescans: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("vlmcli.memory.gate.MemoryGate.host_cap_bytes", property(lambda gate: 0))
    notes, reader = Notes(), PixelReader()
    _, records = run(reader, rescans, cache=True, notes=notes)
    assert {kind for kind, _ in origins(records)} <= {"none", "draft"}
    assert reader.num_submitted == 6
    assert any("neither kept nor looked up" in text for text in notes.warnings)
    same = write_pages(tmp_path / "same.pdf", [7] * 5)
    reader = PixelReader(max_delay=50)
    run(reader, same)
    assert reader.num_submitted == 1


def test_a_text_layer_goes_to_the_reader_as_a_draft_unless_not_wanted(tmp_path: Path) -> None:
    born = tmp_path / "born.pdf"
    write_print(born, [Paper(width=300, height=160, lines=3)])
    for drafts, is_given in (
        ("auto", True),
        ("text-layer", True),
        ("ngram", False),
        ("off", False),
    ):
        reader = PixelReader()
        _, (record,) = run(reader, born, text_layer="draft", drafts=drafts)
        assert record["suspect"] == ["text-layer-disagrees"], "hashes are not what is printed"
        assert reader.drafts[1] == ([reader_text(born)] if is_given else [])


def reader_text(born: Path) -> str:
    _, (record,) = run(PixelReader(), born, text_layer="only")
    return record["text"]


def test_a_text_layer_that_says_what_was_read_is_not_suspect(tmp_path: Path) -> None:
    born = tmp_path / "born.pdf"
    write_print(born, [Paper(width=300, height=160, lines=3)])
    words = " ".join(reader_text(born).split())
    reader = PixelReader(says=words)
    _, (record,) = run(reader, born, text_layer="draft", cache=True)
    assert record["suspect"] == [] and record["text"] == words
    _, (copy,) = run(PixelReader(), born, text_layer="draft", cache=True)
    assert copy["source"] == "reuse" and copy["suspect"] == []
