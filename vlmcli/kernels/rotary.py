"""Rotary positions in Triton, in place; `reference.rotary_` defines them.

Cosines and sines come ready, so 1-D, sectioned and interleaved positions (M-RoPE) are all alike
here. Angles are float32 inside, whatever the dtype: one rounding where plain torch has three.
Refuses heads of odd size.
"""

import triton
import triton.language as tl
from torch import Tensor

from vlmcli.kernels.launching import OPTIONS, power_of_2, require, require_dense

_TILE = 2048
"""Pairs of a program at most, unless one head has more."""


@triton.jit
def rotary_kernel(
    x: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    num_heads: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    cos_stride: tl.tensor,
    sin_stride: tl.tensor,
    HALF: tl.constexpr,
    ADJACENT: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Some heads of one token of [T, heads, 2 · HALF]."""
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    pairs = tl.arange(0, BLOCK)
    is_pair = pairs < HALF
    mask = (heads < num_heads)[:, None] & is_pair[None, :]
    if ADJACENT:
        places, gap = 2 * pairs, 1
    else:
        places, gap = pairs, HALF
    first = x + token * token_stride + heads[:, None] * head_stride + places[None, :]
    c = tl.load(cos + token * cos_stride + pairs, mask=is_pair, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + token * sin_stride + pairs, mask=is_pair, other=0.0).to(tl.float32)[None, :]
    a = tl.load(first, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(first + gap, mask=mask, other=0.0).to(tl.float32)
    dtype = x.dtype.element_ty
    tl.store(first, (a * c - b * s).to(dtype), mask=mask)
    tl.store(first + gap, (b * c + a * s).to(dtype), mask=mask)


def rotary_(x: Tensor, cos: Tensor, sin: Tensor, *, adjacent: bool) -> None:
    """`reference.rotary_`: rotates [T, heads, d] by [T, d/2], in place.

    Raises:
        ValueError: d is odd, angles have another shape, or a last dimension has gaps.
    """
    op = "rotary_"
    tokens, heads, width = x.shape
    require(width % 2 == 0, op, f"heads of {width} elements, an odd number")
    shape = (tokens, width // 2)
    require(cos.shape == shape, op, f"cos is {list(cos.shape)}, not {list(shape)}")
    require(sin.shape == shape, op, f"sin is {list(sin.shape)}, not {list(shape)}")
    require_dense(op, x=x, cos=cos, sin=sin)
    if x.numel() == 0:
        return
    block = power_of_2(width // 2)
    block_heads = min(power_of_2(heads), max(1, _TILE // block))
    rotary_kernel[(tokens, triton.cdiv(heads, block_heads))](
        x,
        cos,
        sin,
        heads,
        x.stride(0),
        x.stride(1),
        cos.stride(0),
        sin.stride(0),
        HALF=width // 2,
        ADJACENT=adjacent,
        BLOCK_HEADS=block_heads,
        BLOCK=block,
        **OPTIONS,
    )
