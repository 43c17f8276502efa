"""Products of 8-bit weights and activations in Triton; `reference.w8a8_linear` defines them.

Two kernels: one rounds each row of the activations to int8 with a scale of its own, the other
multiplies integers and applies scales and bias to the sums. Refuses inputs so wide that a sum would
leave 32 bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from vlmcli.kernels.launching import MAX_ROW, OPTIONS, power_of_2, require, require_dense
from vlmcli.kernels.store_kv import round_to_int8

_OP = "w8a8_linear"
_BLOCK_ROWS = 64
_LEAST_ROWS = 16
_BLOCK_OUT = 64
_BLOCK_IN = 128


@triton.jit
def round_rows_kernel(
    x: tl.tensor,
    rows: tl.tensor,
    scales: tl.tensor,
    row_stride: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One row of [M, WIDTH] to int8 and its scale."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < WIDTH
    value = tl.load(x + row * row_stride + columns, mask=mask, other=0.0).to(tl.float32)
    rounded, scale = round_to_int8(value[None, :])
    tl.store(rows + row * WIDTH + columns[None, :], rounded, mask=mask[None, :])
    tl.store(scales + row + tl.arange(0, 1), scale)


@triton.jit
def w8a8_linear_kernel(
    x: tl.tensor,
    x_scales: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    num_out: tl.tensor,
    num_in: tl.tensor,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
) -> None:
    """A tile of [M, out]; `x` [M, in] and `weight` [out, in] are int8 and dense."""
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    outs = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    is_row, is_out = rows < num_rows, outs < num_out
    x_rows = x + rows.to(tl.int64)[:, None] * num_in
    weight_rows = weight + outs.to(tl.int64)[:, None] * num_in
    acc = tl.zeros([BLOCK_ROWS, BLOCK_OUT], dtype=tl.int32)
    for begin in range(0, num_in, BLOCK_IN):
        columns = begin + tl.arange(0, BLOCK_IN)
        is_in = (columns < num_in)[None, :]
        a = tl.load(x_rows + columns[None, :], mask=is_row[:, None] & is_in, other=0)
        b = tl.load(weight_rows + columns[None, :], mask=is_out[:, None] & is_in, other=0)
        acc = tl.dot(a, tl.trans(b), acc, out_dtype=tl.int32)
    row_scale = tl.load(x_scales + rows, mask=is_row, other=0.0)
    out_scale = tl.load(scales + outs, mask=is_out, other=0.0)
    result = acc.to(tl.float32) * row_scale[:, None] * out_scale[None, :]
    if HAS_BIAS:
        result += tl.load(bias + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
    at = rows.to(tl.int64)[:, None] * num_out + outs[None, :]
    mask = is_row[:, None] & is_out[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=mask)


def w8a8_linear(x: Tensor, weight: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """`reference.w8a8_linear`: [M, in] by [out, in] int8 to [M, out].

    Raises:
        ValueError: more than 65,536 inputs, shapes that do not fit, a weight that is not int8 or
            not dense.
    """
    require(x.ndim == 2, _OP, f"x is {list(x.shape)}, not [M, in]")
    num_rows, num_in = x.shape
    num_out = weight.shape[0]
    require(num_in <= MAX_ROW, _OP, f"{num_in} inputs, {MAX_ROW} at most")
    require(weight.dtype == torch.int8, _OP, f"weight is {weight.dtype}, not int8")
    shape = [num_out, num_in]
    require(list(weight.shape) == shape, _OP, f"weight is {list(weight.shape)}, not {shape}")
    require(weight.is_contiguous(), _OP, f"strides {weight.stride()} of the weight")
    require(list(scales.shape) == [num_out], _OP, f"scales are {list(scales.shape)}")
    require_dense(_OP, x=x, scales=scales)
    out = torch.empty(num_rows, num_out, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    rows = torch.empty(num_rows, num_in, dtype=torch.int8, device=x.device)
    steps = torch.empty(num_rows, dtype=torch.float32, device=x.device)
    round_rows_kernel[(num_rows,)](
        x, rows, steps, x.stride(0), WIDTH=num_in, BLOCK=power_of_2(num_in), **OPTIONS
    )
    block_rows = min(_BLOCK_ROWS, power_of_2(num_rows, _LEAST_ROWS))
    w8a8_linear_kernel[(triton.cdiv(num_rows, block_rows), triton.cdiv(num_out, _BLOCK_OUT))](
        rows,
        steps,
        weight,
        scales,
        scales if bias is None else bias,
        out,
        num_rows,
        num_out,
        num_in,
        BLOCK_ROWS=block_rows,
        BLOCK_OUT=_BLOCK_OUT,
        BLOCK_IN=_BLOCK_IN,
        HAS_BIAS=bias is not None,
        **OPTIONS,
    )
    return out
