"""`vlmcli view` as users run it: what is found, what is missing, what is refused."""

import shutil

import pytest
from command_line import ROOT, RealCli

SAMPLES = ROOT / "samples"


NAMES = ("blank-middle.pdf", "table.pdf", "encrypted.pdf")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Records of three documents, made once without a model, beside copies of them."""
    real = RealCli(tmp_path_factory.mktemp("made"))
    for name in NAMES:
        shutil.copy(SAMPLES / name, real.folder)
    more = ["--text-layer", "only", "--password", "baz"]
    done = real("ocr", *NAMES, *more, "-f", "jsonl", "-o", "results.jsonl")
    assert done.returncode == 0, done.stderr.decode()
    return real.folder


@pytest.fixture
def folder(real, made):
    """A copy of them, to do anything with."""
    shutil.copytree(made, real.folder, dirs_exist_ok=True)
    return real.folder


def report(real, *args, code=0, **more) -> str:
    done = real("view", *args, **more)
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return done.stdout.decode() if code == 0 else done.stderr.decode()


def pictures(html: str) -> int:
    return html.count("<script type=")


def test_every_page_has_its_picture_and_its_text(real, folder):
    report(real, "results.jsonl", "-o", "report.html", "--password", "baz")
    html = (folder / "report.html").read_text()
    assert html.count("<article") == pictures(html) == 5
    assert "Secret!" in html
    assert html.endswith("</html>\n")


def test_a_missing_or_locked_document_costs_only_its_pictures(real, folder):
    (folder / "table.pdf").unlink()
    done = real("view", "results.jsonl", "-o", "-")
    html = done.stdout.decode()
    assert done.returncode == 0
    assert (html.count("<article"), pictures(html)) == (5, 3)
    assert html.count("No picture: no such file") == 1
    assert "No picture: encrypted.pdf: encrypted, a password is needed" in html
    warnings = done.stderr.decode().splitlines()
    assert len(warnings) == 2
    assert all(line.startswith("vlmcli: warning: no pictures of ") for line in warnings)
    assert real("view", "results.jsonl", "-o", "-", "-q").stderr == b""


def test_documents_are_looked_for_below_the_root(real, folder):
    (folder / "scans").mkdir()
    shutil.move(folder / "table.pdf", folder / "scans")
    html = report(real, "results.jsonl", "-o", "-", "--root", "scans")
    assert pictures(html) == 1
    report(real, "results.jsonl", "-o", "-", "--root", "nowhere", code=2)


def test_a_document_that_was_changed_is_said_to_be(real, folder):
    shutil.copy(SAMPLES / "word.webp", folder / "table.pdf")
    html = report(real, "results.jsonl", "-o", "-")
    assert "another shape" in html


def test_pipes(real, folder):
    records = (folder / "results.jsonl").read_bytes()
    from_stdin = report(real, "-", "-o", "-", input=records)
    assert pictures(from_stdin) == 4
    assert pictures(report(real, "results.jsonl", "-o", "/dev/stdout")) == 4


def test_texts_alone(real, folder):
    html = report(real, "results.jsonl", "-o", "-", "--no-pictures")
    assert html.count("<article") == 5
    assert "<figure" not in html


def test_what_is_there_is_kept(real, folder):
    (folder / "report.html").write_text("mine")
    said = report(real, "results.jsonl", "-o", "report.html", code=4)
    assert "--overwrite" in said
    assert (folder / "report.html").read_text() == "mine"
    report(real, "results.jsonl", "-o", "report.html", "--overwrite")
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("output", ["results.jsonl", "table.pdf"])
def test_no_input_is_overwritten(real, folder, output):
    before = (folder / output).read_bytes()
    said = report(real, "results.jsonl", "-o", output, "--overwrite", code=4)
    assert "is also" in said
    assert (folder / output).read_bytes() == before


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["broken.jsonl", "-o", "x.html"], 3, "broken.jsonl, line 2: not a page record"),
        (["empty.jsonl", "-o", "x.html"], 3, "no records in empty.jsonl"),
        (["nothing.jsonl", "-o", "x.html"], 3, "no such file: nothing.jsonl"),
        ([".", "-o", "x.html"], 3, "cannot read ."),
        (["results.jsonl", "-o", "no/x.html"], 4, "no such directory"),
        (["results.jsonl", "-o", "."], 4, "a directory"),
        (["results.jsonl"], 2, "--output"),
        (["results.jsonl", "-o", "x.html", "--width", "5"], 2, "--width"),
    ],
)
def test_what_users_get_wrong(real, folder, args, code, words):
    first = (folder / "results.jsonl").read_bytes().splitlines()[0]
    (folder / "broken.jsonl").write_bytes(first + b'\n{"page": 1}\n')
    (folder / "empty.jsonl").touch()
    assert words in report(real, *args, code=code)
    assert not (folder / "x.html").exists()
    assert not list(folder.glob(".vlmcli-*"))
