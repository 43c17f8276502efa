"""`vlmcli ask` as users run it: a checkpoint of their own, several questions, records and text."""

import json

import pytest
from command_line import ROOT, RealCli, read_records, without_seconds
from jsonschema import Draft202012Validator
from real_documents import LINES, write_frames, write_pages, write_text_pdf

from vlmcli.bench.checkpoints import TINY, write_checkpoint

SCHEMA = json.loads((ROOT / "docs/record.schema.json").read_text())
QUESTIONS = ("Who wrote this?", "What is the total?", "Who wrote this?")
MODEL = ("-m", TINY.name, "--max-pixels", "40000", "--max-tokens", "8", "--threads", "1")


def asking(*questions: str) -> list[str]:
    return [word for question in questions for word in ("-q", question)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The command line beside a random checkpoint, a scan, and pages of which one is blank."""
    cli = RealCli(tmp_path_factory.mktemp("ask"))
    write_checkpoint(cli.folder, TINY, lively=True)
    write_pages(cli.folder / "scan.pdf", range(3))
    write_frames(cli.folder / "frames.tiff", [LINES[:1], [], LINES[1:2]])
    write_text_pdf(cli.folder / "born.pdf", ["Written, not printed"])
    return cli


def ask(cli: RealCli, *args: str, code: int = 0, **more) -> list[dict]:
    done = cli("ask", *args, "-f", "jsonl", **more)
    assert done.returncode == code, done.stderr.decode()
    return read_records(done.stdout)


@pytest.fixture(scope="module")
def together(folder):
    """Every page asked everything, into files."""
    files = ("-o", "out", "-f", "jsonl", "-f", "text", "--stats", "stats.json")
    done = folder("ask", "scan.pdf", "frames.tiff", *asking(*QUESTIONS), *MODEL, *files)
    assert done.returncode == 0, done.stderr.decode()
    names = ("out/scan.jsonl", "out/frames.jsonl")
    return [r for name in names for r in read_records((folder.folder / name).read_bytes())]


def test_every_page_has_its_record_and_every_question_its_answer(together):
    pages = [("scan.pdf", n) for n in (1, 2, 3)] + [("frames.tiff", n) for n in (1, 2, 3)]
    assert [(record["document"], record["page"]) for record in together] == pages
    validator = Draft202012Validator(SCHEMA)
    for record in together:
        assert not [error.message for error in validator.iter_errors(record)]
        assert [answer["question"] for answer in record["answers"]] == list(QUESTIONS)
        first, _, third = (answer["text"] for answer in record["answers"])
        assert first == third
    blank = together[4]
    assert (blank["status"], [a["text"] for a in blank["answers"]]) == ("blank", ["", "", ""])


@pytest.mark.slow
def test_together_as_one_by_one(folder, together):
    for index, question in enumerate(QUESTIONS[:2]):
        alone = ask(folder, "scan.pdf", "frames.tiff", *asking(question), *MODEL)
        assert [record["answers"] for record in alone] == [
            [record["answers"][index]] for record in together
        ]
        assert [record["text"] for record in alone] == [
            record["answers"][index]["text"] for record in together
        ]


def test_a_page_is_encoded_once(folder, together):
    stats = json.loads((folder.folder / "stats.json").read_text())
    assert stats["images_encoded"] == 5, "five pages of six have something on them"
    # Second and third questions find what the first ones computed, up to a block.
    visual = sum(record["tokens"]["visual"] for record in together)
    assert stats["encoder_tokens"] == visual
    assert stats["cached_tokens"] > 2 * visual


def test_pictures_in_int8_take_less_and_every_page_is_answered(folder, together):
    args = ("--vision-kv-dtype", "int8", "--stats", "int8.json", "--no-cache")
    records = ask(folder, "scan.pdf", "frames.tiff", *asking(*QUESTIONS), *MODEL, *args)
    assert [record["status"] for record in records] == [r["status"] for r in together]
    wide, narrow = (
        json.loads((folder.folder / name).read_text())["memory_planned_bytes"]
        for name in ("stats.json", "int8.json")
    )
    assert narrow < wide


def test_equal_pages_share_their_answers_and_another_question_does_not_get_them(folder):
    write_pages(folder.folder / "twice.pdf", [7, 7])
    kept = {"env": {"VLMCLI_CACHE_DIR": str(folder.folder / "kept")}}
    args = ("twice.pdf", *MODEL)
    first = ask(folder, *args, *asking(*QUESTIONS[:2]), **kept)
    assert [record["source"] for record in first] == ["model", "reuse"]
    assert first[0]["answers"] == first[1]["answers"]
    again = ask(folder, *args, *asking(*QUESTIONS[:2]), **kept)
    assert [record["source"] for record in again] == ["reuse", "reuse"]
    assert [record["answers"] for record in again] == [record["answers"] for record in first]
    other = ask(folder, *args, *asking(*QUESTIONS[1::-1]), **kept)
    assert [record["source"] for record in other] == ["model", "reuse"]
    assert other[0]["answers"] == first[0]["answers"][::-1]


def test_text_names_the_questions(folder, together):
    pages = (folder.folder / "out/scan.txt").read_text().split("\f")
    assert len(pages) == 3
    for page, record in zip(pages, together, strict=False):
        answered = [answer for answer in record["answers"] if answer["text"].strip()]
        assert answered
        assert all(answer["question"] in page for answer in answered)


def test_the_built_in_model_answers_with_the_text(real):
    write_frames(real.folder / "page.png", [LINES[:2]])
    write_text_pdf(real.folder / "born.pdf", ["Written, not printed"])
    read = real.records("page.png", "born.pdf", "--text-layer", "ignore")
    asked = ask(real, "page.png", "born.pdf", *asking(*QUESTIONS[:2]))
    for expected, found in zip(read, asked, strict=True):
        answers = found.pop("answers")
        assert answers == [{"question": q, "text": expected["text"]} for q in QUESTIONS[:2]]
        assert expected["text"]
    assert without_seconds(asked) == without_seconds(read)


def test_what_does_not_fit_says_how_to_ask_less(folder):
    done = folder("ask", "scan.pdf", *asking("Who, and when?"), *MODEL, "--max-memory", "200MiB")
    assert done.returncode == 6 and done.stdout == b""
    assert b"vlmcli ask scan.pdf -q 'Who, and when?'" in done.stderr


@pytest.mark.parametrize(
    "args",
    [(), ("-q", ""), ("-q", "  "), ("-q", "Who?", "-f", "markdown")],
    ids=["none", "empty", "blank", "format"],
)
def test_wrong_usage(folder, args):
    done = folder("ask", "scan.pdf", *args)
    assert done.returncode == 2 and done.stdout == b""


def test_failures_say_so_and_the_others_are_answered(folder):
    (folder.folder / "broken.pdf").write_bytes(b"%PDF-1.7\n%%EOF\n")
    records = ask(folder, "broken.pdf", "scan.pdf", *asking(*QUESTIONS[:2]), *MODEL, code=5)
    assert [record["status"] for record in records] == ["error", "ok", "ok", "ok"]
    assert [answer["text"] for answer in records[0]["answers"]] == ["", ""]


SCHEMA_FILE = '{"type": "object", "required": ["author"]}'


def test_answers_that_are_no_data_are_an_error_after_the_last_attempt(folder):
    (folder.folder / "author.json").write_text(SCHEMA_FILE)
    args = ("scan.pdf", "--pages", "1", *asking("Who?"), *MODEL, "--retries", "1", "--no-cache")
    (record,) = ask(folder, *args, "--answer-schema", "author.json", code=5)
    assert not list(Draft202012Validator(SCHEMA).iter_errors(record))
    assert (record["status"], record["error"]["code"]) == ("error", "answers")
    assert record["attempts"] == 2 and "data" not in record
    assert record["answers"][0]["text"] and record["text"] == ""
    assert (record,) == tuple(
        without_seconds([r])[0] | {"seconds": record["seconds"]}
        for r in ask(folder, *args, "--answer-schema", SCHEMA_FILE, code=5)
    )


def test_a_model_that_answers_no_questions_gives_no_data(real):
    write_frames(real.folder / "page.png", [LINES[:2]])
    for args in (("--recipe", "invoice"), (*asking("Who?"), "--answer-schema", SCHEMA_FILE)):
        done = real("ask", "page.png", *args)
        assert done.returncode == 7 and done.stdout == b""
        assert b"answers no questions" in done.stderr and b"-m" in done.stderr


def test_a_schema_that_is_none_is_found_before_anything_is_read(folder):
    (folder.folder / "bad.json").write_text('{"type": 3}')
    done = folder("ask", "gone.pdf", *asking("Who?"), "--answer-schema", "bad.json")
    assert done.returncode == 2 and b"bad.json: not a JSON Schema" in done.stderr
