"""Keys and values to their slots of the paged cache, in Triton; `reference.store_kv` defines it.

One program stores all heads of one token, rounded to int8 with a scale per head where a plane wants
that. Every launch serves one part of a plane: a program whose slot lies in another part, or is −1,
ends. Refuses caches that are not dense and heads that do not fit one program.
"""

import triton
import triton.language as tl
from torch import Tensor

from vlmcli.kernels.kv_store import KVPart, KVStore
from vlmcli.kernels.launching import OPTIONS, power_of_2, require, require_dense

_MAX_TILE = 16_384
"""Elements of one token's keys, padded to powers of two, that a program can hold."""


@triton.jit
def round_to_int8(rows: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Symmetric int8 per row of a float32 tile [R, D], as `kv_store.quantise`: values, scales."""
    scale = tl.div_rn(tl.max(tl.abs(rows), 1), 127.0)
    steps = tl.where(scale > 0, scale, 1.0)
    # Adding 1.5 · 2²³ leaves no bits behind the point: rounds half to even, as torch does.
    rounded = (tl.div_rn(rows, tl.broadcast_to(steps[:, None], rows.shape)) + 12582912.0) - (
        12582912.0
    )
    return rounded.to(tl.int8), scale


@triton.jit
def store_kv_kernel(
    key: tl.tensor,
    value: tl.tensor,
    key_data: tl.tensor,
    value_data: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    slots: tl.tensor,
    first: tl.tensor,
    end: tl.tensor,
    shift: tl.tensor,
    key_token_stride: tl.tensor,
    key_head_stride: tl.tensor,
    value_token_stride: tl.tensor,
    value_head_stride: tl.tensor,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    IS_INT8: tl.constexpr,
) -> None:
    """One token's keys (grid axis 1: 0) or values (1); slot s is row s + shift of the part."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if (slot >= first) & (slot < end):
        heads, dims = tl.arange(0, BLOCK_HEADS), tl.arange(0, BLOCK_DIM)
        is_head = heads < HEADS
        mask = is_head[:, None] & (dims < DIM)[None, :]
        if tl.program_id(1) == 0:
            source = key + token * key_token_stride + heads[:, None] * key_head_stride
            target, scales = key_data, key_scales
        else:
            source = value + token * value_token_stride + heads[:, None] * value_head_stride
            target, scales = value_data, value_scales
        rows = tl.load(source + dims[None, :], mask=mask, other=0.0)
        places = (slot + shift) * HEADS + heads
        if IS_INT8:
            rounded, steps = round_to_int8(rows.to(tl.float32))
            tl.store(target + places[:, None] * DIM + dims[None, :], rounded, mask=mask)
            tl.store(scales + places, steps, mask=is_head)
        else:
            stored = rows.to(key_data.dtype.element_ty)
            tl.store(target + places[:, None] * DIM + dims[None, :], stored, mask=mask)


def store_kv(
    key: Tensor, value: Tensor, key_cache: KVStore, value_cache: KVStore, slot_mapping: Tensor
) -> None:
    """`reference.store_kv`: [T, kv_heads, d] to slots [T]; slot −1 writes nowhere.

    Raises:
        ValueError: a head's elements are not dense, a cache is not, or its heads are others.
    """
    require_dense("store_kv", key=key, value=value, slot_mapping=slot_mapping)
    if isinstance(key_cache, Tensor):
        assert isinstance(value_cache, Tensor)
        _store(key, value, KVPart(key_cache), KVPart(value_cache), slot_mapping, 0, 0)
        return
    assert not isinstance(value_cache, Tensor)
    _store(key, value, key_cache.text, value_cache.text, slot_mapping, 0, 0)
    if key_cache.vision is None:
        return
    assert value_cache.vision is not None
    blocks, block_size = key_cache.text.data.shape[:2]
    first = blocks * block_size
    _store(
        key,
        value,
        key_cache.vision,
        value_cache.vision,
        slot_mapping,
        first,
        block_size - first,
    )


def _store(
    key: Tensor,
    value: Tensor,
    keys: KVPart,
    values: KVPart,
    slots: Tensor,
    first: int,
    shift: int,
) -> None:
    tokens, heads, dim = key.shape
    blocks, block_size = keys.data.shape[:2]
    for part in (keys, values):
        shape, is_dense = list(part.data.shape), part.data.is_contiguous()
        require(shape[2:] == [heads, dim], "store_kv", f"heads {[heads, dim]} to a cache {shape}")
        require(is_dense, "store_kv", f"strides {part.data.stride()} of a cache {shape}")
    block_heads, block_dim = power_of_2(heads), power_of_2(dim)
    require(block_heads * block_dim <= _MAX_TILE, "store_kv", f"{heads} heads of {dim} elements")
    if tokens == 0:
        return
    is_int8 = keys.scales is not None
    store_kv_kernel[(tokens, 2)](
        key,
        value,
        keys.data,
        values.data,
        keys.data if keys.scales is None else keys.scales,
        values.data if values.scales is None else values.scales,
        slots,
        first,
        blocks * block_size - shift,
        shift,
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        HEADS=heads,
        DIM=dim,
        BLOCK_HEADS=block_heads,
        BLOCK_DIM=block_dim,
        IS_INT8=is_int8,
        **OPTIONS,
    )
