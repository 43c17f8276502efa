"""Speed, time left and what is shown of them: numbers that can be trusted, lines that are safe."""

import json
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.cli.console import printable, say
from vlmcli.cli.progress import (
    JsonReporter,
    Pace,
    PlainReporter,
    RichReporter,
    failure_line,
    format_seconds,
    make_reporter,
)
from vlmcli.errors import ExitCode
from vlmcli.options import OcrOptions
from vlmcli.report import JobSummary, NullReporter, bottleneck
from vlmcli.results import ErrorInfo, PageRecord


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def record(page: int = 1, **more) -> PageRecord:
    return PageRecord(document="a.pdf", page=page, pages=9, **{"status": "ok", **more})


@given(st.floats(0.01, 1000), st.integers(1, 100), st.integers(0, 1000))
def test_pages_that_come_evenly_give_their_rate(seconds, num_done, num_left):
    clock = Clock()
    pace = Pace(clock)
    assert pace.pages_per_minute() is None and pace.eta(5) is None
    for done in range(1, num_done + 1):
        clock.now += seconds
        pace.note(done)
    assert pace.pages_per_minute() == pytest.approx(60 / seconds)
    assert pace.eta(num_done + num_left) == pytest.approx(num_left * seconds)
    assert pace.eta(None) is None


def test_pages_out_of_a_journal_do_not_count_for_long():
    clock = Clock()
    pace = Pace(clock)
    pace.note(1000)
    for done in range(1001, 1101):
        clock.now += 60
        pace.note(done)
    assert pace.pages_per_minute() == pytest.approx(1)


@given(st.floats(0, 1e6))
def test_time_is_written_as_people_do(seconds):
    text = format_seconds(seconds)
    parts = [int(part) for part in text.removesuffix(" s").split(":")]
    assert all(part < 60 for part in parts[1:])
    value = 0
    for part in parts:
        value = value * 60 + part
    assert value == round(seconds)


@given(st.text(st.characters(), max_size=40))
def test_one_line_is_one_line(text):
    line = printable(text)
    assert line.isprintable()
    assert printable("café 東京 – a.pdf") == "café 東京 – a.pdf"


def test_a_message_never_fails(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", buffering=1) as gone:  # noqa: PTH123
        monkeypatch.setattr(sys, "stderr", gone)
        say("nobody listens")
        monkeypatch.setattr(sys, "stderr", None)
        say("nobody is there")
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            gone.flush()
        os.dup2(2, writer)


def test_json_events_carry_attempts_and_retries(capsys):
    reporter = JsonReporter(Clock())
    reporter.page_started("a.pdf", 1, 1)
    reporter.page_started("a.pdf", 1, 2)
    reporter.page_done(record(attempts=2), 1, None)
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first == {"event": "retry", "document": "a.pdf", "page": 1, "attempt": 2}
    assert (second["event"], second["attempts"], second["eta"]) == ("page", 2, None)


def test_a_document_that_did_not_open_has_its_warning_and_no_second_line(capsys):
    reporter = PlainReporter(quiet=False, summary=False)
    error = ErrorInfo(code="damaged", message="a.pdf: damaged")
    reporter.warning(error.message)
    reporter.page_done(record(0, status="error", error=error), 1, 2)
    reporter.page_done(record(1, status="error", error=error), 2, 2)
    assert capsys.readouterr().err.splitlines() == [
        "vlmcli: warning: a.pdf: damaged",
        "vlmcli: a.pdf page 1: damaged: a.pdf: damaged",
    ]


@pytest.mark.parametrize(
    ("mode", "quiet", "kind"),
    [
        ("auto", False, PlainReporter),
        ("none", False, PlainReporter),
        ("json", True, JsonReporter),
        ("rich", False, RichReporter),
    ],
)
def test_the_reporter_that_was_asked_for(mode, quiet, kind):
    assert isinstance(make_reporter(OcrOptions(inputs=(), progress=mode, quiet=quiet)), kind)


def test_what_a_failure_is_called():
    error = ErrorInfo(code="timeout", message="not read within 5 s")
    assert failure_line(record(3, error=error)) == "a.pdf page 3: timeout: not read within 5 s"
    assert failure_line(record(3, status="looped")) == "a.pdf page 3: looped"


def test_the_closing_line_names_what_is_there():
    assert JobSummary(pages=1, documents=1, seconds=0.25).line() == "1 page in 0.2 s"
    summary = JobSummary(pages=9, documents=2, blank=1, resumed=4, failed=2, seconds=3)
    assert summary.line() == (
        "9 pages of 2 documents, 1 blank, 4 from the journal, 2 FAILED in 3.0 s"
    )
    assert summary.exit_code is ExitCode.OK


FIGURES = {
    **{"seconds_render": 9.0, "seconds_encode": 1.0, "seconds_prefill": 2.0},
    **{"seconds_decode": 6.0, "seconds_write": 0.1, "seconds_idle": 1.0},
    **{"reuse_exact": 2, "reuse_draft": 1, "drafted_tokens": 50, "accepted_tokens": 40},
    **{"memory_peak_bytes": 3 << 20, "memory_planned_bytes": 4 << 20},
}


def test_the_details_say_what_answered_where_the_time_went_and_memory_against_plan():
    summary = JobSummary(
        pages=10,
        resumed=4,
        seconds=12.0,
        statuses={"ok": 8, "blank": 0, "error": 1, "looped": 1, "timeout": 0},
        sources={"text-layer": 3, "model": 3, "reuse": 2, "none": 2},
        figures=FIGURES,
    )
    assert summary.details() == [
        "failed: 1 error, 1 looped; answered by: 3 text-layer, 3 model, 2 reuse, 2 none; "
        "reuse: 2 exact, 1 draft; drafts: 40 of 50 tokens right",
        "30.0 pages/min: render 9.0 s, encode 1.0 s, prefill 2.0 s, decode 6.0 s, write 0.1 s; "
        "bottleneck: decode",
        "memory 3.0 MiB at its peak, 4.0 MiB planned",
    ]
    assert JobSummary(pages=1, seconds=1.0).details() == []


@pytest.mark.parametrize(
    ("figures", "stage"),
    [
        (FIGURES, "decode"),
        (FIGURES | {"seconds_idle": 4.0}, "render"),
        ({"seconds_render": 2.0, "seconds_write": 0.5}, "render"),
        ({"seconds_render": 2.0, "seconds_write": 2.5}, "write"),
        ({}, None),
    ],
)
def test_the_bottleneck_is_what_the_job_waited_for(figures, stage):
    assert bottleneck({"seconds": 10.0, **figures}) == stage


def test_every_reporter_closes_with_all_lines(capsys):
    for reporter in (PlainReporter(quiet=False, summary=True), RichReporter(quiet=False)):
        reporter.finish("one\ntwo")
        assert capsys.readouterr().err == "vlmcli: one\nvlmcli: two\n"
    JsonReporter(Clock()).finish("one\ntwo\nthree")
    event = json.loads(capsys.readouterr().err)
    assert event == {"event": "finish", "message": "one", "details": ["two", "three"]}
    for reporter in (PlainReporter(quiet=True, summary=True), RichReporter(quiet=True)):
        reporter.finish("one")
    PlainReporter(quiet=False, summary=True).finish("")
    assert capsys.readouterr().err == ""


def test_the_null_reporter_takes_everything(capsys):
    reporter = NullReporter()
    reporter.start(None)
    reporter.document("a.pdf", 1)
    reporter.page_started("a.pdf", 1, 1)
    reporter.page_done(record(), 1, 1)
    reporter.warning("careful")
    reporter.finish("done")
    assert capsys.readouterr() == ("", "")
