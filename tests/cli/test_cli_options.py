"""Every option of `ocr` and `ask` reaches the job as the value it stands for; the rest are
defaults."""

import shlex
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from vlmcli.cli import ask, ocr
from vlmcli.cli.app import app
from vlmcli.documents.source import PageHandle
from vlmcli.memory.request import PlanRequest, make_planner
from vlmcli.options import OcrOptions, parse_size

EVERYTHING = {
    "--output out": ("output", "out"),
    "--format markdown -f jsonl": ("formats", ("markdown", "jsonl")),
    "--model dir/model": ("model", "dir/model"),
    "--engine transformers": ("engine", "transformers"),
    "--task markdown": ("task", "markdown"),
    "--server http://a/v1": ("server", "http://a/v1"),
    "--server-concurrency 3": ("server_concurrency", 3),
    "--server-prompt Read!": ("server_prompt", "Read!"),
    "--server-image jpeg": ("server_image", "jpeg"),
    "--pages 1,3-end": ("pages", "1,3-end"),
    "--password secret": ("password", "secret"),
    "--dpi 300": ("dpi", 300),
    "--max-pixels 1000000": ("max_pixels", 1_000_000),
    "--frame-interval 2.5": ("frame_interval", 2.5),
    "--device cuda:1": ("device", "cuda:1"),
    "--dtype bfloat16": ("dtype", "bfloat16"),
    "--kv-dtype int8": ("kv_dtype", "int8"),
    "--vision-kv-dtype float32": ("vision_kv_dtype", "float32"),
    "--quantize vit-int8,int4": ("quantize", ("int4", "vit-int8")),
    "--text-layer only": ("text_layer", "only"),
    "--drafts ngram,text-layer": ("drafts", "ngram,text-layer"),
    "--reuse exact": ("reuse", "exact"),
    "--max-tokens 99": ("max_tokens", 99),
    "--max-memory 2GiB": ("max_memory", 2 << 30),
    "--vision-cache 512MiB": ("vision_cache", 512 << 20),
    "--page-timeout 2.5": ("page_timeout", 2.5),
    "--retries 0": ("retries", 0),
    "--jobs 3": ("jobs", 3),
    "--threads 1": ("threads", 1),
    "--ray head:6379": ("ray", "head:6379"),
    "--ray-workers 5": ("ray_workers", 5),
    "--pdfa": ("pdfa", True),
    "--resume": ("resume", True),
    "--no-cache": ("cache", False),
    "--overwrite": ("overwrite", True),
    "--strict": ("strict", True),
    "--fail-fast": ("fail_fast", True),
    "--progress json": ("progress", "json"),
    "--stats run.json": ("stats", "run.json"),
    "--quiet": ("quiet", True),
    "-vv": ("verbose", 2),
    "--no-config": ("config", False),
}


NOT_ASK = {
    *("--format markdown -f jsonl", "--text-layer only", "--reuse exact", "--task markdown"),
    "--server-prompt Read!",
    "--pdfa",
}
"""Options of `ocr` that make no sense for questions."""
ASKED = {"text_layer": "ignore", "reuse": "exact"}


@pytest.fixture
def parse(monkeypatch):
    """Parses a command line and gives the job's options, without running the job."""
    jobs: list[OcrOptions] = []
    monkeypatch.setattr(ocr, "run", jobs.append)
    monkeypatch.setattr(ask, "run", jobs.append)
    monkeypatch.delenv("VLMCLI_MODEL", raising=False)
    monkeypatch.delenv("VLMCLI_PASSWORD", raising=False)

    def call(*args: str, command: str = "ocr") -> OcrOptions:
        result = CliRunner().invoke(app, [command, *args])
        assert result.exit_code == 0, result.output
        return jobs.pop()

    return call


def test_without_options_every_default_is_that_of_the_options(parse):
    assert parse("a.pdf", "b", "-") == OcrOptions(inputs=("a.pdf", "b", "-"))


def test_there_is_an_option_for_every_setting():
    assert {name for name, _ in EVERYTHING.values()} == {
        field.name for field in fields(OcrOptions)
    } - {"inputs", "question", "answer_schema"}


@pytest.mark.parametrize("text", EVERYTHING)
def test_one_option_changes_one_setting(parse, text):
    name, value = EVERYTHING[text]
    assert parse("a.pdf", *text.split()) == OcrOptions(inputs=("a.pdf",), **{name: value})


def test_all_options_together(parse):
    words = [word for text in EVERYTHING for word in text.split()]
    assert parse("a.pdf", *words) == OcrOptions(inputs=("a.pdf",), **dict(EVERYTHING.values()))


@pytest.mark.parametrize("text", [text for text in EVERYTHING if text not in NOT_ASK])
def test_ask_takes_the_options_of_ocr(parse, text):
    name, value = EVERYTHING[text]
    job = parse("a.pdf", "-q", "Who?", "-q", " What? ", *text.split(), command="ask")
    changes = ASKED | {name: value, "question": ("Who?", "What?")}
    assert job == OcrOptions(inputs=("a.pdf",), **changes)


def test_ask_writes_text_or_json_lines(parse):
    job = parse("a.pdf", "-q", "Who?", "-f", "jsonl", "-f", "text", command="ask")
    assert job.formats == ("jsonl", "text")


def test_short_names_and_opposites(parse):
    short = parse("a.pdf", "-o", "x", "-m", "m", "-j", "2", "-q", "-v", "--no-resume", "--cache")
    long = OcrOptions(inputs=("a.pdf",), output="x", model="m", jobs=2, quiet=True, verbose=1)
    assert short == long


def test_the_environment_stands_in_for_options_and_gives_way_to_them(parse, monkeypatch, tmp_path):
    (tmp_path / "pw").write_text("from file\n")
    monkeypatch.setenv("VLMCLI_MODEL", "from-env")
    monkeypatch.setenv("VLMCLI_PASSWORD", "env-secret")
    assert parse("a.pdf").model == "from-env"
    assert parse("a.pdf").password == "env-secret"
    assert parse("a.pdf", "-m", "from-option").model == "from-option"
    assert parse("a.pdf", "--password", "given").password == "given"
    assert parse("a.pdf", "--password-file", str(tmp_path / "pw")).password == "from file"


def test_a_password_file_has_the_password_in_its_first_line(parse, tmp_path):
    file = tmp_path / "password"
    passwords = {b"p w\n": "p w", b"pw\r\nmore\n": "pw", b"": "", "ü".encode(): "ü"}
    for data, password in passwords.items():
        file.write_bytes(data)
        assert parse("a.pdf", "--password-file", str(file)).password == password


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(st.sampled_from(sorted(EVERYTHING)), unique=True),
    st.lists(st.sampled_from(["a.pdf", "my scan.pdf", "-", "it's"]), min_size=1, unique=True),
    st.lists(st.sampled_from(["Who's that?", "When?", "-q"])),
)
def test_a_remedy_repeats_every_option_but_the_password(parse, texts, inputs, questions):
    command = "ask" if questions else "ocr"
    texts = [
        text for text in texts if "--model" not in text and (not questions or text not in NOT_ASK)
    ]
    words = [word for text in texts for word in text.split()]
    words += [word for question in questions for word in ("-q", question)]
    options = parse(*inputs, "--max-memory", "3GiB", *words, command=command)
    request = PlanRequest.of(options)
    again = shlex.split(make_planner(request).command.changed({"--dtype": "float16"}))
    assert again[:2] == ["vlmcli", command]
    assert "secret" not in again
    assert parse(*again[2:], command=command) == replace(options, password=None, dtype="float16")


def test_in_a_remedy_a_file_that_looks_like_an_option_is_named_by_its_folder(parse):
    request = PlanRequest.of(parse("--", "-q.pdf", "b.pdf"))
    line = make_planner(request).command.changed({})
    assert line == "vlmcli ocr ./-q.pdf b.pdf"


@pytest.mark.parametrize("size", ["9GiB", "15500MiB", "16500MiB"])
def test_every_remedy_is_a_command_line_that_ocr_takes(parse, size):
    request = PlanRequest(
        inputs=("a.pdf",), model="qwen2.5-vl-7b", device="cuda", max_memory=parse_size(size)
    )
    page = PageHandle(document="a", index=0, num_pages=1, width=2000, height=3000, unit="pt")
    plan = make_planner(request).plan([page])
    assert plan.remedies
    for remedy in plan.remedies:
        program, command, *words = shlex.split(remedy.command)
        assert (program, command) == ("vlmcli", "ocr")
        options = parse(*words)
        assert (options.inputs, options.model) == (request.inputs, request.model)
        assert options.device == "cuda"
