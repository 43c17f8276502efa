"""Whole tiny models give the same logits with Triton kernels as with the reference."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_checkpoints import (
    Chunk,
    as_input,
    load_runner,
    make_batch,
    make_prompt,
    random_picture,
    write_checkpoint,
)

pytest.importorskip("triton")

from vlmcli.engine.loader import load_model
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.kernels import linear, load_ops, reference, triton_ops

BLOCK_SIZE = 4
KINDS = (
    "merge2_patch14",
    pytest.param("qwen2_5_vl", marks=pytest.mark.slow),
    pytest.param("qwen3_vl", marks=pytest.mark.slow),
    pytest.param("lighton_ocr", marks=pytest.mark.slow),
)
"""Sectioned positions, windows, normalised heads with DeepStack, rotary patches."""


class Counting:
    """Kernels, and the names of those that a model called."""

    def __init__(self, ops):
        self.ops, self.called = ops, set()

    def __getattr__(self, name):
        self.called.add(name)
        return getattr(self.ops, name)


def with_kernels(runner, ops, **config):
    """The same checkpoint and settings with other kernels."""
    path = runner.path
    model = load_model(path, runner.model_config, ops, torch.float32, torch.device("cpu"))
    settings = replace(runner.config, **config)
    other = ModelRunner(model, runner.model_config, settings, ops, None)
    other.allocate_kv(runner.cache.num_blocks)
    return other


def logits_of(runner, steps):
    return [runner.execute(make_batch(runner, chunks)) for chunks in steps]


@pytest.mark.check("triton")
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_the_references(kind, tmp_path, monkeypatch):
    # In products of many rows the gate is part of them and no kernel of ours.
    monkeypatch.setattr(linear, "_MIN_ROWS", 1 << 30)
    plain = load_runner(write_checkpoint(tmp_path / kind, kind), 24, block_size=BLOCK_SIZE)
    plain.path = tmp_path / kind
    ops = Counting(triton_ops)
    ours = with_kernels(plain, ops, enable_graphs=True, decode_buckets=(1, 4))
    rng = np.random.default_rng(0)
    picture = random_picture(rng, 56, 84, grey=False)
    prompts = [make_prompt(plain, [5, 6, picture, 7, 8]), make_prompt(plain, [9, 10, 11])]
    first, second = [
        (prompt, tuple(range(start, start + 6)))
        for prompt, start in zip(prompts, (1, 9), strict=True)
    ]
    end = len(prompts[0].ids) - 1
    steps = [
        [Chunk(first[0], 0, 5, first[1])],
        [Chunk(first[0], 5, end, first[1]), Chunk(second[0], 0, 2, second[1])],
        [Chunk(first[0], end, end + 1, first[1]), Chunk(second[0], 2, 3, second[1])],
    ]
    for found, expected in zip(logits_of(ours, steps), logits_of(plain, steps), strict=True):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    assert ops.called >= {
        *("rms_norm", "rotary_", "silu_and_mul", "store_kv", "varlen_attention"),
        *("plan_paged", "plan_decode", "paged_attention"),
    }


@pytest.mark.parametrize("kind", ["merge2_patch14", "qwen2_5_vl"])
def test_products_that_round_their_inputs_are_the_kernels(kind, tmp_path):
    """Those of plain and of gated MLPs, and of attention."""
    path = write_checkpoint(tmp_path / kind, kind)
    plain = load_runner(path, 24, quantize=("vit-int8",))
    plain.path = path
    ops = Counting(triton_ops)
    ours = with_kernels(plain, ops)
    ops.called.clear()
    picture = as_input(random_picture(np.random.default_rng(0), 56, 84, grey=False))
    (found,), (expected,) = ours.encode([picture]), plain.encode([picture])
    assert "w8a8_linear" in ops.called
    # Another order of sums can round an activation to the next number.
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)


def test_kernels_are_chosen_by_device(monkeypatch, caplog):
    assert load_ops("cpu") is reference
    assert load_ops("cuda") is triton_ops
    assert not caplog.records
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr("vlmcli.kernels.find_spec", lambda name: None)
    assert load_ops("cuda") is reference
    assert "Triton is not installed" in caplog.text
