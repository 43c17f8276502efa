"""The gate of a gated MLP in Triton; `reference.silu_and_mul` defines it.

Rounds where plain torch rounds: behind the silu and behind the product. Refuses an odd width.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from vlmcli.kernels.launching import OPTIONS, power_of_2, require, require_dense

_BLOCK = 1024


@triton.jit
def silu_and_mul_kernel(
    x: tl.tensor,
    out: tl.tensor,
    row_stride: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """One piece of one row of [T, gate ‖ up]."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    dtype = out.dtype.element_ty
    gate = tl.load(x + row * row_stride + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x + row * row_stride + width + columns, mask=mask, other=0.0).to(tl.float32)
    silu = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(out + row * width + columns, (silu * up).to(dtype), mask=mask)


def silu_and_mul(x: Tensor) -> Tensor:
    """`reference.silu_and_mul`: [T, 2n] to a new [T, n].

    Raises:
        ValueError: the width is odd, or the last dimension has gaps.
    """
    op = "silu_and_mul"
    require(x.ndim == 2, op, f"x is {list(x.shape)}, not [T, 2n]")
    require(x.shape[1] % 2 == 0, op, f"width {x.shape[1]} is odd")
    require_dense(op, x=x)
    tokens, width = x.shape[0], x.shape[1] // 2
    out = torch.empty(tokens, width, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    block = min(_BLOCK, power_of_2(width))
    silu_and_mul_kernel[(tokens, triton.cdiv(width, block))](
        x, out, x.stride(0), width, BLOCK=block, **OPTIONS
    )
    return out
