"""The recipes that come with vlmcli do what they say, on small documents, as users run them."""

import json
import shlex
import subprocess

import pymupdf
import pytest
from command_line import ROOT, read_records
from real_documents import write_text_pdf

GATE = ROOT / "recipes" / "ci-gate.sh"


@pytest.fixture(scope="module")
def shell(shell):
    """With a document of one printed line."""
    write_text_pdf(shell.folder / "letter.pdf", ["The quick brown fox jumps over the lazy dog"])
    return shell


def gate(shell, *args: str, **variables: str) -> subprocess.CompletedProcess:
    return shell.run("sh", str(GATE), *args, **variables)


@pytest.mark.slow
def test_the_gate_lets_good_texts_pass_and_says_how_good_they_are(shell):
    done = gate(shell, "letter.pdf", "text-layer", "0.3")
    assert done.returncode == 0, done.stderr
    assert "character error rate" in done.stdout and " MiB  peak" in done.stdout
    (record,) = read_records((shell.folder / "ci-gate/read.jsonl").read_bytes())
    assert record["source"] == "model", "the text layer is the truth and not the answer"
    assert (shell.folder / "ci-gate/worst.html").exists()
    assert json.loads((shell.folder / "ci-gate/stats.json").read_text())["pages"] == 1


def test_the_gate_stops_bad_texts_and_failed_pages(shell):
    (shell.folder / "truth.txt").write_text("Something else altogether, 12345")
    bad = gate(shell, "letter.pdf", "truth.txt")
    assert bad.returncode == 5
    assert "is above 0.05" in bad.stderr
    missing = gate(shell, "missing.pdf", "truth.txt")
    assert missing.returncode == 3


def test_the_gate_stops_before_anything_is_read_where_memory_is_too_small(shell):
    variables = {"VLMCLI_MAX_MEMORY": "50MiB", "CI_GATE_REPORT": "small"}
    done = gate(shell, "letter.pdf", "text-layer", **variables)
    assert done.returncode == 6, done.stderr
    assert not list((shell.folder / "small").iterdir())


def test_the_workflow_runs_the_gate_with_arguments_that_it_takes():
    text = (ROOT / "recipes" / "ci-gate.github.yml").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if "ci-gate.sh samples" in line]
    words = shlex.split(line.split("run:")[1])
    assert len(words) == 5 and float(words[4]) < 1
    assert "CI_GATE_REPORT" in text and "CI_GATE_REPORT" in GATE.read_text(encoding="utf-8")


def test_archive_gives_a_searchable_pdf_and_hocr(shell):
    shell("vlmcli ocr --recipe archive letter.pdf -o shelf/")
    folder = shell.folder / "shelf"
    assert {path.name for path in folder.iterdir()} == {"letter.pdf", "letter.hocr"}
    with pymupdf.open(folder / "letter.pdf") as document:
        assert "quick brown fox" in document[0].get_text()
    assert "ocrx_word" in (folder / "letter.hocr").read_text(encoding="utf-8")


def test_markdown_has_page_marks_and_the_command_line_beats_it(shell):
    assert "<!-- page 1" in shell("vlmcli ocr --recipe markdown letter.pdf")
    assert "<!-- page" not in shell("vlmcli ocr --recipe markdown -f text letter.pdf")
