"""Options that name a file beside the results: `--stats`, `--html`, `--plot`. Nothing is lost by
them, whatever they are pointed at."""

import json
import os
import shutil
import stat

import pytest
from command_line import ROOT

READ = ("--text-layer", "only", "--no-cache")
"""Takes no model."""
PDF = "pages-1-to-17.pdf"


@pytest.fixture
def job(real):
    """A folder with a document under several names, and other people's files."""
    (real.folder / "in").mkdir()
    for name in ("in/a.pdf", "in/b.pdf"):
        shutil.copy(ROOT / "samples" / PDF, real.folder / name)
    (real.folder / "soft.pdf").symlink_to("in/a.pdf")
    os.link(real.folder / "in/b.pdf", real.folder / "hard.pdf")
    (real.folder / "mine.txt").write_text("mine")
    (real.folder / "link.json").symlink_to("mine.txt")
    return real


def content(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    "args",
    [
        ("in/a.pdf", "--stats", "in/a.pdf", "--overwrite"),
        ("in/a.pdf", "--stats", "soft.pdf", "--overwrite"),
        ("in", "--stats", "hard.pdf", "--overwrite"),
        ("in", "-o", "out/", "--stats", "in/b.pdf", "--overwrite"),
        ("in/a.pdf", "--stats", "mine.txt"),
        ("in/a.pdf", "--stats", "link.json"),
        ("in/a.pdf", "-o", "x.json", "--stats", "x.json"),
        ("in/a.pdf", "-o", "x.json", "--stats", "x.json.vlmcli-journal"),
        ("in", "-o", "out/", "-f", "jsonl", "--stats", "out/b.jsonl"),
        ("in/a.pdf", "--stats", "nowhere/stats.json"),
        ("in/a.pdf", "--stats", "in"),
        ("in/a.pdf", "--stats", "s" * 300),
    ],
)
def test_figures_that_would_lose_something_are_refused_before_any_work(job, args):
    before = content(job.folder)
    done = job("ocr", *args, *READ)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (4, b""), said
    assert said.startswith("vlmcli: error: ") and "with --stats)" in said
    assert content(job.folder) == before


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_figures_do_not_mix_with_the_texts(job, name):
    done = job("ocr", "in/a.pdf", "--stats", name, *READ)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--stats cannot write to stdout" in done.stderr
    assert not (job.folder / "-").exists()


def test_figures_of_the_same_job_again(job):
    """With the word that its outputs need too; and into a folder that the job makes."""
    args = ("ocr", "in", "-o", "out/", "--stats", "out/stats.json", *READ)
    assert job(*args).returncode == 0
    assert job(*args).returncode == 4
    first = (job.folder / "out/stats.json").stat().st_ino
    assert job(*args, "--overwrite").returncode == 0
    assert (job.folder / "out/stats.json").stat().st_ino != first
    again = ("ocr", "in/a.pdf", "-o", "cut.txt", "--stats", "out/stats.json", "--resume", *READ)
    assert job(*again).returncode == 0
    assert json.loads((job.folder / "out/stats.json").read_text())["documents"] == 1


def test_a_program_may_read_the_figures_from_a_pipe(job):
    os.mkfifo(job.folder / "pipe")
    running = job.start("ocr", "in/a.pdf", "--stats", "pipe", *READ)
    assert json.loads((job.folder / "pipe").read_text())["pages"] == 17
    running.communicate(timeout=60)
    assert running.returncode == 0
    assert stat.S_ISFIFO((job.folder / "pipe").stat().st_mode)


@pytest.fixture
def texts(job):
    """A run's records, and a truth; the documents are in `in`."""
    done = job("ocr", "in/a.pdf", "-f", "jsonl", "-o", "read.jsonl", *READ)
    assert done.returncode == 0, done.stderr
    (job.folder / "truths").mkdir()
    (job.folder / "truths/a.txt").write_text("1\f2")
    return job


@pytest.mark.parametrize(
    "args",
    [
        ("read.jsonl", "truths/a.txt", "--html", "truths/a.txt", "--overwrite"),
        ("read.jsonl", "truths", "--html", "truths/a.txt", "--overwrite"),
        ("read.jsonl", "truths", "--html", "./read.jsonl", "--overwrite"),
        ("read.jsonl", "--truth", "text-layer", "--html", "soft.pdf", "--overwrite"),
        ("read.jsonl", "truths", "--html", "mine.txt"),
        ("read.jsonl", "truths", "--html", "link.json"),
    ],
)
def test_a_comparison_replaces_neither_what_it_compares_nor_what_is_there(texts, args):
    before = content(texts.folder)
    done = texts("eval", *args)
    assert (done.returncode, done.stdout) == (4, b"")
    assert b"with --html)" in done.stderr
    assert content(texts.folder) == before


def test_a_comparison_again(texts):
    args = ("eval", "read.jsonl", "truths", "--html", "worst.html")
    assert [texts(*args).returncode, texts(*args).returncode] == [0, 4]
    assert texts(*args, "--overwrite").returncode == 0
    assert texts(*args[:-1], "-").returncode == 2


def test_a_plot_is_refused_before_anything_is_measured(job):
    for name, code in (("mine.txt", 4), ("no/x.png", 4), ("-", 2)):
        done = job("bench", "memory", "--pages", "1", "--plot", name)
        assert (done.returncode, done.stdout) == (code, b"")
        assert b"with --plot)" in done.stderr
    assert (job.folder / "mine.txt").read_text() == "mine"
