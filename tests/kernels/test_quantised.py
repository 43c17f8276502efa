"""Matrices in fewer bits: rounding errors within their bounds, products as their formulas say."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from vlmcli.engine.weight_formats import WeightFormat, matrix_bytes
from vlmcli.kernels import linear as products
from vlmcli.kernels import quantised
from vlmcli.kernels.quantised import GroupedInt4Weight, Int8Weight

FEW = settings(max_examples=40, deadline=None)
WIDTHS = st.sampled_from([1, 2, 5, 31, 32, 33, 96, 130])
ROWS = st.sampled_from([0, 1, 3, 16, 40])
SEEDS = st.integers(0, 99)


def values_of(weight) -> torch.Tensor:
    """The matrix as it is held, in float64."""
    values = weight.piece(0, weight.out_features, torch.float32).double()
    scales = weight.row_scales
    return values if scales is None else values * scales.double().unsqueeze(1)


def random_matrix(out: int, width: int, seed: int) -> torch.Tensor:
    """Rows of very unlike size, one of zeros, one without a sign."""
    torch.manual_seed(seed)
    matrix = torch.randn(out, width) * torch.logspace(-4, 2, out).unsqueeze(1)
    matrix[out // 2] = 0
    matrix[out // 3] = matrix[out // 3].abs() + 3
    return matrix


def int8(matrix: torch.Tensor, *, rounds_inputs: bool = False) -> Int8Weight:
    weight = Int8Weight(*matrix.shape, rounds_inputs=rounds_inputs)
    weight.fill(0, matrix)
    return weight


def int4(matrix: torch.Tensor, group_size: int) -> GroupedInt4Weight:
    weight = GroupedInt4Weight(*matrix.shape, group_size)
    weight.fill(0, matrix)
    return weight


@FEW
@given(WIDTHS, SEEDS)
def test_int8_errs_by_half_a_step_of_its_row(width, seed):
    matrix = random_matrix(7, width, seed)
    bound = matrix.double().abs().amax(1, keepdim=True) / 127 / 2
    assert ((values_of(int8(matrix)) - matrix).abs() <= bound * (1 + 1e-5)).all()


@FEW
@given(WIDTHS, st.sampled_from([1, 4, 32, 128]), SEEDS)
def test_int4_errs_by_a_step_of_its_group(width, group_size, seed):
    matrix = random_matrix(7, width, seed)
    errors = (values_of(int4(matrix, group_size)) - matrix).abs()
    for begin in range(0, width, group_size):
        group = matrix[:, begin : begin + group_size].double()
        # Half a step, and as much where rounding the zero moves the ends of the range.
        step = (group.amax(1).clamp(min=0) - group.amin(1).clamp(max=0)) / 15
        worst = errors[:, begin : begin + group_size].amax(1)
        assert (worst <= step * (1 + 1e-5)).all()


@FEW
@given(WIDTHS, st.sampled_from([1, 4, 32, 128]), SEEDS)
def test_codes_come_back_as_they_were_put(width, group_size, seed):
    torch.manual_seed(seed)
    weight = GroupedInt4Weight(6, width, group_size)
    codes = torch.randint(0, 16, (6, width), dtype=torch.uint8)
    weight.scales.fill_(1)
    weight.zeros.fill_(7)
    weight.put_codes(0, codes[:2])
    weight.put_codes(2, codes[2:])
    assert torch.equal(values_of(weight), codes.double() - 7)


@FEW
@given(ROWS, WIDTHS, st.booleans(), st.sampled_from(["int8", "int4"]), SEEDS)
def test_a_product_is_that_of_the_values_held(rows, width, has_bias, kind, seed):
    matrix = random_matrix(9, width, seed)
    weight = int8(matrix) if kind == "int8" else int4(matrix, 32)
    x = torch.randn(rows, width)
    bias = torch.randn(9) if has_bias else None
    expected = x.double() @ values_of(weight).t() + (0 if bias is None else bias.double())
    tolerance = {"atol": 1e-3, "rtol": 2e-5}
    got = products.linear(x, weight, bias)
    torch.testing.assert_close(got.double(), expected, **tolerance)
    residual = torch.randn(rows, 9)
    total = products.linear_add(residual.clone(), x, weight, bias)
    torch.testing.assert_close(total.double(), expected + residual, **tolerance)
    assert products.gated_linear(x, weight, bias) is None
    silu = products.linear(x, weight, bias, "silu")
    torch.testing.assert_close(silu.double(), expected * expected.sigmoid(), **tolerance)


@pytest.mark.parametrize("make", [int8, lambda matrix: int4(matrix, 32)])
def test_pieces_change_nothing_but_the_memory_taken(make, monkeypatch):
    matrix = random_matrix(50, 70, 0)
    x = torch.randn(5, 70)
    whole = make(matrix)
    monkeypatch.setattr(quantised, "PIECE", 300)
    cut = make(matrix)
    assert torch.equal(values_of(cut), values_of(whole))
    torch.testing.assert_close(
        products.linear(x, cut, None).double(),
        x.double() @ values_of(whole).t(),
        atol=1e-3,
        rtol=2e-5,
    )


@FEW
@given(st.integers(1, 40), st.integers(1, 300), st.sampled_from([1, 7, 128]))
def test_bytes_are_those_of_the_formula(out, width, group_size):
    for kind in ("int8", "w8a8", "int4", "awq"):
        stored = WeightFormat(kind, group_size)
        weight = (
            GroupedInt4Weight(out, width, group_size)
            if stored.is_packed
            else Int8Weight(out, width, rounds_inputs=False)
        )
        assert sum(one.nbytes for one in weight.buffers()) == matrix_bytes(stored, out, width)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_keep_their_dtype(dtype):
    matrix = random_matrix(9, 64, 0) / 100
    x = torch.randn(4, 64, dtype=dtype)
    for weight in (int8(matrix), int4(matrix, 32)):
        got = products.linear(x, weight, torch.zeros(9, dtype=dtype))
        assert got.dtype == dtype
        expected = x.double() @ values_of(weight).t()
        torch.testing.assert_close(got.double(), expected, atol=0.05, rtol=0.03)


class LargestFloat(TorchDispatchMode):
    """Numbers in the largest floating tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.is_floating_point():
            self.found = max(self.found, made.numel() if made._base is None else 0)
        return made


@pytest.mark.parametrize("make", [int8, lambda matrix: int4(matrix, 32)])
def test_no_more_than_a_piece_is_ever_in_floating_point(make, monkeypatch):
    monkeypatch.setattr(quantised, "PIECE", 300)
    matrix = random_matrix(50, 70, 0).bfloat16()
    with LargestFloat() as largest:
        weight = make(matrix)
        products.linear(torch.ones(1, 70), weight, None)
    assert 50 <= largest.found <= 300


@FEW
@given(ROWS, WIDTHS, st.booleans(), SEEDS)
def test_w8a8_is_whole_numbers_times_scales(rows, width, has_bias, seed):
    matrix = random_matrix(9, width, seed)
    weight = int8(matrix, rounds_inputs=True)
    x = torch.randn(rows, width) * torch.logspace(-3, 3, rows).unsqueeze(1)
    steps = x.double().abs().amax(1) / 127
    safe = steps.clamp(min=1e-30).unsqueeze(1)
    codes = (x.double() / safe).round()
    expected = (codes @ weight.data.double().t()) * steps.unsqueeze(1) * weight.row_scales.double()
    bias = torch.randn(9) if has_bias else None
    if bias is not None:
        expected += bias.double()
    got = products.linear(x, weight, bias).double()
    # Where a quotient lies between two numbers, float32 may take the other one.
    slack = steps.unsqueeze(1) * weight.row_scales.double() * 127
    assert ((got - expected).abs() <= slack + expected.abs() * 1e-5 + 1e-6).all()
    between = ((x.double() / safe) % 1 - 0.5).abs().amin() if rows else 1
    if between > 1e-4:
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("width", [64, 3000])
def test_w8a8_in_pieces(width, monkeypatch):
    x, weight = torch.randn(40, width), int8(torch.randn(50, width), rounds_inputs=True)
    whole = products.linear(x, weight, None)
    monkeypatch.setattr(quantised, "PIECE", 10 * width)
    torch.testing.assert_close(products.linear(x, weight, None), whole, atol=1e-3, rtol=1e-5)
