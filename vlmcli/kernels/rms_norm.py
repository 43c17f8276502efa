"""RMSNorm in Triton, alone and behind the sum with the residual; `reference.rms_norm` defines it.

One program normalises a few whole rows. Refuses rows longer than 65,536.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from vlmcli.kernels.launching import MAX_ROW, OPTIONS, power_of_2, require, require_dense

_TILE = 2048
"""Elements of a program where rows are short."""


@triton.jit
def rms_norm_kernel(
    x: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    num_rows: tl.tensor,
    inner: tl.tensor,
    outer_stride: tl.tensor,
    inner_stride: tl.tensor,
    residual_outer_stride: tl.tensor,
    residual_inner_stride: tl.tensor,
    eps: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    ADDS: tl.constexpr,
) -> None:
    """Rows [outer, inner, WIDTH] by strides to dense rows of `out`; sums go to `residual`."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK)
    mask = (rows < num_rows)[:, None] & (columns < WIDTH)[None, :]
    outer, within = rows // inner, rows % inner
    places = (outer * outer_stride + within * inner_stride)[:, None] + columns[None, :]
    value = tl.load(x + places, mask=mask, other=0.0).to(tl.float32)
    if ADDS:
        places = outer * residual_outer_stride + within * residual_inner_stride
        places = places[:, None] + columns[None, :]
        value += tl.load(residual + places, mask=mask, other=0.0).to(tl.float32)
        total = value.to(residual.dtype.element_ty)
        tl.store(residual + places, total, mask=mask)
        value = total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 1) / WIDTH + eps)
    # Rounded before the weight is applied, as models in half precision were trained.
    normed = (value * scale[:, None]).to(out.dtype.element_ty).to(tl.float32)
    factor = tl.load(weight + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)
    result = (normed * factor[None, :]).to(out.dtype.element_ty)
    tl.store(out + rows[:, None] * WIDTH + columns[None, :], result, mask=mask)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`reference.rms_norm`: [..., n] to a new tensor of the same shape and dtype.

    Raises:
        ValueError: n is above 65,536, or the last dimension has gaps.
    """
    return _launch("rms_norm", x, None, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`reference.add_rms_norm`: adds `x` to `residual` in place, returns the norm of the sum.

    Raises:
        ValueError: n is above 65,536, the last dimension has gaps, or shapes or dtypes differ.
    """
    op = "add_rms_norm"
    require(x.shape == residual.shape, op, f"x is {list(x.shape)}, residual {list(residual.shape)}")
    require(x.dtype == residual.dtype, op, f"x is {x.dtype}, residual {residual.dtype}")
    return _launch(op, x, residual, weight, eps)


def _launch(op: str, x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    width = x.shape[-1]
    require(width <= MAX_ROW, op, f"rows of {width} elements, {MAX_ROW} at most")
    summed = x if residual is None else residual
    require_dense(op, x=x, residual=summed, weight=weight)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    rows, target = (
        t if t.ndim == 3 else t.view(1, -1, width) if t.is_contiguous() else t.flatten(0, -2)[None]
        for t in (x, summed)
    )
    # Only a copy of the residual would be summed up.
    require(target.data_ptr() == summed.data_ptr(), op, f"strides {summed.stride()} of residual")
    num_rows = rows.shape[0] * rows.shape[1]
    block = power_of_2(width)
    block_rows = max(1, min(_TILE // block, power_of_2(num_rows)))
    rms_norm_kernel[(triton.cdiv(num_rows, block_rows),)](
        rows,
        target,
        weight,
        out,
        num_rows,
        rows.shape[1],
        rows.stride(0),
        rows.stride(1),
        target.stride(0),
        target.stride(1),
        eps,
        WIDTH=width,
        BLOCK_ROWS=block_rows,
        BLOCK=block,
        ADDS=residual is not None,
        num_warps=8 if block > 4096 else 4,
        **OPTIONS,
    )
    return out
