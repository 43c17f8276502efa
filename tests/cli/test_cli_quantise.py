"""`--quantize` from the command line: records say it, plans count it, runs are not mixed up."""

import json
import shutil

import pytest
from command_line import ROOT

from vlmcli.errors import ExitCode

SCAN = str(ROOT / "samples" / "scan.pdf")


def labels_of(done):
    assert done.returncode == ExitCode.OK, done.stderr
    return [json.loads(line)["model"] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_records_say_how_the_model_was_rounded_and_the_store_keeps_them_apart(cli, tmp_path):
    env = {"VLMCLI_CACHE_DIR": str(tmp_path / "store")}
    words = ("ocr", SCAN, "--text-layer", "ignore", "-f", "jsonl", "-q")
    (plain,) = labels_of(cli(*words, env=env))
    done = cli(*words, "--quantize", "vit-int8", "--quantize", "int4", env=env)
    assert labels_of(done) == [f"{plain}+int4+vit-int8"]
    assert json.loads(done.stdout)["source"] == "model"
    again = cli(*words, env=env)
    assert labels_of(again) == [plain]
    assert json.loads(again.stdout)["source"] == "reuse"


def test_a_plan_counts_what_is_saved(cli):
    sizes = [
        json.loads(cli("plan", "--json", *words).stdout)["terms"]["weights"]
        for words in ((), ("--quantize", "int8"), ("--quantize", "int4,vit-int8"))
    ]
    assert sizes[0] > sizes[1] > sizes[2]


def test_another_quantisation_is_refused_with_its_name(cli, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json", "preprocessor_config.json"):
        found = ROOT / "vlmcli" / "nano" / file
        if found.is_file():
            shutil.copy(found, model)
    raw = json.loads((model / "config.json").read_text())
    raw["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (model / "config.json").write_text(json.dumps(raw))
    for words in (("ocr", SCAN, "--text-layer", "ignore"), ("plan",), ("models", "verify")):
        where = (str(model),) if words[0] == "models" else ("--model", str(model))
        done = cli(*words, *where)
        assert done.returncode == ExitCode.MODEL, done.stderr
        assert b"'gptq'" in done.stderr
