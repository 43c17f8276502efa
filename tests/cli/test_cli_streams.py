"""stdout is the result and nothing else; stderr is for people, or for programs if they ask."""

import json
import os
import pty
import re
import shlex
import subprocess

import pytest

from vlmcli.errors import ExitCode
from vlmcli.results import PageRecord


def records(data: bytes) -> list[PageRecord]:
    lines = data.split(b"\n")
    assert lines.pop() == b""
    return [PageRecord.from_dict(json.loads(line)) for line in lines]


def test_a_polluter_does_not_reach_the_result(cli):
    done = cli("ocr", "a.pdf", "-f", "jsonl", fake={"pollute": True})
    assert done.returncode == ExitCode.OK
    assert [record.page for record in records(done.stdout)] == [1, 2, 3]
    for intruder in (b"print was here", b"os.write was here", b"a child was here", b"no line feed"):
        assert intruder in done.stderr


def test_a_polluter_of_a_job_with_files_says_nothing_on_stdout(cli):
    done = cli("ocr", "a.pdf", "-o", "out.txt", fake={"pollute": True})
    assert (done.returncode, done.stdout) == (ExitCode.OK, b"")


def pipeline(cli, tail: str, *args: str, fake: dict) -> subprocess.CompletedProcess:
    command = f"set -o pipefail; {shlex.join(cli.command(*args))} | {tail}"
    environment = cli.environment(fake)
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cli.folder,
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_reader_that_stops_ends_the_job_quietly(cli):
    done = pipeline(cli, "head -1", "ocr", "a.pdf", "-f", "jsonl", fake={"pages": 5000})
    assert done.returncode == ExitCode.OK
    assert done.stderr == b""
    assert [record.page for record in records(done.stdout)] == [1]


def test_records_leave_one_by_one(cli):
    job = cli.start("ocr", "a.pdf", "-f", "jsonl", fake={"at": 3, "hang": True})
    assert job.stdout and job.stderr
    assert [json.loads(job.stdout.readline())["page"] for _ in range(2)] == [1, 2]
    job.kill()
    job.communicate()


@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
def test_stdout_by_name_is_guarded_as_well(cli, output):
    done = cli("ocr", "a.pdf", "-f", "jsonl", "-o", output, fake={"pollute": True})
    assert len(records(done.stdout)) == 3


def test_streams_may_be_closed(cli):
    command = shlex.join(cli.command("ocr", "a.pdf", "-q"))
    run = {"cwd": cli.folder, "env": cli.environment({"pollute": True}), "check": False}
    done = subprocess.run(["bash", "-c", f"{command} >&-"], stderr=-1, **run)
    assert done.returncode == ExitCode.OUTPUT
    assert done.stderr == b"vlmcli: error: standard output is closed (name a file with -o)\n"
    done = subprocess.run(["bash", "-c", f"{command} 2>&-"], stdout=-1, **run)
    assert done.returncode == ExitCode.OK
    assert done.stdout.startswith(b"text of page 1 of a.pdf\n")
    assert b"here" not in done.stdout


@pytest.mark.parametrize("args", [["--progress", "none"], ["--progress", "auto"], []])
def test_a_job_in_a_script_says_only_what_matters(cli, args):
    done = cli("ocr", "a.pdf", *args, fake={})
    assert done.stderr == b"vlmcli: warning: a warning\n"
    assert cli("ocr", "a.pdf", "-q", *args, fake={}).stderr == b""
    talkative = cli("ocr", "a.pdf", "-v", *args, fake={}).stderr
    assert b"vlmcli: an informative line\n" in talkative
    assert b"vlmcli: 3 pages in 1.0 s\n" in talkative


def test_json_progress_is_one_event_a_page(cli):
    done = cli("ocr", "a.pdf", "b.pdf", "--progress", "json", fake={"fail": [2]})
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [event["event"] for event in events] == [
        *("start", "document", "page", "page", "page", "document", "page", "page", "page"),
        *("warning", "finish"),
    ]
    pages = [event for event in events if event["event"] == "page"]
    assert [(event["document"], event["page"]) for event in pages] == [
        (name, page) for name in ("a.pdf", "b.pdf") for page in (1, 2, 3)
    ]
    assert [event["done"] for event in pages] == [1, 2, 3, 4, 5, 6]
    assert {event["total"] for event in pages} == {6}
    assert [event["status"] for event in pages] == ["ok", "timeout", "ok"] * 2
    assert pages[1]["code"] == "timeout" and pages[0]["code"] is None
    assert pages[-1]["eta"] == 0.0
    assert all(event["eta"] is None or event["eta"] >= 0 for event in pages)


def on_a_terminal(cli, *args: str, fake: dict, **env: str) -> tuple[bytes, bytes]:
    """What a terminal on stderr and a pipe on stdout get."""
    ours, theirs = pty.openpty()
    environment = cli.environment(fake) | {"TERM": "xterm", "COLUMNS": "120"} | env
    job = subprocess.Popen(
        cli.command(*args), cwd=cli.folder, env=environment, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    shown = bytearray()
    while True:
        try:
            shown += (chunk := os.read(ours, 65536))
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
    os.close(ours)
    result, _ = job.communicate(timeout=60)
    return result, bytes(shown)


def test_on_a_terminal_progress_is_drawn_and_taken_away(cli):
    fake = {"pages": 4, "fail": [2], "pause": 0.4}
    result, shown = on_a_terminal(cli, "ocr", "a.pdf", "-f", "jsonl", fake=fake)
    assert len(records(result)) == 4
    seen = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()
    assert re.search(r"[123]/4", seen)
    assert "pages/min" in seen and " left" in seen and re.search(r"a.pdf page \d", seen)
    assert "vlmcli: a.pdf page 2: timeout: not read within 5 s" in seen
    assert seen.rstrip().endswith("vlmcli: 4 pages, 1 FAILED in 1.0 s")


@pytest.mark.parametrize(
    ("args", "env"), [(["-q"], {}), (["--progress", "none"], {}), ([], {"TERM": "dumb"})]
)
def test_a_terminal_can_be_spared_the_drawing(cli, args, env):
    _, shown = on_a_terminal(cli, "ocr", "a.pdf", *args, fake={"pause": 0.1}, **env)
    assert b"\x1b" not in shown and b"page 1" not in shown


def test_no_color_is_heeded(cli):
    fake = {"pause": 0.3}
    _, shown = on_a_terminal(cli, "ocr", "a.pdf", fake=fake, NO_COLOR="1")
    assert b"/3" in shown
    assert not re.search(rb"\x1b\[[0-9;]*(3[0-7]|38|9[0-7])[0-9;]*m", shown)
