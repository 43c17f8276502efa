"""`--drafts nano` and `--drafts rapidocr` as users run them: the same texts, and what was right."""

import json

import pytest
from command_line import ROOT, RealCli, read_records, without_history
from jsonschema import Draft202012Validator
from real_documents import write_pages

from vlmcli.bench.checkpoints import TINY, write_checkpoint

SCHEMA = json.loads((ROOT / "docs/record.schema.json").read_text())
OPTIONS = ("-m", TINY.name, "--max-pixels", "40000", "--max-tokens", "12", "--threads", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The command line beside a random page-reading checkpoint and a scan of two pages."""
    cli = RealCli(tmp_path_factory.mktemp("drafts"))
    write_checkpoint(cli.folder, TINY, lively=True)
    write_pages(cli.folder / "scan.pdf", range(2))
    return cli


@pytest.fixture(scope="module")
def plain(folder) -> list[dict]:
    return folder.records("scan.pdf", *OPTIONS, "--text-layer", "ignore", "--jobs", "1")


@pytest.mark.parametrize("name", ["nano", "rapidocr"])
def test_a_small_reader_first_and_the_same_text(folder, plain, name):
    if name == "rapidocr":
        pytest.importorskip("rapidocr")
    drafted = folder.records(
        *("scan.pdf", *OPTIONS, "--text-layer", "ignore", "--jobs", "1"),
        *("--drafts", f"ngram,{name}", "--stats", "stats.json"),
    )
    assert without_history(drafted) == without_history(plain)
    for record in drafted:
        assert not list(Draft202012Validator(SCHEMA).iter_errors(record))
        counts = record["tokens"]["sources"][name]
        assert 0 < counts["guessed"] <= record["tokens"]["output"] >= counts["right"]
    stats = json.loads((folder.folder / "stats.json").read_text())
    assert stats["drafting_pages"] == 2 and stats[f"drafts.{name}.guessed"] > 0
    assert stats["memory_peak_bytes"] <= stats["memory_planned_bytes"]


def test_the_reader_that_drafts_is_in_the_plan(folder):
    def plan(*args: str) -> dict:
        done = folder("plan", "scan.pdf", *OPTIONS[:4], "--jobs", "1", "--json", *args)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    plain, small = plan(), plan("--drafts", "nano")
    assert plain["terms"]["drafting"] == 0
    assert small["terms"]["drafting"] > 30 << 20
    difference = small["peak_bytes"] - plain["peak_bytes"]
    assert abs(difference - small["terms"]["drafting"]) < 16 << 20


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("ocr", "scan.pdf", "--drafts", "nano"), "models that read pages whole"),
        (("ocr", "scan.pdf", "--drafts", "nano,rapidocr"), "two readers"),
        (("ask", "scan.pdf", "-q", "Who?", *OPTIONS, "--drafts", "nano"), "answers to questions"),
    ],
)
def test_drafts_that_help_nobody_are_refused(folder, args, words):
    done = folder(*args)
    assert done.returncode == 2 and words in done.stderr.decode(), done.stderr
    assert not read_records(done.stdout)
