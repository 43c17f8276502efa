"""Causal attention over block tables in Triton; `reference.paged_attention` defines it.

One program takes a tile of query rows, all query heads of one key head with them, so that every key
is read once for its group: prompt chunks, decode rows and rows of draft verification are tiles of
unlike height. Where tiles are few, several programs share a context and another kernel adds up what
they found (flash decoding). Keys are read in place, in whatever format they are stored.

Refuses heads above 256 elements. Gave up: one order of additions for every batch; how a context is
shared depends on how many sequences run, so that the last bits of a result do as well.
"""

from collections.abc import Iterable

import torch
import triton
import triton.language as tl
from torch import Tensor

from vlmcli.kernels.attention_tile import (
    LOG2_E,
    MAX_HEAD_DIM,
    MIN_DOT,
    attend_tile,
    divide_by_total,
    tile_sides,
)
from vlmcli.kernels.kv_store import KVPart, KVPlane, KVStore
from vlmcli.kernels.launching import (
    OPTIONS,
    is_interpreted,
    power_of_2,
    power_of_2_within,
    require,
    require_dense,
)
from vlmcli.kernels.paged_plan import PagedPlan

_OP = "paged_attention"
_ENOUGH_PROGRAMS = 256
"""Below so many, contexts are shared; about two for each multiprocessor of a large GPU."""
_MAX_SPLITS = 32
_SPLIT_KEYS = 128
"""Keys of a share at least."""


@triton.jit
def load_part(
    data: tl.tensor,
    scales: tl.tensor,
    rows: tl.tensor,
    is_here: tl.tensor,
    dims: tl.tensor,
    HEAD_DIM: tl.constexpr,
    IS_INT8: tl.constexpr,
    DTYPE: tl.constexpr,
) -> tl.tensor:
    """Rows [N, BLOCK_DIM] of one part of a plane in DTYPE; zeros where `is_here` is false."""
    mask = is_here[:, None] & (dims < HEAD_DIM)[None, :]
    found = tl.load(data + rows[:, None] * HEAD_DIM + dims[None, :], mask=mask, other=0)
    if IS_INT8:
        steps = tl.load(scales + rows, mask=is_here, other=0.0)
        return (found.to(tl.float32) * steps[:, None]).to(DTYPE)
    return found.to(DTYPE)


@triton.jit
def load_pair(
    key: tl.tensor,
    key_scales: tl.tensor,
    value: tl.tensor,
    value_scales: tl.tensor,
    slots: tl.tensor,
    head: tl.tensor,
    is_here: tl.tensor,
    dims: tl.tensor,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    IS_INT8: tl.constexpr,
    DTYPE: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Keys and values of one head in these slots, as `load_part` gives them."""
    rows = slots * KV_HEADS + head
    k = load_part(key, key_scales, rows, is_here, dims, HEAD_DIM, IS_INT8, DTYPE)
    v = load_part(value, value_scales, rows, is_here, dims, HEAD_DIM, IS_INT8, DTYPE)
    return k, v


@triton.jit
def paged_attention_kernel(
    query: tl.tensor,
    out: tl.tensor,
    tops: tl.tensor,
    totals: tl.tensor,
    key: tl.tensor,
    key_scales: tl.tensor,
    value: tl.tensor,
    value_scales: tl.tensor,
    vision_key: tl.tensor,
    vision_key_scales: tl.tensor,
    vision_value: tl.tensor,
    vision_value_scales: tl.tensor,
    block_tables: tl.tensor,
    context_lens: tl.tensor,
    query_starts: tl.tensor,
    tiles: tl.tensor,
    scale: tl.tensor,
    num_text_blocks: tl.tensor,
    table_stride: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_QUERIES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_VISION: tl.constexpr,
    IS_INT8: tl.constexpr,
    IS_VISION_INT8: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """A tile of one key head (grid axis 1) and one share of its context (axis 2).

    With SPLITS above 1, `out` is float32 [T, heads, SPLITS, HEAD_DIM], not yet divided, and
    `tops` and `totals` are [T, heads, SPLITS]; else it is the result [T, heads, HEAD_DIM].
    """
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence, first = tl.load(tiles + 2 * tile), tl.load(tiles + 2 * tile + 1)
    start = tl.load(query_starts + sequence)
    num_query = tl.load(query_starts + sequence + 1) - start
    context = tl.load(context_lens + sequence)
    rows, dims = tl.arange(0, BLOCK_ROWS), tl.arange(0, BLOCK_DIM)
    places = first + rows // GROUP
    is_row = (rows < TILE_QUERIES * GROUP) & (places < num_query)
    query_heads = head * GROUP + rows % GROUP
    mask = is_row[:, None] & (dims < HEAD_DIM)[None, :]
    tokens = (start + places).to(tl.int64)
    at = (tokens * token_stride + query_heads * head_stride)[:, None] + dims[None, :]
    q = tl.load(query + at, mask=mask, other=0.0)
    last_seen = context - num_query + places

    acc = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    top = tl.full([BLOCK_ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    hidden = num_query - tl.minimum(first + TILE_QUERIES, num_query)
    num_seen = tl.maximum(context - hidden, 0)
    share = tl.cdiv(tl.cdiv(num_seen, SPLITS), BLOCK_KEYS) * BLOCK_KEYS
    low = split * share
    high = tl.minimum(low + share, num_seen)
    table = block_tables + sequence.to(tl.int64) * table_stride
    for begin in range(low, high, BLOCK_KEYS):
        keys = begin + tl.arange(0, BLOCK_KEYS)
        is_key = keys < high
        block = tl.load(table + keys // BLOCK_SIZE, mask=is_key, other=0).to(tl.int64)
        offset = keys % BLOCK_SIZE
        slots = block * BLOCK_SIZE + offset
        is_text = is_key & (block < num_text_blocks) if HAS_VISION else is_key
        k, v = load_pair(
            key,
            key_scales,
            value,
            value_scales,
            slots,
            head,
            is_text,
            dims,
            KV_HEADS,
            HEAD_DIM,
            IS_INT8,
            q.dtype,
        )
        if HAS_VISION:
            # The first block of the vision part has no slots.
            slots = (block - num_text_blocks + 1) * BLOCK_SIZE + offset
            is_vision = is_key & (block >= num_text_blocks)
            vision_k, vision_v = load_pair(
                vision_key,
                vision_key_scales,
                vision_value,
                vision_value_scales,
                slots,
                head,
                is_vision,
                dims,
                KV_HEADS,
                HEAD_DIM,
                IS_VISION_INT8,
                q.dtype,
            )
            k += vision_k
            v += vision_v
        visible = is_row[:, None] & is_key[None, :] & (keys[None, :] <= last_seen[:, None])
        acc, top, total = attend_tile(q, k, v, visible, scale, acc, top, total, WIDE)

    heads = tokens * (KV_HEADS * GROUP) + query_heads
    if SPLITS == 1:
        result = divide_by_total(acc, total).to(out.dtype.element_ty)
        tl.store(out + heads[:, None] * HEAD_DIM + dims[None, :], result, mask=mask)
    else:
        shares = heads * SPLITS + split
        tl.store(out + shares[:, None] * HEAD_DIM + dims[None, :], acc, mask=mask)
        tl.store(tops + shares, top, mask=is_row)
        tl.store(totals + shares, total, mask=is_row)


@triton.jit
def join_shares_kernel(
    parts: tl.tensor,
    tops: tl.tensor,
    totals: tl.tensor,
    out: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
) -> None:
    """One head of one token out of what the shares of its context gave."""
    head = tl.program_id(0).to(tl.int64)
    shares, dims = head * SPLITS + tl.arange(0, SPLITS), tl.arange(0, BLOCK_DIM)
    is_dim = dims < HEAD_DIM
    top = tl.load(tops + shares)
    highest = tl.max(top, 0)
    factor = tl.exp2(top - tl.where(highest == float("-inf"), 0.0, highest))
    total = tl.sum(tl.load(totals + shares) * factor, 0)
    places = shares[:, None] * HEAD_DIM + dims[None, :]
    acc = tl.load(parts + places, mask=is_dim[None, :], other=0.0) * factor[:, None]
    result = tl.where(total > 0, tl.sum(acc, 0) / tl.where(total > 0, total, 1.0), 0.0)
    tl.store(out + head * HEAD_DIM + dims, result.to(out.dtype.element_ty), mask=is_dim)


def paged_attention(
    query: Tensor, key_cache: KVStore, value_cache: KVStore, plan: PagedPlan, scale: float
) -> Tensor:
    """`reference.paged_attention` with a plan of `paged_plan`: [T, heads, d] to the same shape.

    Raises:
        ValueError: heads have more than 256 elements or are no multiple of the key heads, or a
            cache is not dense.
    """
    tokens, heads, dim = query.shape
    keys, values = (_parts(cache) for cache in (key_cache, value_cache))
    kv_heads = keys[0].data.shape[2]
    _require_fit(query, kv_heads, (*keys, *values))
    out = torch.empty(tokens, heads, dim, dtype=query.dtype, device=query.device)
    group = heads // kv_heads
    block_dim = power_of_2(dim, MIN_DOT)
    most_rows, block_keys = tile_sides(query.dtype, block_dim)
    tile_queries = min(power_of_2(plan.max_query), power_of_2_within(most_rows // group))
    tiles = plan.tiles(tile_queries)
    if out.numel() == 0 or len(tiles) == 0:
        return out.zero_()
    splits = _num_splits(len(tiles) * kv_heads, plan.max_context)
    target, tops, totals = out, out, out
    if splits > 1:
        target, tops, totals = (
            torch.empty(*shape, dtype=torch.float32, device=query.device)
            for shape in ((tokens, heads, splits, dim), *[(tokens, heads, splits)] * 2)
        )
    block_rows = power_of_2(tile_queries * group, MIN_DOT)
    paged_attention_kernel[(len(tiles), kv_heads, splits)](
        query,
        target,
        tops,
        totals,
        *_pointers(keys[0], values[0]),
        *_pointers(keys[-1], values[-1]),
        plan.block_tables,
        plan.context_lens,
        plan.query_starts,
        tiles,
        scale * LOG2_E,
        keys[0].data.shape[0],
        plan.block_tables.stride(0),
        query.stride(0),
        query.stride(1),
        KV_HEADS=kv_heads,
        GROUP=group,
        HEAD_DIM=dim,
        BLOCK_SIZE=plan.block_size,
        TILE_QUERIES=tile_queries,
        BLOCK_ROWS=block_rows,
        BLOCK_KEYS=block_keys,
        BLOCK_DIM=block_dim,
        SPLITS=splits,
        HAS_VISION=len(keys) > 1,
        IS_INT8=keys[0].scales is not None,
        IS_VISION_INT8=keys[-1].scales is not None,
        WIDE=is_interpreted(),
        num_warps=4 if block_rows <= 64 else 8,
        num_stages=2,
        **OPTIONS,
    )
    if splits > 1:
        join_shares_kernel[(tokens * heads,)](
            target, tops, totals, out, HEAD_DIM=dim, BLOCK_DIM=block_dim, SPLITS=splits, **OPTIONS
        )
    return out


def _require_fit(query: Tensor, kv_heads: int, caches: Iterable[KVPart]) -> None:
    heads, dim = query.shape[1:]
    require(dim <= MAX_HEAD_DIM, _OP, f"heads of {dim} elements, {MAX_HEAD_DIM} at most")
    require(heads % kv_heads == 0, _OP, f"{heads} heads over {kv_heads} key heads")
    require_dense(_OP, query=query)
    for part in caches:
        is_dense = part.data.is_contiguous()
        require(is_dense, _OP, f"strides {part.data.stride()} of a cache")


def _num_splits(num_programs: int, max_context: int) -> int:
    """Shares of every context, a power of two, so that the GPU has enough to do."""
    wanted = min(_ENOUGH_PROGRAMS // num_programs, max_context // _SPLIT_KEYS, _MAX_SPLITS)
    return power_of_2_within(wanted)


def _parts(cache: KVStore) -> tuple[KVPart, ...]:
    if isinstance(cache, KVPlane):
        return (cache.text,) if cache.vision is None else (cache.text, cache.vision)
    return (KVPart(cache),)


def _pointers(key: KVPart, value: KVPart) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Data and scales of both; where there are no scales, the data in their place."""
    return (
        key.data,
        key.data if key.scales is None else key.scales,
        value.data,
        value.data if value.scales is None else value.scales,
    )
