"""`vlmcli models` as users run it, and checkpoints named as the hub names them. No network."""

import json
import shutil

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from vlmcli.catalogue import family_table
from vlmcli.checkpoint import built_in_path
from vlmcli.engine.models.registry import native_families

NAME = "someone/small-reader"
ROOT = built_in_path().parents[1]


@pytest.fixture
def hub(tmp_path):
    """A Hugging Face cache that holds one checkpoint, and the environment that names it."""
    repo = tmp_path / "hub" / "models--someone--small-reader"
    snapshot = repo / "snapshots" / ("0" * 40)
    shutil.copytree(built_in_path(), snapshot, ignore=shutil.ignore_patterns("*.py", "__pyc*"))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    return {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}


def models(cli, *args, code=0, env=None):
    done = cli("models", *args, env=env or {})
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def test_list_names_families_and_checkpoints(cli, hub):
    found = json.loads(models(cli, "list", "--json", env=hub)[0])
    assert {family["model_type"] for family in found["families"]} == set(native_families())
    here = [model for model in found["models"] if model["name"] != "rapidocr"]
    assert [model["name"] for model in here] == ["nano", NAME]
    assert all(model["native"] and model["bytes"] > 1_000_000 for model in here)
    text = models(cli, "list", env=hub)[0]
    assert all(kind in text for kind in native_families())
    assert NAME in text


def test_show_says_what_a_checkpoint_is(cli, hub):
    built_in = json.loads(models(cli, "show", "nano", "--json")[0])
    cached = json.loads(models(cli, "show", NAME, "--json", env=hub)[0])
    assert (built_in["name"], cached["name"]) == ("nano", NAME)
    same = ("model_type", "reads", "parameters", "dtype", "revision")
    assert {key: built_in[key] for key in same} == {key: cached[key] for key in same}
    with safe_open(built_in_path() / "model.safetensors", "pt") as weights:
        counted = sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118
    assert built_in["parameters"] >= counted


@pytest.mark.slow
def test_verify_finds_what_is_wrong(cli, tmp_path):
    assert int(models(cli, "verify", "nano")[0].split()[0]) > 50
    path = shutil.copytree(built_in_path(), tmp_path / "broken")
    with safe_open(path / "model.safetensors", "pt") as weights:
        tensors = {name: weights.get_tensor(name) for name in weights.keys()}  # noqa: SIM118
    gone = sorted(tensors)[0]
    save_file(
        {name: value for name, value in tensors.items() if name != gone}, path / "model.safetensors"
    )
    _, errors = models(cli, "verify", str(path), code=7)
    assert "missing" in errors
    (path / "model.safetensors").write_bytes(b"no weights")
    models(cli, "verify", str(path), code=7)


def test_a_checkpoint_of_the_hub_is_read_from_the_cache(real, hub):
    env = real.environment() | hub
    wanted = ROOT / "samples" / "scan.pdf"
    texts = [
        real("ocr", str(wanted), "--text-layer", "ignore", "-m", model, env=env).stdout
        for model in (NAME, "nano")
    ]
    assert texts[0] == texts[1] != b""


@pytest.mark.parametrize("command", [["ocr", "x.pdf"], ["models", "show"], ["models", "verify"]])
def test_a_missing_checkpoint_names_the_command_that_fetches_it(cli, hub, tmp_path, command):
    (tmp_path / "x.pdf").write_bytes((ROOT / "samples" / "scan.pdf").read_bytes())
    where = ["-m"] if command[0] == "ocr" else []
    done = cli(*command, *where, "someone/else", env=hub)
    assert done.returncode == 7
    assert b"vlmcli models pull someone/else" in done.stderr
    assert done.stdout == b""


def test_pull_without_a_network_says_so(cli, hub):
    _, errors = models(cli, "pull", "someone/else", code=9, env=hub)
    assert "someone/else" in errors
    assert "Traceback" not in errors
    models(cli, "pull", "not a name", code=7, env=hub)
    assert models(cli, "pull", NAME, env=hub)[0].strip().endswith("0" * 40)


def test_the_documentation_lists_the_families():
    text = (ROOT / "docs" / "models.md").read_text()
    assert "\n".join(family_table()) in text
