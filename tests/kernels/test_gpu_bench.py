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
    rows=12,
    context=70,
)


def test_every_kernel_is_compared_and_met():
    found = compare_kernels(torch.device("cpu"), SMALL)
    assert all(one.is_met and one.allowed > 0 for one in found), found
    names = {one.name.partition(" ")[0] for one in found}
    assert names == {
        *("rms_norm", "add_rms_norm", "rotary_", "silu_and_mul", "w8a8_linear"),
        *("paged_attention", "varlen_attention"),
    }


@pytest.mark.parametrize("fault", [lambda x: x * 1.2, lambda x: x * float("nan")])
def test_a_kernel_that_is_wrong_is_found(monkeypatch, fault):
    right = triton_ops.silu_and_mul
    monkeypatch.setattr(triton_ops, "silu_and_mul", lambda x: fault(right(x)))
    found = {one.name: one.is_met for one in compare_kernels(torch.device("cpu"), SMALL)}
    assert [name for name, is_met in found.items() if not is_met] == ["silu_and_mul"]
