"""The format of a file that `-o` names follows from its suffix, where nobody says another."""

import json

import pytest
from command_line import ROOT
from real_documents import write_text_pdf

BEGINNINGS = {
    "a.pdf": b"%PDF-",
    "a.PDF": b"%PDF-",
    "a.jsonl": b'{"schema"',
    "a.dolma.jsonl": b'{"id"',
    "a.md": b"<!-- page 1 -->",
    "a.hocr": b"<?xml",
    "a.html": b"<?xml",
    "a.xml": b"<?xml",
    "a.txt": b"Written",
    "a.out": b"Written",
    "a": b"Written",
}
READ = ("ocr", "born.in", "--text-layer", "only", "--no-cache")


@pytest.fixture
def job(real):
    write_text_pdf(real.folder / "born.in", ["Written, not printed"])
    return lambda *more, **env: real(*READ, *more, env=env)


@pytest.mark.parametrize(("name", "beginning"), BEGINNINGS.items())
def test_the_suffix_says_the_format(job, real, name, beginning):
    done = job("-o", name)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (real.folder / name).read_bytes().startswith(beginning)


def test_hocr_and_alto_are_told_apart(job, real):
    for name, mark in (("a.html", b"ocr_page"), ("b.xml", b"<alto")):
        assert job("-o", name).returncode == 0
        assert mark in (real.folder / name).read_bytes()


def test_pdfa_needs_no_more_than_the_name(job):
    assert b"--pdfa is about searchable PDFs" in job("-o", "a.txt", "--pdfa").stderr
    assert b"--pdfa is about searchable PDFs" not in job("-o", "a.pdf", "--pdfa").stderr


def test_a_directory_s_name_says_nothing(job, real):
    (real.folder / "shelf.pdf").mkdir()
    assert job("-o", "shelf.pdf").returncode == 0
    assert job("-o", "other.jsonl/").returncode == 0
    assert (real.folder / "shelf.pdf/born.txt").read_bytes().startswith(b"Written")
    assert (real.folder / "other.jsonl/born.txt").exists()


def by_option(real):
    return ("-f", "markdown"), {}


def by_recipe(real):
    return ("--recipe", "markdown"), {}


def by_variable(real):
    return (), {"VLMCLI_FORMAT": "markdown"}


def by_configuration(real):
    (real.folder / "vlmcli.toml").write_text('[ocr]\nformat = "markdown"\n')
    return (), {}


@pytest.mark.parametrize("say", [by_option, by_recipe, by_variable, by_configuration])
def test_what_was_said_counts_and_an_odd_name_is_a_warning(job, real, say):
    options, env = say(real)
    done = job("-o", "a.pdf", *options, **env)
    assert done.returncode == 0
    assert (real.folder / "a.pdf").read_bytes().startswith(b"<!-- page 1 -->")
    said = b"vlmcli: warning: a.pdf will hold markdown, not pdf as its name says; for that give"
    assert done.stderr == said + b" -f pdf\n"
    for name in ("a.md", "a.out", "a"):
        assert job("-o", name, *options, **env).stderr == b""
    events = job("-o", "b.pdf", "--progress", "json", *options, **env).stderr.splitlines()
    assert "b.pdf" in json.loads(events[0])["message"]
    assert job("-o", "c.pdf", "-q", *options, **env).stderr == b""


def test_several_formats_have_suffixes_of_their_own(job, real):
    done = job("-o", "a.pdf", "-f", "text", "-f", "jsonl")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (real.folder / "a.txt").exists()
    assert (real.folder / "a.jsonl").exists()


def test_answers_are_not_written_under_a_name_of_what_they_cannot_be(job, real):
    done = real("ask", "born.in", "-q", "What?", "-o", "a.pdf")
    assert (done.returncode, b"a.pdf: answers have no pdf form" in done.stderr) == (2, True)
    assert not (real.folder / "a.pdf").exists()


def test_help_and_readme_say_so(real):
    for command in ("ocr", "ask"):
        assert "suffix" in " ".join(real(command, "--help").stdout.decode().split())
    assert "suffix" in (ROOT / "README.md").read_text()
