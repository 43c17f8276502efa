"""The comparison that `bench gpu` makes on a card, tried under the interpreter at small sizes."""

import pytest
import torch

pytest.importorskip("triton")

from vlmcli.bench.gpu_kernels import Sizes, compare_kernels
from vlmcli.kernels import triton_ops

SMALL = Sizes(
    hidden_size=48,
    intermediate_size=40,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    vision_heads=2,
    vision_head_dim=20,
    rows=6,
    context=40,
)


def test_every_kernel_is_compared_and_met():
    found = compare_kernels(torch.device("cpu"), SMALL)
    assert all(one.is_met and one.allowed > 0 for one in found), found
    names = {one.name.partition(" ")[0] for one in found}
    assert names == {
        *("rms_norm", "add_rms_norm", "rotary_", "silu_and_mul", "w8a8_linear"),
        *("paged_attention", "varlen_attention"),
    }


def test_kernels_that_are_wrong_are_found(monkeypatch):
    for name, fault in {"silu_and_mul": 1.2, "rms_norm": float("nan")}.items():
        right = getattr(triton_ops, name)
        monkeypatch.setattr(
            triton_ops, name, lambda *x, right=right, fault=fault: right(*x) * fault
        )
    found = {one.name: one.is_met for one in compare_kernels(torch.device("cpu"), SMALL)}
    assert [name for name, met in found.items() if not met] == ["rms_norm", "silu_and_mul"]
