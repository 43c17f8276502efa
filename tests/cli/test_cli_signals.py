"""However a job ends, what is on disk is whole, and the same command with --resume completes it."""

import json
import signal

import pytest

from vlmcli.cli import signals
from vlmcli.errors import ExitCode

ARGS = ("ocr", "a.pdf", "b.pdf", "-o", "out.jsonl", "-f", "jsonl")


def lines(folder, name="out.jsonl") -> list[dict]:
    data = (folder / name).read_bytes()
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def without_seconds(path) -> list[dict]:
    return [{**json.loads(line), "seconds": None} for line in path.read_bytes().splitlines()]


def wait_until_hanging(job) -> None:
    for line in job.stderr:
        if b"hanging" in line:
            return
    raise AssertionError("the job ended by itself")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_a_signal_ends_the_job_in_good_order(cli, number, code):
    job = cli.start(*ARGS, "-f", "text", fake={"at": 3, "hang": True})
    wait_until_hanging(job)
    job.send_signal(number)
    _, stderr = job.communicate(timeout=30)
    assert job.returncode == code
    assert stderr == b"vlmcli: interrupted; run the same command with --resume to go on\n"
    assert [line["page"] for line in lines(cli.folder)] == [1, 2]
    assert not (cli.folder / "out.txt").exists()
    assert not list(cli.folder.glob(".vlmcli-*"))
    refused = cli(*ARGS, "-f", "text", fake={})
    assert refused.returncode == ExitCode.OUTPUT and b"--resume" in refused.stderr
    done = cli(*ARGS, "-f", "text", "--resume", fake={})
    assert done.returncode == ExitCode.OK
    assert [line["page"] for line in lines(cli.folder)] == [1, 2, 3, 1, 2, 3]
    assert (cli.folder / "out.txt").read_bytes().count(b"\f") == 5


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_a_job_that_does_not_heed_the_signal_ends_anyway(cli, number, code):
    assert signals.GRACE_SECONDS < 5
    job = cli.start(*ARGS, fake={"at": 2, "spin": True, "grace": 0.2})
    wait_until_hanging(job)
    job.send_signal(number)
    job.communicate(timeout=30)
    assert job.returncode == code
    assert [line["page"] for line in lines(cli.folder)] == [1]


def test_a_second_interrupt_does_not_wait(cli):
    job = cli.start("ocr", "a.pdf", fake={"at": 2, "spin": True, "grace": 50})
    wait_until_hanging(job)
    job.send_signal(signal.SIGINT)
    wait_until_hanging(job)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=30)
    assert job.returncode == ExitCode.INTERRUPTED


def test_without_an_output_there_is_nothing_to_resume(cli):
    job = cli.start("ocr", "a.pdf", fake={"at": 2, "hang": True})
    wait_until_hanging(job)
    job.send_signal(signal.SIGINT)
    stdout, stderr = job.communicate(timeout=30)
    assert stdout == b"text of page 1 of a.pdf\n"
    assert stderr == b"vlmcli: interrupted\n"


def test_killed_after_page_40_of_100(cli):
    log = cli.folder / "log"
    fake = {"pages": 100, "log": str(log), "clock": True}
    args = ("ocr", "a.pdf", "-f", "jsonl", "-f", "text", "-o")
    killed = cli(*args, "out.jsonl", fake={**fake, "at": 41, "kill": True})
    assert killed.returncode == -signal.SIGKILL
    before = (cli.folder / "out.jsonl").read_bytes()
    assert [line["page"] for line in lines(cli.folder)] == list(range(1, 41))
    log.unlink()
    resumed = cli(*args, "out.jsonl", "--resume", fake=fake)
    assert resumed.returncode == ExitCode.OK
    assert log.read_text().splitlines() == [f"a.pdf {page}" for page in range(41, 101)]
    assert (cli.folder / "out.jsonl").read_bytes().startswith(before)
    assert cli(*args, "whole.jsonl", fake=fake).returncode == ExitCode.OK
    whole, again = (without_seconds(cli.folder / name) for name in ("whole.jsonl", "out.jsonl"))
    assert whole == again
    texts = [(cli.folder / name).read_bytes() for name in ("whole.txt", "out.txt")]
    assert texts[0] == texts[1]
    assert not [path for path in cli.folder.iterdir() if "vlmcli" in path.name]


def test_resuming_needs_the_same_job(cli):
    cli(*ARGS, fake={"at": 2, "kill": True})
    refused = cli(*ARGS, "--dpi", "300", "--resume", fake={})
    assert refused.returncode == ExitCode.OUTPUT
    assert b"--dpi changed" in refused.stderr
    (cli.folder / "b.pdf").write_bytes(b"another document")
    refused = cli(*ARGS, "--resume", fake={})
    assert b"input documents changed" in refused.stderr
    assert cli(*ARGS, "--overwrite", fake={}).returncode == ExitCode.OK


def test_of_a_complete_job_nothing_is_read_again(cli):
    env = {"VLMCLI_CACHE_DIR": str(cli.folder / "store")}
    assert cli(*ARGS, "--resume", fake={}, env=env).returncode == ExitCode.OK
    again = cli(*ARGS, "--resume", fake={"log": "computed"}, env=env)
    assert again.returncode == ExitCode.OK
    assert not (cli.folder / "computed").exists()
    refused = cli(*ARGS, fake={}, env=env)
    assert refused.returncode == ExitCode.OUTPUT
    assert b"output exists" in refused.stderr
    assert cli(*ARGS, "--resume", "--overwrite", fake={}).returncode == ExitCode.OK
    assert len(lines(cli.folder)) == 6


@pytest.mark.parametrize("more", [(), ("--resume",), ("--overwrite",)])
def test_a_second_job_on_an_output_hears_of_the_first_one(cli, more):
    first = cli.start(*ARGS, fake={"at": 3, "hang": True})
    wait_until_hanging(first)
    second = cli(*ARGS, *more, fake={})
    first.kill()
    first.communicate(timeout=30)
    assert second.returncode == ExitCode.OUTPUT
    assert b"error: another vlmcli is writing this output: out.jsonl" in second.stderr
    assert b"--resume" not in second.stderr
    assert b"unfinished job" in cli(*ARGS, fake={}).stderr
    assert cli(*ARGS, "--resume", fake={}).returncode == ExitCode.OK
