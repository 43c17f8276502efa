"""Checkpoints in AWQ's layout give what their numbers, written out in float, give; others are
refused by name."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from awq_checkpoints import WEIGHTS, write_pair
from safetensors.torch import load_file, save_file
from tiny_checkpoints import (
    FACTS,
    Chunk,
    load_runner,
    make_batch,
    make_prompt,
    random_picture,
)

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.loader import check_weights
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.errors import ExitCode, ModelError
from vlmcli.memory.checkpoint_facts import facts_from_directory


@pytest.fixture(scope="module", params=sorted(FACTS))
def pair(request, tmp_path_factory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def awq(tmp_path_factory) -> Path:
    return write_pair(tmp_path_factory.mktemp("awq"), "merge2_patch14")[0]


def logits_of(runner: ModelRunner) -> torch.Tensor:
    picture = random_picture(np.random.default_rng(0), 56, 84, grey=False)
    prompt = make_prompt(runner, [1, 2, picture, *range(5, 20)])
    end = len(prompt.ids)
    return runner.execute(make_batch(runner, [Chunk(prompt, 0, end, tuple(range(1, 60)))]))


def test_logits_are_those_of_the_numbers_written_out(pair):
    awq, plain = pair
    expected = logits_of(load_runner(plain))
    torch.testing.assert_close(logits_of(load_runner(awq)), expected, atol=2e-5, rtol=1e-5)


def test_weights_are_checked_by_name_and_shape(awq, tmp_path):
    assert check_weights(awq) > 0
    broken = shutil.copytree(awq, tmp_path / "broken")
    weights = load_file(awq / WEIGHTS)
    name = next(name for name in weights if name.endswith("layers.1.mlp.up_proj.qzeros"))
    del weights[name]
    save_file(weights, broken / WEIGHTS)
    with pytest.raises(ModelError, match=r"missing: .*layers\.1\.mlp\.up_proj\.qzeros"):
        check_weights(broken)


def test_codes_must_be_integers(awq, tmp_path):
    broken = shutil.copytree(awq, tmp_path / "broken")
    weights = load_file(awq / WEIGHTS)
    name = next(name for name in weights if name.endswith("up_proj.qweight"))
    save_file(weights | {name: weights[name].float()}, broken / WEIGHTS)
    with pytest.raises(ModelError, match=r"up_proj\.qweight \(F32\)"):
        check_weights(broken)


def test_what_is_quantised_is_not_quantised_again(awq):
    with pytest.raises(ModelError, match="quantised already"):
        ModelRunner.from_checkpoint(awq, EngineConfig(quantize=("int8",)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"quant_method": "gptq"}, "gptq"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"bits": 8}, "8 bits"),
        ({"version": "gemv"}, "gemv"),
        ({"zero_point": False}, "zero points"),
        ({"group_size": -1}, "groups of -1"),
        ({"group_size": 48}, "groups of 48"),
    ],
)
def test_other_quantisations_are_refused_by_name(awq, tmp_path, change, named):
    other = shutil.copytree(awq, tmp_path / "other")
    raw = json.loads((other / "config.json").read_text())
    raw["quantization_config"] |= change
    (other / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ModelError, match=named) as caught:
        check_weights(other)
    assert caught.value.exit_code == ExitCode.MODEL
    if "48" not in named:
        with pytest.raises(ModelError, match=named):
            facts_from_directory(other, "other")
