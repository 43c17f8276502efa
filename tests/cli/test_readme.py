"""The README is true: its commands run, in order, beside the samples; its links lead somewhere."""

import json
import re

import pytest
from command_line import ROOT, blocks

from vlmcli.errors import ExitCode

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks(README)
LINKING = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_first_commands_are_targets_of_make():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [line.split("#")[0].split() for line in BLOCKS[0].splitlines()]
    assert commands == [["make", "demo"], ["make", "test"]]
    assert {"demo", "test"} <= set(targets)


@pytest.fixture(scope="module")
def outputs(shell):
    """What each block prints, run one after the other."""
    return [shell(block) for block in BLOCKS[1:]]


def test_every_command_runs(shell, outputs):
    folder = shell.folder
    assert len(outputs) == 9
    assert outputs[8].startswith("1 ok This is a lot of")
    assert "Secret!" in outputs[0]
    assert (folder / "pages.md").read_text().count("<!-- page") == 6
    assert outputs[1].startswith("exit code 5\n") and " MiB  peak" in outputs[1]
    assert (folder / "texts/scan.txt").stat().st_size > 100
    assert not (folder / "texts/encrypted.txt").exists()
    assert len((folder / "rotations.jsonl").read_text().splitlines()) == 6
    assert "pages    " in outputs[3] and "nano@" in outputs[3]
    assert outputs[4].splitlines() == [
        "1 ok text-layer 'Potato'",
        "2 blank None ''",
        "3 ok text-layer 'Potato'",
    ]
    assert (folder / "report.html").read_text().count("<article") == 1
    assert "character error rate" in outputs[6]
    assert (folder / "searchable.pdf").read_bytes().startswith(b"%PDF")
    (answered,) = map(json.loads, (folder / "answers.jsonl").read_text().splitlines())
    assert [answer["question"] for answer in answered["answers"]] == [
        "Who wrote this?",
        "What is it about?",
    ]


def test_exit_codes_are_those_of_the_program():
    table = README[README.index("## Exit codes") : README.index("## Options")]
    rows = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    codes = [int(code) for row in rows for code in row.split(",")]
    assert codes == sorted(ExitCode)


def test_options_are_those_of_the_program(shell):
    said = shell("COLUMNS=200 vlmcli ocr --help")
    table = README[README.index("## Options") : README.index("## What it does not")]
    options = set(re.findall(r"`(--?[a-z-]+)", table))
    assert len(options) > 8
    assert not [option for option in options if not re.search(rf"{option}\b", said)]


@pytest.mark.parametrize("file", LINKING, ids=lambda file: file.name)
def test_links_lead_to_files(file):
    links = re.findall(r"\]\(([^)#]+)\)", file.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert not [link for link in local if not (file.parent / link).exists()]
