"""`--task` as users run it: another task is another result, and line readers take none."""

import pytest
from command_line import RealCli
from real_documents import write_pages, write_text_pdf

from vlmcli.bench.checkpoints import TINY, write_checkpoint

OPTIONS = (
    *("-m", TINY.name, "--max-pixels", "40000", "--max-tokens", "8"),
    *("--threads", "1", "--jobs", "1"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The command line beside a random page-reading checkpoint, a scan, and a born-digital page."""
    cli = RealCli(tmp_path_factory.mktemp("task"))
    write_checkpoint(cli.folder, TINY, lively=True)
    write_pages(cli.folder / "scan.pdf", range(1))
    write_text_pdf(cli.folder / "born.pdf", ["Written, not printed"])
    return cli


@pytest.mark.slow
def test_another_task_never_meets_an_old_result(folder):
    env = {"VLMCLI_CACHE_DIR": str(folder.folder / "store")}
    args = ("scan.pdf", *OPTIONS, "--text-layer", "ignore")
    plain = folder.records(*args, env=env)
    table = folder.records(*args, "--task", "table", env=env)
    assert [record["source"] for record in (*plain, *table)] == ["model", "model"]
    assert plain[0]["text"] != table[0]["text"]
    again = folder.records(*args, "--task", "table", env=env)
    assert (again[0]["source"], again[0]["text"]) == ("reuse", table[0]["text"])


def test_a_text_layer_does_not_do_a_models_task(folder):
    assert folder.records("born.pdf", *OPTIONS)[0]["source"] == "text-layer"
    asked = folder.records("born.pdf", *OPTIONS, "--task", "markdown")
    assert asked[0]["source"] == "model"


@pytest.mark.parametrize("model", ["nano", "rapidocr"])
def test_who_takes_no_instructions_says_so(folder, model):
    if model == "rapidocr":
        pytest.importorskip("rapidocr")
    done = folder("ocr", "scan.pdf", "-m", model, "--task", "formula")
    assert done.returncode == 2
    assert b"takes no instructions" in done.stderr and b"--task formula" in done.stderr
