"""Products with what follows them fused, against the same thing said in plain float64."""

from typing import get_args
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmcli.kernels import Activation, packed
from vlmcli.kernels import linear as products
from vlmcli.kernels.packed import HAS_ONEDNN

WAYS = st.sampled_from(sorted({HAS_ONEDNN, False}))
"""Whether oneDNN is asked: this processor alone would decide for one way."""
FEW = settings(max_examples=40, deadline=None)
ROWS = st.sampled_from([0, 1, 2, 15, 16, 17, 64, 129])
SIZES = st.sampled_from([1, 3, 8, 31, 96])
ACTIVATIONS = (None, *get_args(Activation))


def activated(x: torch.Tensor, kind: Activation | None) -> torch.Tensor:
    if kind is None:
        return x
    if kind == "quick_gelu":
        return x * torch.sigmoid(1.702 * x)
    return (
        F.silu(x) if kind == "silu" else F.gelu(x, approximate="tanh" if "tanh" in kind else "none")
    )


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got.double(), expected, atol=2e-5, rtol=2e-5)


@FEW
@given(ROWS, SIZES, SIZES, st.booleans(), st.sampled_from(ACTIVATIONS), WAYS, st.integers(0, 99))
def test_a_product_is_its_formula(rows, size, out, has_bias, kind, fuses, seed):
    torch.manual_seed(seed)
    x, weight = torch.randn(rows, size), torch.randn(out, size) / size**0.5
    bias = torch.randn(out) if has_bias else None
    kept = x.clone()
    wide = None if bias is None else bias.double()
    expected = activated(F.linear(x.double(), weight.double(), wide), kind)
    with patch.object(products, "FUSES", fuses):
        close(products.linear(x, weight, bias, kind), expected)
    assert torch.equal(x, kept)


@FEW
@given(ROWS, SIZES, SIZES, st.booleans(), WAYS, st.integers(0, 99))
def test_a_sum_is_its_formula(rows, size, out, has_bias, fuses, seed):
    torch.manual_seed(seed)
    x, weight, residual = (
        torch.randn(rows, size),
        torch.randn(out, size) / size**0.5,
        torch.randn(rows, out),
    )
    bias = torch.randn(out) if has_bias else None
    wide = None if bias is None else bias.double()
    expected = residual.double() + F.linear(x.double(), weight.double(), wide)
    with patch.object(products, "FUSES", fuses):
        close(products.linear_add(residual, x, weight, bias), expected)


@FEW
@given(st.sampled_from([16, 17, 130]), SIZES, SIZES, st.booleans(), WAYS, st.integers(0, 99))
def test_a_gate_is_its_formula_or_left_to_others(rows, size, half, has_bias, fuses, seed):
    torch.manual_seed(seed)
    x, weight = torch.randn(rows, size), torch.randn(2 * half, size) / size**0.5
    bias = torch.randn(2 * half) if has_bias else None
    wide = None if bias is None else bias.double()
    gate, up = F.linear(x.double(), weight.double(), wide).chunk(2, dim=-1)
    with patch.object(products, "FUSES", fuses):
        got = products.gated_linear(x, weight, bias)
        assert got is not None
        close(got, F.silu(gate) * up)
        assert products.gated_linear(x[:1], weight, bias) is None


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_parts_of_larger_tensors_and_other_dtypes_are_taken(kind):
    torch.manual_seed(1)
    whole, weight, bias = torch.randn(40, 64), torch.randn(24, 32), torch.randn(24)
    x = whole[:, 16:48]
    expected = activated(F.linear(x.double(), weight.double(), bias.double()), kind)
    close(products.linear(x, weight, bias, kind), expected)
    turned = weight.t().contiguous().t()
    close(products.linear(x, turned, bias, kind), expected)
    half = products.linear(x.bfloat16(), weight.bfloat16(), bias.bfloat16(), kind)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), expected, atol=0.2, rtol=0.05)


def test_both_ways_give_the_same(monkeypatch):
    torch.manual_seed(2)
    x, weight, bias = torch.randn(50, 32), torch.randn(24, 32), torch.randn(24)
    ways = []
    for fuses in (HAS_ONEDNN, False):
        monkeypatch.setattr(products, "FUSES", fuses)
        ways.append([products.linear(x, weight, bias, kind) for kind in ACTIVATIONS])
        ways[-1].append(products.linear_add(torch.ones(50, 24), x, weight, bias))
    for one, other in zip(*ways, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@FEW
@given(st.sampled_from([1, 2, 17, 130]), SIZES, SIZES, st.booleans(), st.integers(0, 99))
@pytest.mark.skipif(not HAS_ONEDNN, reason="torch without oneDNN packs nothing")
def test_a_packed_gate_is_its_formula(rows, size, half, fuses, seed):
    torch.manual_seed(seed)
    x, weight = torch.randn(rows, size), torch.randn(2 * half, size) / size**0.5
    gate, up = F.linear(x.double(), weight.double()).chunk(2, dim=-1)
    with patch.object(packed, "FUSES", fuses):
        got = products.gated_linear(x, packed.PackedWeight(weight, half), None)
    assert got is not None
    close(got, F.silu(gate) * up)
