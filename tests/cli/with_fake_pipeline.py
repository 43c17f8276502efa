"""Runs the real command line over a pipeline that reads nothing: what the tests start.

The fake makes `FAKE["pages"]` records for every input file, through the real outputs and journal,
and misbehaves where `FAKE` (JSON in the environment) says so:

- `pollute`: prints to stdout in every way there is;
- `fail`: pages that fail; `raise`: name of an error class to raise at page `at`;
- `kill`, `hang`, `spin`: at page `at`, kill itself, wait, or wait in a way that swallows signals;
- `pause`: seconds per page; `log`: a file that gets a line for every page that is computed.
"""

import builtins
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
import types
from dataclasses import replace
from pathlib import Path

from vlmcli import errors
from vlmcli.cli import signals
from vlmcli.finished import FinishedJob
from vlmcli.journal import Journal, job_fingerprint
from vlmcli.outputs import RecordSink
from vlmcli.outputs.targets import check_outputs, resolve_outputs
from vlmcli.report import JobSummary
from vlmcli.results import ErrorInfo, PageRecord, Seconds

FAKE = json.loads(os.environ.get("FAKE", "{}"))


def compute(name: str, number: int, num_pages: int) -> PageRecord:
    """One page, with all the misbehaviour."""
    if FAKE.get("log"):
        with Path(FAKE["log"]).open("a", errors="surrogateescape") as log:
            log.write(f"{name} {number}\n")
    if FAKE.get("pollute"):
        print("print was here")
        os.write(1, b"os.write was here\n")
        subprocess.run(["echo", "a child was here"], check=True)
        sys.stdout.write("no line feed and no flush")
    time.sleep(FAKE.get("pause", 0))
    if number == FAKE.get("at"):
        misbehave()
    record = PageRecord(
        document=name,
        page=number,
        pages=num_pages,
        status="ok",
        text=f"text of page {number} of {Path(name).name}",
        source="model",
        seconds=Seconds(decode=time.monotonic() if FAKE.get("clock") else 0.0),
    )
    if number in FAKE.get("fail", ()):
        error = ErrorInfo(code="timeout", message="not read within 5 s")
        return replace(record, status="timeout", text="", error=error)
    return record


def misbehave() -> None:
    """What is asked for at page `at`."""
    if "raise" in FAKE:
        if FAKE["raise"] == "BrokenPipeError":
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        kind = getattr(errors, FAKE["raise"], None) or getattr(builtins, FAKE["raise"])
        raise kind("it is like that")
    if FAKE.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if FAKE.get("hang"):
        print("hanging", file=sys.stderr, flush=True)
        time.sleep(60)
    signals.GRACE_SECONDS = FAKE.get("grace", signals.GRACE_SECONDS)
    while FAKE.get("spin"):
        try:
            print("hanging", file=sys.stderr, flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            continue


def run_ocr(options, *, stdout, reporter) -> JobSummary:
    """As the real one, for documents that all have the same number of pages."""
    logging.getLogger("vlmcli.fake").info("an informative line")
    num_pages = FAKE.get("pages", 3)
    sources = [(name, Path(name)) for name in options.inputs]
    total, done, failed, resumed = num_pages * len(sources), 0, 0, 0
    plan = resolve_outputs(options, sources)
    journal = None
    if plan.journal_path is not None:
        mark = job_fingerprint(options, sources, model="fake@1")
        finished = FinishedJob(plan, mark)
        if options.resume and not options.overwrite and (summary := finished.find()):
            return summary
    check_outputs(plan, sources)
    if plan.journal_path is not None:
        journal = Journal.open(
            plan.journal_path,
            fingerprint=mark,
            resume=options.resume,
            overwrite=options.overwrite,
        )
    sink = RecordSink(plan, stdout)
    try:
        sink.begin()
        reporter.start(total)
        for name, _ in sources:
            reporter.document(name, num_pages)
            for number in range(1, num_pages + 1):
                if journal is not None and (name, number) in journal.done:
                    record = journal.done[name, number]
                    resumed += 1
                else:
                    reporter.page_started(name, number, 1)
                    record = compute(name, number, num_pages)
                    if journal is not None:
                        journal.append(record)
                sink.write(record)
                done += 1
                failed += record.is_failed
                reporter.page_done(record, done, total)
        reporter.warning("a warning")
        sink.finish()
    except BaseException:
        sink.abort()
        if journal is not None:
            journal.close()
        raise
    code = errors.ExitCode.PARTIAL if failed else errors.ExitCode.OK
    summary = JobSummary(
        pages=done,
        failed=failed,
        resumed=resumed,
        documents=len(sources),
        seconds=1.0,
        exit_code=code,
    )
    if journal is not None:
        finished.leave(summary)
        journal.remove()
    return summary


if __name__ == "__main__":
    fake = types.ModuleType("vlmcli.pipeline")
    fake.run_ocr = run_ocr
    sys.modules["vlmcli.pipeline"] = fake
    from vlmcli.cli.app import main

    main()
