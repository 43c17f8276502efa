"""`--resume` of a job that is over: nothing is done, nothing changes, and the exit code is its."""

import json
import signal
import subprocess
import sys

import pytest
from real_documents import write_text_pdf

PATCHES = {
    "the system": "",
    "no attributes": "import os; del os.setxattr, os.getxattr",
}
"""Marks are attributes of the output, or files where there are no attributes."""
DEATHS = {
    "before a file is published": "files.AtomicFile.publish",
    "before the mark is left": "FinishedJob.leave",
    "before the journal goes": "Journal.remove",
}


@pytest.fixture
def job(real):
    """A folder with two documents, one of which cannot be opened, and a cache that stays."""
    write_text_pdf(real.folder / "a.pdf", ["One", "", "Three"])
    write_text_pdf(real.folder / "b.pdf", ["Four"])
    (real.folder / "broken.pdf").write_bytes(b"%PDF-1.7\n%%EOF\n")
    return real


def run(job, *args: str, patch: str = "") -> subprocess.CompletedProcess:
    code = f"{patch}\nfrom vlmcli.cli.app import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "ocr", *args],
        cwd=job.folder,
        env=job.environment(VLMCLI_CACHE_DIR=str(job.folder.with_name("store"))),
        capture_output=True,
        timeout=120,
        check=False,
    )


def content(folder) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
@pytest.mark.parametrize(
    ("args", "code", "pages"),
    [
        (("a.pdf", "-f", "jsonl", "-o", "out.jsonl"), 0, 3),
        (("a.pdf", "-f", "text", "-o", "out.txt"), 0, 3),
        (("a.pdf", "-f", "markdown", "-o", "out.md"), 0, 3),
        (("a.pdf", "-f", "pdf", "-o", "out.pdf"), 0, 3),
        (("a.pdf", "b.pdf", "-f", "jsonl", "-f", "text", "-o", "out.jsonl"), 0, 4),
        (("a.pdf", "b.pdf", "-f", "jsonl", "-f", "pdf", "-o", "out/"), 0, 4),
        (("a.pdf", "broken.pdf", "-f", "jsonl", "-f", "text", "-o", "out/"), 5, 4),
        (("a.pdf", "broken.pdf", "-f", "text", "-o", "out/"), 5, 4),
    ],
)
def test_nothing_is_done_and_nothing_changes(job, args, code, pages, patch):
    assert run(job, *args, patch=patch).returncode == code
    before = content(job.folder)
    again = run(job, *args, "--resume", patch=patch)
    assert again.returncode == code, again.stderr
    (said,) = again.stderr.decode().splitlines()
    assert said.startswith(f"vlmcli: nothing to do, the job is finished: {pages} pages")
    assert ("FAILED" in said) == (code == 5)
    assert content(job.folder) == before
    quiet = run(job, *args, "--resume", "-q", patch=patch)
    assert (quiet.returncode, quiet.stderr) == (code, b"")
    assert content(job.folder) == before


def test_programs_are_told_as_well(job):
    args = ("a.pdf", "-o", "out.txt", "--progress", "json", "--stats", "stats.json")
    assert run(job, *args).returncode == 0
    again = run(job, *args, "--resume")
    assert [json.loads(line)["event"] for line in again.stderr.splitlines()] == ["finish"]
    stats = json.loads((job.folder / "stats.json").read_text())
    assert (stats["pages"], stats["resumed"], stats["failed"]) == (3, 3, 0)
    assert sum(stats["status"].values()) == 3


def test_two_jobs_in_one_folder(job):
    (job.folder / "out").mkdir()
    for name in ("a.pdf", "b.pdf"):
        assert run(job, name, "-o", "out").returncode == 0
    for name in ("a.pdf", "b.pdf"):
        assert b"nothing to do" in run(job, name, "-o", "out", "--resume").stderr


@pytest.mark.parametrize("change", ["option", "format", "input", "output", "lost", "overwrite"])
def test_another_job_is_not_taken_for_finished(job, change):
    """What is there may be a stranger's: it is neither replaced nor taken for the result."""
    args = ["a.pdf", "-f", "text", "-f", "jsonl", "-o", "out"]
    assert run(job, *args).returncode == 0
    if change == "option":
        args += ["--dpi", "100"]
    elif change == "format":
        args += ["-f", "markdown"]
    elif change == "input":
        write_text_pdf(job.folder / "a.pdf", ["Something else"])
    elif change == "output":
        (job.folder / "out.txt").write_text("One, corrected by hand")
    elif change == "lost":
        (job.folder / "out.txt").unlink()
    else:
        args += ["--overwrite"]
    before = content(job.folder)
    again = run(job, *args, "--resume")
    assert b"nothing to do" not in again.stderr
    if change == "overwrite":
        assert again.returncode == 0
        assert content(job.folder) != before
    else:
        assert again.returncode == 4
        assert again.stderr.startswith(b"vlmcli: error: output exists: out.")
        assert content(job.folder) == before


@pytest.mark.parametrize("place", DEATHS.values(), ids=DEATHS)
@pytest.mark.parametrize("output", ["out.txt", "out/"])
def test_killed_at_the_very_end(job, place, output):
    """All pages are in the journal; what is missing is a name, or the journal's removal."""
    args = ("a.pdf", "b.pdf", "-f", "text", "-f", "jsonl", "-o")
    whole = "whole/" if output.endswith("/") else "whole.txt"
    assert run(job, *args, whole).returncode == 0
    patch = (
        "import os\nfrom vlmcli.finished import FinishedJob\nfrom vlmcli.journal import Journal\n"
        f"from vlmcli.outputs import files\n{place} = lambda *_: os.kill(os.getpid(), 9)"
    )
    killed = run(job, *args, output, patch=patch)
    assert killed.returncode == -signal.SIGKILL
    assert run(job, *args, output).returncode == 4
    done = run(job, *args, output, "--resume", "-v")
    assert done.returncode == 0, done.stderr
    assert b"nothing to do" not in done.stderr and b"from the journal" in done.stderr
    texts = {path.name: path.read_bytes() for path in job.folder.rglob("*.txt")}
    if output.endswith("/"):
        for name in ("a.txt", "b.txt"):
            found = [(job.folder / one / name).read_bytes() for one in ("whole", "out")]
            assert found[0] == found[1]
    else:
        assert texts["out.txt"] == texts["whole.txt"]
    assert not list(job.folder.rglob("*vlmcli*"))
    assert b"nothing to do" in run(job, *args, output, "--resume").stderr
