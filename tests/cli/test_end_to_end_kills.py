"""Killed, stopped or run out of disk: what was finished stays, and --resume does only the rest."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time

import psutil
import pytest
from command_line import journaled, read_records, wait_for, without_history
from real_documents import write_pages, write_text_pdf

NUM_PAGES = 24
OUTPUTS = ("-f", "jsonl", "-f", "text")
CUT = "cut.jsonl"


@pytest.fixture
def scan(real):
    """A folder with a scan of some pages."""
    write_pages(real.folder / "scan.pdf", range(NUM_PAGES))
    return real


def pages_so_far(folder) -> list[int]:
    """Pages in the output: the first ones, without gaps; others may be in the journal alone."""
    path = folder / CUT
    return [r["page"] for r in read_records(path.read_bytes())] if path.exists() else []


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended; whoever inherits it may be slow to notice."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def end(job: subprocess.Popen, number: int) -> tuple[int, bytes]:
    """Send a signal; the exit status and what was said."""
    job.send_signal(number)
    _, stderr = job.communicate(timeout=120)
    return job.returncode, stderr


def test_after_kills_at_any_moment_the_result_is_the_same(scan):
    folder = scan.folder
    assert scan("ocr", "scan.pdf", *OUTPUTS, "-o", "whole.jsonl").returncode == 0
    cut = ("ocr", "scan.pdf", *OUTPUTS, "-o", "cut.jsonl")
    rng = random.Random(os.getpid())
    num_kills = num_lines = 0
    for min_pages in (1, NUM_PAGES // 2):
        job = scan.start(*cut, *(("--resume",) if num_kills else ()))
        if not wait_for(lambda least=min_pages: journaled(folder / CUT) >= least, job):
            break
        time.sleep(rng.uniform(0, 0.2))
        num_kills += end(job, signal.SIGKILL)[0] == -signal.SIGKILL
        pages = pages_so_far(folder)
        assert pages == list(range(1, len(pages) + 1)) and len(pages) >= num_lines
        num_lines = len(pages)
        assert not (folder / "cut.txt").exists()
    assert num_kills
    num_done = journaled(folder / CUT)
    done = scan(*cut, "--resume", "--stats", "stats.json")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads((folder / "stats.json").read_text())["resumed"] == num_done >= num_lines
    whole, again = (
        read_records((folder / name).read_bytes()) for name in ("whole.jsonl", "cut.jsonl")
    )
    assert without_history(again) == without_history(whole)
    assert (folder / "cut.txt").read_bytes() == (folder / "whole.txt").read_bytes()
    assert not [path.name for path in folder.iterdir() if "vlmcli" in path.name]


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_a_signal_while_the_model_reads(scan, number, code):
    job = scan.start("ocr", "scan.pdf", *OUTPUTS, "-o", "cut.jsonl")
    assert wait_for(lambda: journaled(scan.folder / CUT) >= 1, job)
    workers = psutil.Process(job.pid).children(recursive=True)
    status, stderr = end(job, number)
    assert status == code
    assert stderr == b"vlmcli: interrupted; run the same command with --resume to go on\n"
    assert journaled(scan.folder / CUT) >= 1
    pages = pages_so_far(scan.folder)
    assert pages == list(range(1, len(pages) + 1)) and len(pages) < NUM_PAGES
    assert not (scan.folder / "cut.txt").exists()
    assert wait_for(lambda: all(map(has_ended, workers)))


def test_ctrl_c_during_the_start_says_one_line(real):
    write_text_pdf(real.folder / "a.pdf", ["one"])
    job = real.start("ocr", "a.pdf", start_new_session=True)
    assert wait_for(lambda: psutil.Process(job.pid).children(), job)
    os.killpg(job.pid, signal.SIGINT)
    _, stderr = job.communicate(timeout=60)
    assert (job.returncode, stderr) in ((130, b"vlmcli: interrupted\n"), (0, b""))


def test_no_worker_outlives_a_killed_job_even_in_the_middle_of_a_page(real):
    write_text_pdf(real.folder / "a.pdf", ["x"] * 2, heavy=[1, 2])
    job = real.start("ocr", "a.pdf", "--jobs", "2", "--progress", "json")
    assert job.stderr is not None
    main = psutil.Process(job.pid)
    wait_for(lambda: len(main.children()) == 2, job)
    workers = main.children()
    wait_for(lambda: all(sum(w.cpu_times()[:2]) > 1.0 for w in workers), job)
    end(job, signal.SIGKILL)
    assert len(workers) == 2
    assert wait_for(lambda: all(map(has_ended, workers)), seconds=10)


def limited(size: int):
    """In the child: no file may grow beyond this many bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def small_disk(folder) -> list[str] | None:
    """A prefix that runs a command with a disk of 16 KiB at `disk`, where this machine lets us."""
    (folder / "disk").mkdir()
    mount = "mount -t tmpfs -o size=16k none disk"
    prefix = ["unshare", "--map-root-user", "--mount", "bash", "-c"]
    if shutil.which("unshare") is None:
        return None
    works = subprocess.run([*prefix, mount], cwd=folder, capture_output=True, check=False)
    script = f'{mount} && {{ "$@"; code=$?; ls -A disk; exit $code; }}'
    return None if works.returncode else [*prefix, script, "bash"]


def test_a_full_disk(real):
    write_text_pdf(real.folder / "a.pdf", [f"This is page {n}" for n in range(1, 201)])
    prefix = small_disk(real.folder)
    done = subprocess.run(
        [*(prefix or ()), *real.command("ocr", "a.pdf", "-o", "disk/a.txt", fake=False)],
        cwd=real.folder,
        env=real.environment(),
        capture_output=True,
        timeout=120,
        check=False,
        preexec_fn=None if prefix else limited(16 << 10),
    )
    assert done.returncode == 4
    reason = b"No space left on device" if prefix else b"File too large"
    assert (
        done.stderr.startswith(b"vlmcli: error: cannot write disk/a.txt") and reason in done.stderr
    )
    assert done.stderr.count(b"\n") == 1
    left = done.stdout.decode().split() if prefix else os.listdir(real.folder / "disk")  # noqa: PTH208
    assert left == ["a.txt.vlmcli-journal"]


def test_resuming_when_there_is_space_again(real):
    write_text_pdf(real.folder / "a.pdf", [f"This is page {n}" for n in range(1, 101)])
    job = ("ocr", "a.pdf", "-f", "jsonl", "-f", "text", "-o", "a.jsonl")
    done = real(*job, preexec_fn=limited(20 << 10))
    assert done.returncode == 4
    before = (real.folder / "a.jsonl").read_bytes()
    assert 0 < len(read_records(before)) < 100 and not (real.folder / "a.txt").exists()
    assert real(*job, "--resume").returncode == 0
    after = (real.folder / "a.jsonl").read_bytes()
    assert after.startswith(before) and len(read_records(after)) == 100
    assert (real.folder / "a.txt").read_text().count("\f") == 99


def test_a_folder_that_cannot_be_written(real):
    write_text_pdf(real.folder / "a.pdf", ["one"])
    (real.folder / "disk").mkdir()
    mount = "mount -t tmpfs -o ro none disk"
    command = real.command("ocr", "a.pdf", "-o", "disk/a.txt", fake=False)
    if os.geteuid() == 0:
        # Permissions do not stop root, a read-only file system does.
        prefix = ["unshare", "--mount", "bash", "-c"]
        trial = subprocess.run([*prefix, mount], cwd=real.folder, capture_output=True, check=False)
        if trial.returncode:
            pytest.skip("neither permissions nor mounts can make a folder read-only here")
        command = [*prefix, f'{mount} && "$@"', "bash", *command]
    else:
        (real.folder / "disk").chmod(0o500)
    run = {"cwd": real.folder, "env": real.environment(), "capture_output": True, "timeout": 120}
    done = subprocess.run(command, check=False, **run)
    assert (done.returncode, done.stdout) == (4, b"")
    assert done.stderr.startswith(b"vlmcli: error: ") and done.stderr.count(b"\n") == 1
    assert b"disk" in done.stderr and b"choose another place" in done.stderr
