"""Options out of variables, recipes and configuration files: who beats whom, and who is to blame.

Command lines are parsed in this process; the jobs are not run.
"""

import os
import stat
import tomllib
from dataclasses import fields, replace

import pytest
from command_line import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from vlmcli.cli import ask, ocr
from vlmcli.cli.app import app
from vlmcli.options import OcrOptions
from vlmcli.recipes.named import FOLDER, recipe_names

JOB = OcrOptions(inputs=("a.pdf",))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: the root of an empty repository."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("VLMCLI_") and name != "VLMCLI_CACHE_DIR":
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def parse(folder, monkeypatch):
    """Parses a command line and gives the job's options, without running the job."""
    jobs: list[OcrOptions] = []
    monkeypatch.setattr(ocr, "run", jobs.append)
    monkeypatch.setattr(ask, "run", jobs.append)

    def call(*args: str, command: str = "ocr") -> OcrOptions:
        result = CliRunner().invoke(app, [command, "a.pdf", *args])
        assert result.exit_code == 0, result.output
        return jobs.pop()

    return call


def refused(*args: str) -> str:
    """What a command line says that is not accepted."""
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def write(path, text: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_each_layer_beats_those_below_it(folder, parse, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "own"))
    write(folder / "own/vlmcli/config.toml", "[ocr]\ndpi = 101\n")
    assert parse().dpi == 101
    write(folder / "vlmcli.toml", "dpi = 102\n")
    assert parse().dpi == 102
    write(folder / "vlmcli.toml", "dpi = 102\n[ocr]\ndpi = 103\n")
    assert parse().dpi == 103
    recipe = write(folder / "mine.toml", "description = 'x'\n[ocr]\ndpi = 104\n")
    assert parse("--recipe", str(recipe)).dpi == 104
    monkeypatch.setenv("VLMCLI_DPI", "105")
    assert parse("--recipe", "mine.toml").dpi == 105
    assert parse("--recipe", "mine.toml", "--dpi", "106").dpi == 106
    monkeypatch.setenv("VLMCLI_DPI", "")
    assert parse("--recipe", "mine.toml", "--no-config").dpi == 104
    assert parse("--no-config") == replace(JOB, config=False)


def test_layers_are_merged_option_by_option_and_lists_as_a_whole(folder, parse, monkeypatch):
    write(folder / "vlmcli.toml", "[ocr]\nformat = ['hocr', 'alto']\nretries = 7\njobs = 3\n")
    write(folder / "mine.toml", "description = 'x'\n[ocr]\nretries = 0\ncache = false\n")
    monkeypatch.setenv("VLMCLI_MAX_MEMORY", "3GiB")
    job = parse("--recipe", "./mine.toml")
    changes = {"retries": 0, "jobs": 3, "cache": False, "max_memory": 3 << 30, "config": False}
    assert job == replace(JOB, formats=("hocr", "alto"), **changes)
    assert parse("-f", "text").formats == ("text",)


EVERY_VARIABLE = {
    "VLMCLI_OUTPUT": ("out", "output", "out"),
    "VLMCLI_FORMAT": ("markdown, jsonl", "formats", ("markdown", "jsonl")),
    "VLMCLI_MODEL": ("dir/model", "model", "dir/model"),
    "VLMCLI_PAGES": ("1,3-end", "pages", "1,3-end"),
    "VLMCLI_PASSWORD": ("secret", "password", "secret"),
    "VLMCLI_DPI": ("300", "dpi", 300),
    "VLMCLI_MAX_PIXELS": ("1000000", "max_pixels", 1_000_000),
    "VLMCLI_FRAME_INTERVAL": ("2.5", "frame_interval", 2.5),
    "VLMCLI_DEVICE": ("cuda:1", "device", "cuda:1"),
    "VLMCLI_DTYPE": ("bfloat16", "dtype", "bfloat16"),
    "VLMCLI_KV_DTYPE": ("int8", "kv_dtype", "int8"),
    "VLMCLI_VISION_KV_DTYPE": ("float32", "vision_kv_dtype", "float32"),
    "VLMCLI_ENGINE": ("transformers", "engine", "transformers"),
    "VLMCLI_TASK": ("table", "task", "table"),
    "VLMCLI_QUANTIZE": ("int4, vit-int8", "quantize", ("int4", "vit-int8")),
    "VLMCLI_SERVER": ("http://a/v1", "server", "http://a/v1"),
    "VLMCLI_SERVER_CONCURRENCY": ("3", "server_concurrency", 3),
    "VLMCLI_SERVER_PROMPT": ("Read!", "server_prompt", "Read!"),
    "VLMCLI_SERVER_IMAGE": ("jpeg", "server_image", "jpeg"),
    "VLMCLI_RAY": ("local", "ray", "local"),
    "VLMCLI_RAY_WORKERS": ("2", "ray_workers", 2),
    "VLMCLI_TEXT_LAYER": ("only", "text_layer", "only"),
    "VLMCLI_DRAFTS": ("ngram,text-layer", "drafts", "ngram,text-layer"),
    "VLMCLI_REUSE": ("exact", "reuse", "exact"),
    "VLMCLI_MAX_TOKENS": ("99", "max_tokens", 99),
    "VLMCLI_MAX_MEMORY": ("2GiB", "max_memory", 2 << 30),
    "VLMCLI_VISION_CACHE": ("512MiB", "vision_cache", 512 << 20),
    "VLMCLI_PAGE_TIMEOUT": ("2.5", "page_timeout", 2.5),
    "VLMCLI_RETRIES": ("0", "retries", 0),
    "VLMCLI_JOBS": ("3", "jobs", 3),
    "VLMCLI_THREADS": ("1", "threads", 1),
    "VLMCLI_PDFA": ("1", "pdfa", True),
    "VLMCLI_RESUME": ("true", "resume", True),
    "VLMCLI_CACHE": ("0", "cache", False),
    "VLMCLI_OVERWRITE": ("yes", "overwrite", True),
    "VLMCLI_STRICT": ("on", "strict", True),
    "VLMCLI_FAIL_FAST": ("1", "fail_fast", True),
    "VLMCLI_PROGRESS": ("json", "progress", "json"),
    "VLMCLI_STATS": ("run.json", "stats", "run.json"),
    "VLMCLI_QUIET": ("true", "quiet", True),
    "VLMCLI_VERBOSE": ("2", "verbose", 2),
}


NOT_OF_OCR = {"inputs", "question", "answer_schema", "config"}


def test_there_is_a_variable_for_every_option(parse, monkeypatch):
    known = {name for _, name, _ in EVERY_VARIABLE.values()}
    assert known == {field.name for field in fields(OcrOptions)} - NOT_OF_OCR
    for variable, (text, name, value) in EVERY_VARIABLE.items():
        monkeypatch.setenv(variable, text)
        assert parse() == replace(JOB, **{name: value})
        monkeypatch.delenv(variable)


def test_questions_and_files_from_variables(folder, parse, monkeypatch):
    monkeypatch.setenv("VLMCLI_QUESTION", "Who wrote it?\nWhen, and why?\n")
    assert parse(command="ask").question == ("Who wrote it?", "When, and why?")
    assert parse("-q", "What?", command="ask").question == ("What?",)
    write(folder / "vlmcli.toml", "dpi = 50\n")
    write(folder / "other.toml", "dpi = 60\n")
    monkeypatch.setenv("VLMCLI_CONFIG", "other.toml")
    assert parse().dpi == 60
    assert parse("--config", "vlmcli.toml").dpi == 50
    monkeypatch.setenv("VLMCLI_NO_CONFIG", "1")
    assert parse().dpi == JOB.dpi
    assert parse("--config", "vlmcli.toml").dpi == 50
    monkeypatch.setenv("VLMCLI_NO_CONFIG", "0")
    monkeypatch.setenv("VLMCLI_RECIPE", "archive")
    assert (parse().dpi, parse().formats) == (60, ("pdf", "hocr"))
    assert parse("--recipe", "markdown").formats == ("markdown",)


def test_a_configuration_may_choose_the_recipe_and_still_gives_way_to_it(folder, parse):
    write(folder / "vlmcli.toml", "recipe = 'archive'\n[ocr]\nretries = 9\njobs = 4\n")
    job = parse()
    assert (job.formats, job.retries, job.jobs) == (("pdf", "hocr"), 3, 4)
    assert parse("--recipe", "markdown").formats == ("markdown",)


def test_a_named_configuration_counts_alone(folder, parse):
    write(folder / "vlmcli.toml", "dpi = 50\nretries = 9\n")
    write(folder / "other.toml", "dpi = 60\n")
    assert parse("--config", "other.toml") == replace(JOB, dpi=60, config=False)


def test_plan_plans_the_job_of_ocr(folder):
    write(folder / "vlmcli.toml", "[ocr]\ndpi = 111\nformat = 'text'\n[plan]\nmax-pixels = 20000\n")
    done = CliRunner().invoke(app, ["plan", "--print-recipe"])
    table = tomllib.loads(done.stdout)["plan"]
    assert (table["dpi"], table["max-pixels"]) == (111, 20000)
    done = CliRunner().invoke(app, ["plan", "--recipe", "ci-gate", "--print-recipe"])
    assert tomllib.loads(done.stdout)["plan"]["reuse"] == "off"


def test_switches_can_be_turned_off_again(folder, parse):
    write(folder / "vlmcli.toml", "[ocr]\nstrict = true\nfail-fast = true\nquiet = true\n")
    job = parse("--no-strict", "--no-fail-fast", "--no-quiet")
    assert job == replace(JOB, config=False)


def test_values_are_checked_as_on_the_command_line_and_the_file_is_named(folder):
    cases = {
        "[ocr]\ndpi = 20\n": "line 2: dpi: Input should be greater than or equal to 36",
        "[ocr]\n\ntext-layer = 'perhaps'\n": "line 3: text-layer: 'perhaps' is not one of",
        "max-memory = 'much'\n": "line 1: max-memory: not a size: 'much'",
        "[plan]\ndevice = 'tpu'\n": "line 2: device: not a device: 'tpu'",
        "dpy = 3\n": "line 1: unknown option: dpy (did you mean dpi?)",
        "[ask]\npassword = 'x'\n": "line 2: password has no place in a file",
    }
    for text, message in cases.items():
        write(folder / "vlmcli.toml", text)
        for command in ("ocr", "plan"):
            said = refused(command, "a.pdf")
            assert f"error: vlmcli.toml, {message}" in said


def test_a_fault_does_not_keep_anybody_from_the_help(folder):
    write(folder / "vlmcli.toml", "[broken")
    for args in (["ocr", "--help"], ["--help"], ["ocr", "a.pdf", "--no-config", "--help"]):
        assert CliRunner().invoke(app, args).exit_code == 0


def test_variables_are_blamed_by_name(folder, monkeypatch):
    monkeypatch.setenv("VLMCLI_DPI", "20")
    assert "error: VLMCLI_DPI: dpi: Input should be greater" in refused("ocr", "a.pdf")
    monkeypatch.setenv("VLMCLI_DPI", "200")
    monkeypatch.setenv("VLMCLI_CACHE", "perhaps")
    assert "error: VLMCLI_CACHE: cache:" in refused("ocr", "a.pdf")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DPI", "abc", "dpi: 'abc' is no whole number"),
        ("DPI", "20", "dpi: Input should be greater than or equal to 36, not 20"),
        ("PAGE_TIMEOUT", "soon", "page-timeout: 'soon' is no number"),
        ("OVERWRITE", "maybe", "overwrite: 'maybe' is neither true nor false"),
        ("REUSE", "x", "reuse: 'x' is not one of"),
    ],
)
def test_what_is_wrong_with_a_variable_is_said_in_words_with_a_remedy(
    folder, monkeypatch, name, value, words
):
    monkeypatch.setenv(f"VLMCLI_{name}", value)
    said = refused("ocr", "a.pdf")
    option = name.lower().replace("_", "-")
    assert f"error: VLMCLI_{name}: {words}" in said
    assert f"(vlmcli ocr --help says what --{option} takes)" in said


def test_recipes_that_are_not_there_or_for_another_command(folder):
    write(folder / "asks.toml", "description = 'x'\n[ask]\nquestion = 'Who?'\n")
    assert "no such recipe: 'archve' (did you mean archive?" in refused("ocr", "--recipe", "archve")
    assert "no such file: gone.toml" in refused("ocr", "x", "--recipe", "./gone.toml")
    said = refused("ocr", "x", "--recipe", "asks.toml")
    assert "asks.toml has no table for ocr (it is for vlmcli ask)" in said
    assert "contradict" in refused("ocr", "x", "--config", "a", "--no-config")


# --- --print-recipe ----------------------------------------------------------------------------


def printed(*args: str) -> str:
    result = CliRunner().invoke(app, [*args, "--print-recipe"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_what_is_printed_says_where_it_comes_from(folder, monkeypatch):
    write(folder / "vlmcli.toml", "retries = 5\n")
    monkeypatch.setenv("VLMCLI_DPI", "150")
    monkeypatch.setenv("VLMCLI_MODEL", "elsewhere")
    monkeypatch.setenv("VLMCLI_PASSWORD", "secret")
    text = printed("ocr", "--recipe", "archive", "--jobs", "2")
    lines = text.splitlines()
    assert 'format = ["pdf", "hocr"]  # recipe archive' in lines
    assert "retries = 3  # recipe archive" in lines
    assert "dpi = 150  # VLMCLI_DPI" in lines
    assert 'model = "elsewhere"  # VLMCLI_MODEL' in lines
    assert "jobs = 2  # command line" in lines
    assert "max-pixels = 25000000" in lines
    assert "secret" not in text


WORDS = st.lists(
    st.sampled_from(
        [
            *(["--dpi", "300"], ["-f", "jsonl"], ["-f", "pdf"], ["--no-cache"], ["-vv"]),
            *(["--max-memory", "3GiB"], ["--page-timeout", "2.5"], ["--drafts", "ngram"]),
            *(["--pages", "1,3-end"], ["-m", 'a "b" \\ \x7f ü\n'], ["--strict"], ["-q"]),
            *(["--recipe", "archive"], ["--recipe", "ci-gate"], ["--no-config"]),
        ]
    ),
    unique_by=lambda words: words[0],
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(WORDS)
def test_what_is_printed_is_a_recipe_for_the_same_job(folder, parse, words):
    args = [word for pair in words for word in pair]
    job = parse(*args)
    saved = write(folder / "saved.toml", printed("ocr", *args))
    again = parse("--recipe", str(saved))
    assert again == replace(job, config=again.config)
    assert tomllib.loads(printed("ocr", "--recipe", str(saved))) == tomllib.loads(
        saved.read_text(encoding="utf-8")
    )


def test_a_question_is_printed_too(folder):
    text = printed("ask", "-q", "Who?", "-q", 'What is "it"?')
    assert tomllib.loads(text)["ask"]["question"] == ["Who?", 'What is "it"?']


# --- the recipes that come with vlmcli ------------------------------------------------------------


def test_fast_is_what_there_is_without_a_recipe(folder, parse):
    assert parse("--recipe", "fast") == JOB


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_one_and_stands_in_the_top_folder_too(folder, name):
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    for command in table.keys() - {"description"}:
        again = tomllib.loads(printed(command, "--recipe", name))
        for option, value in table[command].items():
            assert again[command][option] in (value, [value], str(FOLDER / str(value)))


def test_the_top_folder_has_the_same_files():
    ours = {path.name for path in FOLDER.iterdir() if path.suffix not in (".py", "")}
    for name in ours:
        link = ROOT / "recipes" / name
        assert link.resolve() == (FOLDER / name).resolve()
    assert (FOLDER / "ci-gate.sh").stat().st_mode & stat.S_IXUSR


def test_the_wheel_has_them():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = data["tool"]["setuptools"]["package-data"]["vlmcli.recipes"]
    packed = {path.name for pattern in patterns for path in FOLDER.glob(pattern)}
    assert packed == {path.name for path in FOLDER.iterdir() if path.suffix not in (".py", "")}


def test_a_recipe_cannot_name_another_one(folder, cli):
    """The name was once checked and then followed by nobody."""
    for name in ("markdown", "./mine.toml", "nosuch"):
        write(folder / "mine.toml", f"description = 'x'\n[ocr]\nrecipe = '{name}'\n")
        done = cli("ocr", "a.pdf", "--recipe", "./mine.toml", fake={})
        assert done.returncode == 2
        assert b"mine.toml, line 3: a recipe cannot name another one" in done.stderr


def test_a_table_that_is_none_is_told_so(folder, cli):
    for text in ("ocr = 3", "[[ocr]]"):
        write(folder / "mine.toml", f"description = 'x'\n{text}\n")
        done = cli("ocr", "a.pdf", "--recipe", "./mine.toml", fake={})
        assert done.returncode == 2 and b"ocr must be a table" in done.stderr
