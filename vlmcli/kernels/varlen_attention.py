"""Attention within packed sequences in Triton; `reference.varlen_attention` defines it.

For vision towers: one program takes a tile of query rows of one head of one sequence, an image or a
window of it. Where tiles lie follows from `cu_seqlens` alone and is remembered for the last few, as
all layers of a tower ask for the same one or two; a captured step has a `TileTable` of its own, of
fixed length, whose spare tiles do nothing. Refuses heads above 256 elements.
"""

from functools import lru_cache

import numpy as np
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
    query_tiles,
    tile_sides,
)
from vlmcli.kernels.launching import OPTIONS, is_interpreted, power_of_2, require, require_dense
from vlmcli.kernels.segments import Ends, Int32Array, require_fit
from vlmcli.kernels.upload import upload

_OP = "varlen_attention"


@triton.jit
def varlen_attention_kernel(
    query: tl.tensor,
    key: tl.tensor,
    value: tl.tensor,
    out: tl.tensor,
    tiles: tl.tensor,
    scale: tl.tensor,
    num_heads: tl.tensor,
    query_row_stride: tl.tensor,
    query_head_stride: tl.tensor,
    key_row_stride: tl.tensor,
    key_head_stride: tl.tensor,
    value_row_stride: tl.tensor,
    value_head_stride: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """A tile (first row, first and last key of its sequence) of one head (grid axis 1)."""
    tile, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(tiles + 3 * tile)
    start = tl.load(tiles + 3 * tile + 1)
    end = tl.load(tiles + 3 * tile + 2)
    rows, dims = first + tl.arange(0, BLOCK_ROWS), tl.arange(0, BLOCK_DIM)
    is_dim = dims < HEAD_DIM
    is_row = rows < end
    wide_rows = rows.to(tl.int64)
    mask = is_row[:, None] & is_dim[None, :]
    at = (wide_rows * query_row_stride + head * query_head_stride)[:, None] + dims[None, :]
    q = tl.load(query + at, mask=mask, other=0.0)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    top = tl.full([BLOCK_ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    for begin in range(start, end, BLOCK_KEYS):
        keys = begin + tl.arange(0, BLOCK_KEYS)
        is_key = keys < end
        key_mask = is_key[:, None] & is_dim[None, :]
        wide_keys = keys.to(tl.int64)
        k_at = (wide_keys * key_row_stride + head * key_head_stride)[:, None] + dims[None, :]
        k = tl.load(key + k_at, mask=key_mask, other=0.0)
        v_at = (wide_keys * value_row_stride + head * value_head_stride)[:, None] + dims[None, :]
        v = tl.load(value + v_at, mask=key_mask, other=0.0)
        visible = is_row[:, None] & is_key[None, :]
        acc, top, total = attend_tile(q, k, v, visible, scale, acc, top, total, WIDE)
    result = divide_by_total(acc, total).to(out.dtype.element_ty)
    out_at = (wide_rows * num_heads + head)[:, None] * HEAD_DIM + dims[None, :]
    tl.store(out + out_at, result, mask=mask)


class TileTable:
    """Room for the tiles of some sequences, read when the kernel runs.

    Args:
        num_rows: of all sequences together.
        max_segments: sequences at most.
        head_dim: of the attention that will read it.
        like: any tensor of the dtype and device of its queries.
    """

    def __init__(self, num_rows: int, max_segments: int, head_dim: int, like: Tensor) -> None:
        self.num_rows, self.max_segments = num_rows, max_segments
        most_rows, _ = tile_sides(like.dtype, power_of_2(head_dim, MIN_DOT))
        self.block_rows = min(most_rows, power_of_2(num_rows, MIN_DOT))
        # Every sequence has at most one tile that is not full.
        num_tiles = num_rows // self.block_rows + max_segments
        self.tiles = torch.zeros(num_tiles, 3, dtype=torch.int32, device=like.device)

    def write(self, cu_seqlens: Int32Array) -> None:
        """Take over cumulative lengths; the other tiles become empty.

        Raises:
            ValueError: they do not end at the number of rows, or are too many.
        """
        require_fit(cu_seqlens, self.num_rows, self.max_segments)
        table = np.zeros(self.tiles.shape, dtype=np.int32)
        tiles = _tile_rows(cu_seqlens, self.block_rows)
        table[: len(tiles)] = tiles
        self.tiles.copy_(upload(table, self.tiles.device))


def make_segments(num_rows: int, max_segments: int, head_dim: int, like: Tensor) -> TileTable:
    """Room for ends of sequences; see `segments.make_segments`."""
    return TileTable(num_rows, max_segments, head_dim, like)


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Ends, scale: float
) -> Tensor:
    """`reference.varlen_attention`: [N, heads, d] three times to a new [N, heads, d].

    Raises:
        ValueError: heads have more than 256 elements, shapes differ, or a last dimension has gaps.
    """
    rows, heads, dim = query.shape
    require(dim <= MAX_HEAD_DIM, _OP, f"heads of {dim} elements, {MAX_HEAD_DIM} at most")
    for name, tensor in (("key", key), ("value", value)):
        shapes = f"{name} is {list(tensor.shape)}, query {list(query.shape)}"
        require(tensor.shape == query.shape, _OP, shapes)
    end = int(cu_seqlens[-1]) if isinstance(cu_seqlens, np.ndarray) else _table(cu_seqlens).num_rows
    require(end == rows, _OP, f"{rows} rows, cu_seqlens end at {end}")
    require_dense(_OP, query=query, key=key, value=value)
    out = torch.empty(rows, heads, dim, dtype=query.dtype, device=query.device)
    if out.numel() == 0:
        return out
    block_dim = power_of_2(dim, MIN_DOT)
    most_rows, block_keys = tile_sides(query.dtype, block_dim)
    if isinstance(cu_seqlens, np.ndarray):
        longest = int(np.diff(cu_seqlens).max())
        block_rows = min(most_rows, power_of_2(longest, MIN_DOT))
        tiles = _tiles(cu_seqlens.tobytes(), cu_seqlens.dtype, block_rows, query.device)
    else:
        tiles, block_rows = _table(cu_seqlens).tiles, _table(cu_seqlens).block_rows
    varlen_attention_kernel[(len(tiles), heads)](
        query,
        key,
        value,
        out,
        tiles,
        scale * LOG2_E,
        heads,
        query.stride(0),
        query.stride(1),
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        HEAD_DIM=dim,
        BLOCK_ROWS=block_rows,
        BLOCK_KEYS=block_keys,
        BLOCK_DIM=block_dim,
        WIDE=is_interpreted(),
        num_warps=4 if block_rows <= 64 else 8,
        num_stages=2,
        **OPTIONS,
    )
    return out


def _table(ends: Ends) -> TileTable:
    assert isinstance(ends, TileTable), "segments of other kernels"
    return ends


@lru_cache(maxsize=16)
def _tiles(ends: bytes, dtype: np.dtype[np.int32], block: int, device: torch.device) -> Tensor:
    """`_tile_rows` on a device."""
    return upload(_tile_rows(np.frombuffer(ends, dtype=dtype), block), device)


def _tile_rows(cu_seqlens: Int32Array, block: int) -> Int32Array:
    """[tiles, 3]: first row of the tile, first row and end of its sequence."""
    ends = cu_seqlens.astype(np.int64)
    sequence, first = query_tiles(np.diff(ends), block).T
    starts = ends[sequence]
    return np.stack((starts + first, starts, ends[sequence + 1]), axis=1).astype(np.int32)
