"""Quantised models: right matrices, small errors, bytes as planned, unlike results kept apart."""

from pathlib import Path

import numpy as np
import pytest
import torch
from awq_checkpoints import write_pair
from tiny_checkpoints import (
    FACTS,
    Chunk,
    as_input,
    load_runner,
    make_batch,
    make_prompt,
    random_picture,
    write_checkpoint,
)

from vlmcli.checkpoint import find_checkpoint
from vlmcli.engine.layers import Linear
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.models.decoder import DecoderLayer
from vlmcli.engine.models.vision import VisionBlock
from vlmcli.memory.checkpoint_facts import facts_from_directory
from vlmcli.memory.quantised import held_bytes
from vlmcli.options import OcrOptions
from vlmcli.recipe import job_recipe

KINDS = sorted(FACTS)
MODES = {"int8": DecoderLayer, "int4": DecoderLayer, "vit-int8": VisionBlock}
"""And the modules whose matrices they round."""
LOOSEST = {"int8": 0.05, "int4": 0.6, "vit-int8": 0.1}
"""Relative error of the logits that random weights may have; measured: 0.014 to 0.026, 0.22
to 0.38, and 0.007 to 0.033. Trained models are less sensitive."""


@pytest.fixture(scope="module", params=KINDS)
def path(request, tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp(request.param) / "model", request.param)


def logits_of(runner: ModelRunner) -> torch.Tensor:
    rng = np.random.default_rng(0)
    pictures = [random_picture(rng, *size, grey=False) for size in ((56, 84), (112, 56))]
    prompt = make_prompt(runner, [1, 2, pictures[0], 3, 4, pictures[1], *range(5, 20)])
    rows = tuple(range(len(prompt.ids)))
    blocks = tuple(range(1, 60))
    return runner.execute(make_batch(runner, [Chunk(prompt, 0, len(rows), blocks)]))


def held_by(runner: ModelRunner) -> int:
    """Bytes of all parameters and of quantised matrices."""
    model = runner.model
    assert isinstance(model, torch.nn.Module)
    matrices = [m.weight for m in model.modules() if isinstance(m, Linear)]
    packed = [m for m in matrices if isinstance(m, torch.nn.Module)]
    kept = sum(one.nbytes for one in model.parameters())
    return kept + sum(buffer.nbytes for one in packed for buffer in one.buffers())


def linears(runner: ModelRunner, part: type) -> set[Linear]:
    owners = [m for m in runner.model.modules() if isinstance(m, part)]
    return {m for owner in owners for m in owner.modules() if isinstance(m, Linear)}


@pytest.mark.parametrize("mode", MODES)
def test_the_matrices_of_one_half_and_no_others_are_quantised(path, mode):
    runner = load_runner(path, quantize=(mode,))
    inside = linears(runner, MODES[mode])
    everywhere = {m for m in runner.model.modules() if isinstance(m, Linear)}
    config = runner.model_config
    half = config.vision if mode == "vit-int8" else config.text
    assert len(inside) == 4 * half.num_layers
    assert {m for m in everywhere if not isinstance(m.weight, torch.Tensor)} == inside


@pytest.mark.check("quantised")
@pytest.mark.parametrize("mode", MODES)
def test_logits_stay_near(path, mode):
    exact = logits_of(load_runner(path))
    rounded = logits_of(load_runner(path, quantize=(mode,)))
    error = ((rounded - exact).norm() / exact.norm()).item()
    assert 1e-4 < error < LOOSEST[mode]


@pytest.mark.parametrize("mode", MODES)
def test_a_plan_counts_the_bytes_that_are_saved(path, mode):
    facts = facts_from_directory(path, "model")
    planned = held_bytes(facts, (), "float32") - held_bytes(facts, (mode,), "float32")
    runner = load_runner(path, quantize=(mode,))
    assert planned > 0
    assert held_by(load_runner(path)) - held_by(runner) == planned


def test_a_plan_counts_a_checkpoint_of_awq(tmp_path):
    awq, plain = write_pair(tmp_path, "qwen2_5_vl")
    facts, floats = facts_from_directory(awq, "awq"), facts_from_directory(plain, "plain")
    assert facts.num_parameters == floats.num_parameters
    planned = held_bytes(floats, (), "float32") - held_bytes(facts, (), "float32")
    assert held_by(load_runner(plain)) - held_by(load_runner(awq)) == planned


def test_two_halves_at_once_save_what_each_of_them_does(path):
    facts = facts_from_directory(path, "model")
    exact, *rounded = (
        held_bytes(facts, modes, "float32")
        for modes in ((), ("int4",), ("vit-int8",), ("int4", "vit-int8"))
    )
    assert exact - rounded[2] == (exact - rounded[0]) + (exact - rounded[1])
    both = load_runner(path, quantize=("int4", "vit-int8"))
    assert held_by(load_runner(path)) - held_by(both) == exact - rounded[2]
    assert logits_of(both).isfinite().all()


def test_a_picture_is_the_same_alone_and_among_others(path):
    runner = load_runner(path, quantize=("vit-int8",))
    rng = np.random.default_rng(3)
    sizes = ((56, 84), (112, 56), (28, 28))
    pictures = [as_input(random_picture(rng, *size, grey=False)) for size in sizes]
    for together, picture in zip(runner.encode(pictures), pictures, strict=True):
        (alone,) = runner.encode([picture])
        # Another order of sums can round an activation to the next number.
        torch.testing.assert_close(together, alone, atol=2e-2, rtol=2e-2)


def test_a_result_of_another_quantisation_is_never_taken_over(path):
    sets = ((), ("int8",), ("int4",), ("vit-int8",), ("int4", "vit-int8"))
    options = [OcrOptions(inputs=(), quantize=modes) for modes in sets]
    found = [find_checkpoint(str(path), one.quantize) for one in options]
    assert len({one.label for one in found}) == len(sets)
    assert found[0].label == find_checkpoint(str(path)).label
    recipes = [job_recipe(one, at) for one, at in zip(options, found, strict=True)]
    same_label = [job_recipe(one, found[0]) for one in options]
    assert len({*recipes, *same_label}) == 2 * len(sets) - 1
