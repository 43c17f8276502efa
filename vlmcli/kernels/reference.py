"""Every operation in plain torch: what other kernels are tested against, and the CPU path.

Attention, the longest of them, stands in `reference_attention`, products in `linear`; both are
offered here as well.
Promises no speed on a GPU.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vlmcli.kernels.kv_store import KVStore, store_rows
from vlmcli.kernels.linear import w8a8_linear as w8a8_linear
from vlmcli.kernels.reference_attention import paged_attention as paged_attention
from vlmcli.kernels.reference_attention import plan_decode as plan_decode
from vlmcli.kernels.reference_attention import plan_paged as plan_paged
from vlmcli.kernels.reference_attention import varlen_attention as varlen_attention
from vlmcli.kernels.segments import make_segments as make_segments


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) * weight over the last dimension, in float32 inside.

    Args:
        x: [..., n], any floating dtype.
        weight: [n].
        eps: added to the mean square.

    Returns:
        A new tensor of the shape and dtype of `x`.
    """
    wide = x if x.dtype == torch.float32 else x.float()
    scale: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    scale = scale.square_().mul_(1.0 / x.shape[-1]).add_(eps).rsqrt_()
    normed = wide * scale
    if x.dtype == torch.float32:
        return normed.mul_(weight)
    return normed.to(x.dtype).mul_(weight)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Add `x` to `residual` in place and return `rms_norm` of the sum; shapes as in `rms_norm`."""
    return rms_norm(residual.add_(x), weight, eps)


def has_adjacent_rotary(dtype: torch.dtype, device_type: str) -> bool:
    """Whether pairs should lie side by side: in float32 on the CPU.

    Pairs side by side are complex numbers, and one vectorised complex product (65 µs for 1,024
    tokens × 6 heads × 32) replaces five passes over half heads (265 µs).
    """
    return dtype == torch.float32 and device_type == "cpu"


def rotary_(x: Tensor, cos: Tensor, sin: Tensor, *, adjacent: bool) -> None:
    """Rotate pair (a, b) of each head to (a·cos − b·sin, b·cos + a·sin), in place.

    Pair i is (i, i + d/2) of a head of d elements, as in GPT-NeoX, or (2i, 2i + 1) if `adjacent`,
    as in the RoFormer paper (Su et al. 2021).

    Args:
        x: [T, heads, d]; a strided view of a larger tensor will do, the last dimension dense.
        cos: [T, d/2]; sectioned (M-RoPE) positions are in there already.
        sin: [T, d/2].
        adjacent: which elements are a pair.
    """
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    if adjacent and x.dtype == torch.float32:
        pairs = torch.view_as_complex(x.view(*x.shape[:-1], x.shape[-1] // 2, 2))
        pairs.mul_(torch.complex(cos, sin))
        return
    if adjacent:
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = x.chunk(2, dim=-1)
    crossed = first * sin
    first.mul_(cos).addcmul_(second, sin, value=-1)
    second.mul_(cos).add_(crossed)


def silu_and_mul(x: Tensor) -> Tensor:
    """silu(gate) * up for `x` = [T, gate ‖ up]: [T, 2n] to a new [T, n]."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def store_kv(
    key: Tensor,
    value: Tensor,
    key_cache: KVStore,
    value_cache: KVStore,
    slot_mapping: Tensor,
) -> None:
    """Write one step's keys and values into the paged cache.

    Args:
        key: [T, kv_heads, d].
        value: [T, kv_heads, d].
        key_cache: [num_blocks, block_size, kv_heads, d], written in place; or a plane, where they
            are stored in other formats.
        value_cache: the same for values.
        slot_mapping: [T] int64, block × block_size + offset; rows with −1 are written nowhere.
    """
    store_rows(key_cache, key, slot_mapping)
    store_rows(value_cache, value, slot_mapping)
