"""Kernels that work row by row, under Triton's interpreter, against the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_cases import assert_no_worse

pytest.importorskip("triton")

from vlmcli.kernels import reference, triton_ops

FEW = settings(max_examples=12, deadline=None)
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
ROWS = st.sampled_from([0, 1, 3, 17])
WIDTHS = st.sampled_from([1, 2, 7, 32, 33, 130])
SEEDS = st.integers(0, 99)


def wide(*tensors):
    """Copies in float64."""
    return [tensor.to(torch.float64, copy=True) for tensor in tensors]


def normed(x, weight):
    """`rms_norm` by its formula, in float64."""
    x, weight = wide(x, weight)
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


@FEW
@given(ROWS, WIDTHS, DTYPES, SEEDS)
def test_rms_norm(rows, width, dtype, seed):
    torch.manual_seed(seed)
    x, weight = torch.randn(rows, width).to(dtype), torch.randn(width).to(dtype)
    torchs = reference.rms_norm(x, weight, 1e-6)
    exact = normed(x, weight)
    assert_no_worse(triton_ops.rms_norm(x, weight, 1e-6), torchs, exact)


@FEW
@given(ROWS, WIDTHS, DTYPES, SEEDS)
def test_rms_norm_of_heads_inside_a_larger_tensor(rows, width, dtype, seed):
    torch.manual_seed(seed)
    whole, weight = torch.randn(rows, 7, width).to(dtype), torch.randn(width).to(dtype)
    heads = whole[:, 2:5]
    torchs = reference.rms_norm(heads, weight, 1e-6)
    exact = normed(heads, weight)
    assert_no_worse(triton_ops.rms_norm(heads, weight, 1e-6), torchs, exact)


@FEW
@given(ROWS, WIDTHS, DTYPES, SEEDS)
def test_add_rms_norm_changes_the_residual_and_nothing_else(rows, width, dtype, seed):
    torch.manual_seed(seed)
    x, stream = torch.randn(rows, width).to(dtype), torch.randn(rows, 2 * width).to(dtype)
    weight = torch.randn(width).to(dtype)
    residual, other = stream[:, :width], stream[:, width:].clone()
    torchs_sum, exact_sum = residual.clone(), x.double() + residual.double()
    torchs = reference.add_rms_norm(x, torchs_sum, weight, 1e-6)
    exact = normed(exact_sum, weight)
    ours = triton_ops.add_rms_norm(x, residual, weight, 1e-6)
    assert_no_worse(residual.clone(), torchs_sum, exact_sum)
    assert_no_worse(ours, torchs, exact)
    assert torch.equal(stream[:, width:], other)


@FEW
@given(ROWS, st.sampled_from([1, 3, 8]), WIDTHS, DTYPES, st.booleans(), SEEDS)
def test_rotary_turns_the_heads_it_is_given(tokens, heads, half, dtype, adjacent, seed):
    torch.manual_seed(seed)
    x, angles = torch.randn(tokens, heads + 2, 2 * half).to(dtype), torch.randn(tokens, half)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    ours, torchs, (exact,) = x.clone(), x.clone(), wide(x)
    triton_ops.rotary_(ours[:, :heads], cos, sin, adjacent=adjacent)
    reference.rotary_(torchs[:, :heads], cos, sin, adjacent=adjacent)
    reference.rotary_(exact[:, :heads], *wide(cos, sin), adjacent=adjacent)
    assert_no_worse(ours, torchs, exact)
    assert torch.equal(ours[:, heads:], x[:, heads:])


@FEW
@given(ROWS, WIDTHS, DTYPES, SEEDS)
def test_silu_and_mul(rows, half, dtype, seed):
    torch.manual_seed(seed)
    whole = (4 * torch.randn(rows, 2 * half + 3)).to(dtype)
    x = whole[:, : 2 * half]
    exact = reference.silu_and_mul(x.double())
    assert_no_worse(triton_ops.silu_and_mul(x), reference.silu_and_mul(x), exact)


@FEW
@given(ROWS, WIDTHS, st.sampled_from([1, 5, 70]), DTYPES, st.booleans(), SEEDS)
def test_w8a8_linear(rows, num_in, num_out, dtype, has_bias, seed):
    torch.manual_seed(seed)
    x = torch.randn(rows, num_in) * 10.0 ** torch.randint(-2, 3, (rows, 1))
    x[torch.rand(rows) < 0.2] = 0
    x = x.to(dtype)
    weight = torch.randint(-127, 128, (num_out, num_in), dtype=torch.int8)
    scales = torch.rand(num_out) / 100
    bias = torch.randn(num_out).to(dtype) if has_bias else None
    torchs = reference.w8a8_linear(x, weight, scales, bias)
    exact = reference.w8a8_linear(x.float(), weight, scales, bias)
    assert_no_worse(triton_ops.w8a8_linear(x, weight, scales, bias), torchs, exact)


def test_w8a8_linear_is_the_product_but_for_rounding():
    """Against the product of unrounded numbers: half a step of each factor, summed as noise."""
    torch.manual_seed(0)
    x, weight = torch.randn(40, 200), torch.randn(30, 200) / 200**0.5
    from vlmcli.kernels.kv_store import quantise

    exact = x.double() @ weight.double().t()
    ours = triton_ops.w8a8_linear(x, *quantise(weight), None)
    assert (ours - exact).abs().max() < 0.05 * exact.abs().max()
    assert (ours - exact).abs().max() > 0


REFUSALS = {
    "rms_norm: rows of 70000": lambda: triton_ops.rms_norm(
        torch.ones(1, 70_000), torch.ones(70_000), 1e-6
    ),
    "rms_norm: last stride of x is 2": lambda: triton_ops.rms_norm(
        torch.ones(3, 8)[:, ::2], torch.ones(4), 1e-6
    ),
    "add_rms_norm: x is": lambda: triton_ops.add_rms_norm(
        torch.ones(3, 4), torch.ones(2, 4), torch.ones(4), 1e-6
    ),
    "rotary_: heads of 5": lambda: triton_ops.rotary_(
        torch.ones(1, 1, 5), torch.ones(1, 2), torch.ones(1, 2), adjacent=False
    ),
    r"rotary_: sin is \[1, 3\]": lambda: triton_ops.rotary_(
        torch.ones(1, 1, 4), torch.ones(1, 2), torch.ones(1, 3), adjacent=False
    ),
    "silu_and_mul: width 5": lambda: triton_ops.silu_and_mul(torch.ones(2, 5)),
    "w8a8_linear: weight is torch.float32": lambda: triton_ops.w8a8_linear(
        torch.ones(2, 4), torch.ones(3, 4), torch.ones(3), None
    ),
    "w8a8_linear: 70000 inputs": lambda: triton_ops.w8a8_linear(
        torch.ones(1, 70_000), torch.ones(1, 70_000, dtype=torch.int8), torch.ones(1), None
    ),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_what_a_kernel_cannot_do_it_names(message):
    with pytest.raises(ValueError, match=message):
        REFUSALS[message]()
