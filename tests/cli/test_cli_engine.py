"""`--engine transformers` as users run it: a family that our engine does not know can be read."""

import json

import pytest
from command_line import RealCli, read_records, without_history
from llava_checkpoint import write_llava
from real_documents import write_pages

OPTIONS = ("--max-tokens", "12", "--threads", "1", "--jobs", "1")
ENGINE = ("--engine", "transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The command line beside a random LLaVA and a scan of two pages."""
    cli = RealCli(tmp_path_factory.mktemp("engine"))
    write_llava(cli.folder / "llava")
    write_pages(cli.folder / "scan.pdf", range(2))
    return cli


def test_an_unknown_family_is_refused_with_the_option_that_runs_it(folder):
    for command in ("ocr", "plan"):
        done = folder(command, "scan.pdf", "-m", "llava")
        assert done.returncode == 7
        assert b"llava" in done.stderr and b"--engine transformers" in done.stderr


def test_records_store_and_plan_are_those_of_any_model(folder):
    env = {"VLMCLI_CACHE_DIR": str(folder.folder / "store")}
    args = ("scan.pdf", "-m", "llava", *ENGINE, *OPTIONS, "--text-layer", "ignore")
    records = folder.records(*args, "--stats", "stats.json", env=env)
    assert [(r["page"], r["status"], r["source"]) for r in records] == [
        (1, "ok", "model"),
        (2, "ok", "model"),
    ]
    assert all(r["model"].startswith("llava@") and r["tokens"]["visual"] == 16 for r in records)
    assert records[0]["text"] != records[1]["text"]
    stats = json.loads((folder.folder / "stats.json").read_text())
    assert stats["pages_read"] == 2
    assert stats["memory_peak_bytes"] <= stats["memory_planned_bytes"]
    again = folder.records(*args, env=env)
    assert [r["reuse"]["kind"] for r in again] == ["exact", "exact"]
    assert without_history(again) == without_history(records)


def test_a_plan_says_that_it_is_a_guess(folder):
    done = folder("plan", "scan.pdf", "-m", "llava", *ENGINE, "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert b"a guess" in done.stdout and b"weights" in done.stdout
    small = folder("ocr", "scan.pdf", "-m", "llava", *ENGINE, "--max-memory", "512MiB")
    assert small.returncode == 6, small.stderr
    assert b"--engine transformers" in small.stderr


@pytest.mark.slow
def test_questions_are_answered(folder):
    args = ("-m", "llava", *ENGINE, *OPTIONS, "-q", "Who?", "-q", "When?", "-f", "jsonl")
    done = folder("ask", "scan.pdf", "--pages", "1", *args)
    assert done.returncode == 0, done.stderr
    (record,) = read_records(done.stdout)
    assert [answer["question"] for answer in record["answers"]] == ["Who?", "When?"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-m", "nano"), "reads lines"),
        (("-m", "llava", "--kv-dtype", "int8"), "--kv-dtype"),
        (("-m", "llava", "--drafts", "nano"), "models that read pages whole"),
    ],
)
def test_options_that_it_cannot_follow_are_refused(folder, args, words):
    done = folder("ocr", "scan.pdf", *args, *ENGINE)
    assert done.returncode == 2 and words in done.stderr.decode(), done.stderr
