"""`vlmcli eval` as users run it, on files of every kind."""

import json
import shutil

import pytest
from command_line import ROOT
from real_documents import write_text_pdf

TRUTH = "The quick brown fox\fjumps over\n"
TEXTS = ["The quick brown fax", "jumps over"]


@pytest.fixture
def folder(cli):
    """A truth, and two runs of which the second is better."""
    (cli.folder / "truth.txt").write_text(TRUTH)
    for name, texts in (("first", ["The quack brown fax", "jumps"]), ("second", TEXTS)):
        lines = [
            json.dumps({"document": "in/truth.pdf", "page": page, "text": text})
            for page, text in enumerate(texts, 1)
        ]
        (cli.folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return cli.folder


def evaluated(cli, *args, code=0):
    done = cli("eval", *args, "--json")
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)


def test_records_against_a_text_file(cli, folder):
    found = evaluated(cli, "second.jsonl", "truth.txt")
    assert found["cer"]["value"] == round(1 / (len("The quick brown fox") + len("jumps over")), 5)
    assert found["wer"]["value"] == round(1 / 6, 5)
    assert (found["pages"], found["missing"]) == (2, 0)
    assert [page["page"] for page in found["worst"]] == [1, 2]
    text = cli("eval", "second.jsonl", "truth.txt").stdout.decode()
    assert "character error rate" in text
    assert "truth, page 1" in text


def test_folders_and_missing_pages(cli, folder):
    (folder / "texts").mkdir()
    (folder / "texts" / "truth.txt").write_text(TEXTS[0])
    found = evaluated(cli, "texts", "truth.txt")
    assert (found["pages"], found["missing"]) == (2, 1)
    assert found["worst"][0] == {"document": "truth", "page": 2, "cer": 1.0, "missing": True}


def test_two_runs(cli, folder):
    found = evaluated(cli, "--compare", "first.jsonl", "second.jsonl", "truth.txt")
    assert found["comparison"]["cer_difference"]["value"] < 0
    assert found["comparison"]["better_pages"] == 2
    assert found["cer"]["value"] < found["comparison"]["first"]["cer"]["value"]


def test_a_gate_for_ci(cli, folder):
    evaluated(cli, "second.jsonl", "truth.txt", "--max-cer", "0.1")
    evaluated(cli, "second.jsonl", "truth.txt", "--max-cer", "0.01", code=5)


def test_html(cli, folder):
    evaluated(cli, "second.jsonl", "truth.txt", "--html", "worst.html")
    assert "<del>o</del>" in (folder / "worst.html").read_text()


def test_against_the_documents_own_text_layers(cli, folder):
    shutil.copy(ROOT / "samples" / "table.pdf", folder)
    done = cli("ocr", "table.pdf", "-f", "jsonl", "-o", "own.jsonl")
    assert done.returncode == 0, done.stderr.decode()
    found = evaluated(cli, "own.jsonl", "--truth", "text-layer")
    assert found["cer"]["value"] == 0
    assert found["pages"] == 1


def write_run(cli, name: str, sources: list[str]) -> None:
    """Records of a document with text layers, every page with one wrong word."""
    lines = [
        json.dumps({"document": "layers.pdf", "page": page, "text": "wrong", "source": source})
        for page, source in enumerate(sources, 1)
    ]
    (cli.folder / name).write_text("\n".join(lines) + "\n")


def test_pages_answered_from_the_truth_itself_are_not_counted_for_it(cli):
    write_text_pdf(cli.folder / "layers.pdf", ["one", "two", "three"])
    write_run(cli, "mixed.jsonl", ["text-layer", "model", "reuse"])
    found = evaluated(cli, "mixed.jsonl", "--truth", "text-layer")
    assert (found["pages"], found["missing"], found["from_text_layer"]) == (2, 0, 1)
    assert {page["page"] for page in found["worst"]} == {2, 3}
    done = cli("eval", "mixed.jsonl", "--truth", "text-layer")
    assert b"2 pages, 0 missing" in done.stdout and done.stderr == b""
    assert b"answered from the text layer itself and left out: 1 more" in done.stdout
    # Against any other truth all of them count.
    (cli.folder / "layers.txt").write_text("one\ftwo\fthree\n")
    other = evaluated(cli, "mixed.jsonl", "layers.txt")
    assert other["pages"] == 3 and "from_text_layer" not in other


def test_two_runs_are_compared_on_the_pages_that_both_have_read(cli):
    write_text_pdf(cli.folder / "layers.pdf", ["one", "two", "three"])
    write_run(cli, "mixed.jsonl", ["text-layer", "model", "model"])
    write_run(cli, "other.jsonl", ["model", "text-layer", "model"])
    args = ("--compare", "mixed.jsonl", "other.jsonl", "--truth", "text-layer")
    found = evaluated(cli, *args)
    assert (found["pages"], found["from_text_layer"]) == (1, 2)
    assert found["comparison"]["first"]["pages"] == 1


def test_a_run_of_nothing_else_says_that_nothing_was_measured(cli):
    write_text_pdf(cli.folder / "layers.pdf", ["one", "two"])
    write_run(cli, "own.jsonl", ["text-layer", "text-layer"])
    found = evaluated(cli, "own.jsonl", "--truth", "text-layer")
    assert (found["pages"], found["from_text_layer"]) == (2, 2)
    done = cli("eval", "own.jsonl", "--truth", "text-layer")
    assert b"nothing was measured" in done.stdout
    assert b"--text-layer ignore" in done.stderr


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["second.jsonl"], 2),
        (["second.jsonl", "truth.txt", "truth.txt"], 2),
        (["second.jsonl", "nothing.txt"], 3),
        (["truth.txt", "--truth", "text-layer"], 2),
        (["second.jsonl", "--truth", "else"], 2),
        (["broken.jsonl", "truth.txt"], 3),
        (["second.jsonl", "truth.txt", "--html", "no/where.html"], 4),
    ],
)
def test_what_users_get_wrong(cli, folder, args, code):
    (folder / "broken.jsonl").write_text('{"page": 1}\n')
    done = cli("eval", *args)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("rate", ["nan", "inf", "-inf", "-0.1"])
def test_a_gate_that_could_never_close_or_open_is_refused(cli, folder, rate):
    done = cli("eval", "second.jsonl", "truth.txt", "--max-cer", rate)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"not a rate" in done.stderr and b"--max-cer 0.05" in done.stderr


@pytest.mark.parametrize("place", [0, 1])
def test_documents_are_not_taken_for_texts(cli, folder, place):
    """Their bytes would be a page of very bad text, and the figures would look like figures."""
    documents = sorted(path for path in (ROOT / "samples").iterdir() if path.suffix != ".txt")
    kinds = {path.suffix: path for path in documents if path.suffix in (".pdf", ".webp")}
    for suffix, found in kinds.items():
        shutil.copy(found, folder / f"document{suffix}")
        paths = ["truth.txt", "truth.txt"]
        paths[place] = f"document{suffix}"
        done = cli("eval", *paths)
        assert (done.returncode, done.stdout) == (3, b"")
        assert b"is no text (give records" in done.stderr
    assert len(kinds) == 2


def test_texts_of_other_encodings_and_line_ends_are_still_texts(cli, folder):
    (folder / "truth.txt").write_bytes("Gr\xfc\xdfe\r\nan alle".encode("latin-1"))
    (folder / "same.txt").write_bytes("Gr\xfc\xdfe\nan alle".encode("latin-1"))
    assert evaluated(cli, "same.txt", "truth.txt")["cer"]["value"] == 0
