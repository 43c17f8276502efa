"""`vlmcli plan` as users run it: verdict, exit code, JSON, and nothing heavy loaded."""

import io
import json
import shlex

import pymupdf
import pytest
from PIL import Image
from typer.testing import CliRunner

from vlmcli.cli import ask, ocr
from vlmcli.cli import plan as plan_command
from vlmcli.cli.app import app
from vlmcli.cli.arguments import FORMATS
from vlmcli.cli.plan_job import collect_pages
from vlmcli.memory.request import PlanRequest, make_planner
from vlmcli.options import OcrOptions


@pytest.fixture
def book(tmp_path):
    """Three A4 pages, an A0 page, a stamp."""
    with pymupdf.open() as document:
        for width, height in [(595, 842)] * 3 + [(2384, 3370), (60, 90)]:
            document.new_page(width=width, height=height)
        document.save(tmp_path / "book.pdf")
        document.save(
            tmp_path / "locked.pdf",
            encryption=pymupdf.PDF_ENCRYPT_AES_256,
            owner_pw="o",
            user_pw="secret",
        )
    return tmp_path


def plan(cli, *args, **more):
    done = cli("plan", *args, **more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def plan_json(cli, *args, **more):
    code, out, err = plan(cli, *args, "--json", **more)
    assert out.count("\n") == 1, err
    return code, json.loads(out)


def test_without_input_an_a4_page_is_planned_for_the_built_in_model(cli) -> None:
    code, data = plan_json(cli, "--estimate-memory", "--max-memory", "4GiB")
    assert code == 0
    assert data["fits"] is True
    assert data["model"] == "nano"
    assert data["cap_bytes"] == 4 << 30
    assert data["peak_bytes"] == sum(data["terms"].values()) < 1 << 30
    assert data["num_pages"] == data["pages_in_flight"] == 1


def test_the_worked_example_of_a_large_model(cli, book) -> None:
    code, data = plan_json(
        cli, "book.pdf", "--model", "Qwen/Qwen2.5-VL-7B-Instruct", "--device-memory", "24GiB"
    )
    assert code == 0
    assert (data["device"], data["dtype"], data["num_parameters"]) == (
        "cuda",
        "bfloat16",
        8_292_166_656,
    )
    assert data["terms"]["weights"] == 2 * 8_292_166_656
    tokens = data["visual_tokens"]
    assert (tokens["median"], tokens["max_page"]) == (4956, "book.pdf, page 4")
    assert tokens["total"] == 3 * 4956 + tokens["max"] + tokens["min"]
    assert data["remedies"] == []


def test_every_remedy_fits_when_it_is_pasted(cli, book) -> None:
    options = ("--model", "qwen2.5-vl-7b", "--dpi", "150", "--device-memory", "16800MiB")
    code, data = plan_json(cli, "book.pdf", *options)
    assert code == 6
    assert data["fits"] is False
    assert data["remedies"]
    for line in data["remedies"]:
        words = shlex.split(line)
        assert words[:3] == ["vlmcli", "ocr", "book.pdf"]
        assert words[words.index("--dpi") + 1] == "150"
        assert plan_json(cli, *words[2:])[0] == 0


def test_a_worker_takes_what_is_not_drawing_and_the_driver_pictures_for_all(cli, book) -> None:
    few, many = (
        plan_json(cli, "book.pdf", "--max-memory", "4GiB", "--jobs", "1", "--ray-workers", count)[1]
        for count in ("2", "10")
    )
    one, ten = few["cluster"], many["cluster"]
    assert (one["num_workers"], ten["num_workers"]) == (2, 10)
    assert one["worker_bytes"] == ten["worker_bytes"] > few["terms"]["weights"]
    pictures = few["budgets"]["reader_bytes"]
    assert ten["driver_bytes"] - one["driver_bytes"] == 8 * pictures > 0
    together = one["worker_bytes"] + one["driver_bytes"] - 2 * pictures
    assert few["peak_bytes"] < together < few["peak_bytes"] + (256 << 20)
    assert "cluster" not in plan_json(cli, "book.pdf", "--max-memory", "4GiB")[1]


def test_the_table_says_what_does_not_fit_and_what_would(cli, book) -> None:
    code, out, _ = plan(cli, "book.pdf", "--model", "qwen2.5-vl-7b", "--device-memory", "17GiB")
    assert code == 6
    assert "weights" in out
    assert "does not fit" in out
    assert "vlmcli ocr book.pdf" in out
    assert "--max-pixels" in out
    assert max(map(len, out.splitlines())) < 200
    assert "\x1b" not in out


def test_pages_select_and_restrict(cli, book) -> None:
    _, data = plan_json(cli, "book.pdf", "--pages", "1-3", "--model", "dots.ocr")
    assert data["num_pages"] == 3
    assert data["visual_tokens"]["max"] == 4956
    code, _, err = plan(cli, "book.pdf", "--pages", "9")
    assert code == 2
    assert "5 pages" in err


def test_documents_come_through_stdin(cli, book) -> None:
    _, data = plan_json(cli, "-", "--model", "dots.ocr", input=(book / "book.pdf").read_bytes())
    assert data["num_pages"] == 5


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (("missing.pdf",), 3, "missing.pdf"),
        (("a.pdf",), 3, "a.pdf"),
        (("locked.pdf",), 8, "password"),
        (("--model", "no-such-model"), 7, "qwen2.5-vl-7b"),
        (("--max-memory", "lots"), 2, "lots"),
        (("--device-memory", "lots"), 2, "lots"),
        (("--device", "cuda", "--model", "dots.ocr"), 2, "--device-memory"),
        (("--no-estimate-memory",), 2, "nothing to plan"),
    ],
)
def test_what_users_can_get_wrong(cli, book, args, code, word) -> None:
    status, out, err = plan(cli, *args, env={"PATH": "/nowhere"})
    assert (status, out) == (code, "")
    assert word in err.replace("\n", " ")


def test_a_password_opens(cli, book) -> None:
    assert plan_json(cli, "locked.pdf", "--password", "secret")[1]["num_pages"] == 5


def test_one_broken_document_among_others_is_a_warning(cli, book) -> None:
    code, out, err = plan(cli, "book.pdf", "missing.pdf", "--json")
    assert code == 0
    assert json.loads(out)["num_pages"] == 5
    assert "missing.pdf" in err


def test_a_checkpoint_directory_is_read_without_its_weights(cli, book) -> None:
    config = {
        "model_type": "qwen2_vl",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 300,
        "vision_config": {"depth": 2, "embed_dim": 32, "num_heads": 2},
    }
    (book / "tiny").mkdir()
    (book / "tiny" / "config.json").write_text(json.dumps(config))
    _, data = plan_json(cli, "book.pdf", "--model", "tiny")
    assert data["model"] == "tiny"
    assert data["visual_tokens"]["median"] == 1260


def test_unverified_shapes_are_named(cli) -> None:
    assert "unverified" in plan(cli, "--model", "mineru2.5", "--max-memory", "64GiB")[1]
    assert "unverified" not in plan(cli, "--model", "qwen2.5-vl-3b", "--max-memory", "64GiB")[1]


def test_five_hundred_pages_need_no_torch(cli, tmp_path) -> None:
    with pymupdf.open() as document:
        for number in range(500):
            document.new_page(width=500 + number % 100, height=842)
        document.save(tmp_path / "long.pdf")
    code, _, err = plan(cli, "long.pdf", "--json", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert code == 0
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in err.splitlines()}
    assert "pymupdf" in imported
    assert not imported & {"torch", "transformers", "onnxruntime", "cv2", "scipy", "tokenizers"}


RECIPES = [None, "archive", "ci-gate", "fast", "lecture", "markdown", "invoice"]


def planned_by_plan(monkeypatch, *args: str) -> dict:
    """What `plan` says, run in this process: there are many of them."""
    said = io.BytesIO()
    monkeypatch.setattr(plan_command, "take_stdout", lambda **_: said)
    done = CliRunner().invoke(app, ["plan", *args, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(said.getvalue())


def planned_by_job(monkeypatch, command: str, *args: str) -> dict:
    """The plan that a job with these options is held to; nothing of it is run."""
    jobs: list[OcrOptions] = []
    monkeypatch.setattr(ocr, "run", jobs.append)
    monkeypatch.setattr(ask, "run", jobs.append)
    done = CliRunner().invoke(app, [command, *args])
    assert done.exit_code == 0, done.output
    request = PlanRequest.of(jobs.pop())
    pages, _ = collect_pages(request, password=None, strict=False)
    return make_planner(request).plan(pages).to_dict()


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("formats", [(), *((name,) for name in FORMATS), ("pdf", "jsonl")])
def test_plan_and_the_job_come_to_the_same_figures(monkeypatch, tmp_path, recipe, formats) -> None:
    """`plan` knew no formats: it said "fits" of jobs with `-f pdf` that `ocr` then refused."""
    command = "ask" if recipe == "invoice" else "ocr"
    if command == "ask" and not set(formats) <= {"text", "jsonl"}:
        pytest.skip("answers have no such form")
    monkeypatch.chdir(tmp_path)
    Image.new("RGBA", (2400, 1600), "white").save("a.png")
    Image.new("1", (2400, 1600), 1).save("b.tif", compression="group4")
    args = ["a.png", "b.tif", "--max-memory", "2GiB", "--jobs", "2"]
    args += [word for name in formats for word in ("-f", name)]
    args += [] if recipe is None else ["--recipe", recipe]
    said = planned_by_plan(monkeypatch, *args)
    job = planned_by_job(monkeypatch, command, *args)
    for figure in ("terms", "peak_bytes", "minimum_bytes", "pages_in_flight", "fits"):
        assert said[figure] == job[figure], figure
    writes = "pdf" in formats or (recipe == "archive" and not formats)
    assert (said["terms"]["outputs"] > 0) == writes


def test_questions_are_planned_as_ask_plans_them(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("L", (1200, 1600), 255).save("a.png")
    args = ("a.png", "-q", "Who? " * 200, "--model", "qwen2.5-vl-7b", "--max-memory", "64GiB")
    said = planned_by_plan(monkeypatch, *args)
    assert said["terms"] == planned_by_job(monkeypatch, "ask", *args)["terms"]
