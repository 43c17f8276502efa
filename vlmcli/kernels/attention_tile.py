"""What attention kernels share: one step of the streaming softmax, and its end.

Scores are taken in base 2 and in float32; keys come tile by tile and no score is ever written to
memory (Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135). A row
that has seen nothing yet has maximum −∞ and sum 0, and ends as zeros.
"""

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

MAX_HEAD_DIM = 256
LOG2_E = 1.4426950408889634
MIN_DOT = 16
"""Least side of a tile that the tensor cores take."""


@triton.jit
def attend_tile(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    visible: tl.tensor,
    scale: tl.tensor,
    acc: tl.tensor,
    top: tl.tensor,
    total: tl.tensor,
    WIDE: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Take keys and values [N, D] into the state of rows `q` [M, D]; `visible` is [M, N].

    `WIDE` multiplies in float32, as the interpreter needs it for bfloat16.
    """
    dtype = v.dtype
    if WIDE:
        q, k, v = q.to(tl.float32), k.to(tl.float32), v.to(tl.float32)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    # −∞ − −∞ is no number; a row without a visible key stays as it is.
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights = tl.exp2(scores - shift[:, None])
    kept = tl.exp2(top - shift)
    rounded = weights.to(dtype)
    if WIDE:
        rounded = rounded.to(tl.float32)
    acc = acc * kept[:, None] + tl.dot(rounded, v, input_precision="ieee")
    return acc, new_top, total * kept + tl.sum(weights, 1)


@triton.jit
def divide_by_total(acc: tl.tensor, total: tl.tensor) -> tl.tensor:
    """The weighted mean of the values of each row [M, D]; zeros where it saw none."""
    return tl.where((total > 0)[:, None], acc / tl.where(total > 0, total, 1.0)[:, None], 0.0)


def tile_sides(dtype: torch.dtype, block_dim: int) -> tuple[int, int]:
    """Query rows and keys of a tile at most, so that the shared memory of small GPUs holds it."""
    is_large = dtype == torch.float32 or block_dim > 128
    return (64, 32) if is_large else (128, 64)


def query_tiles(query_lens: npt.NDArray[np.int64], block: int) -> npt.NDArray[np.int32]:
    """[tiles, 2]: sequence, and first query row within it, of tiles of at most `block` rows."""
    counts = -(-query_lens // block)
    sequences = np.repeat(np.arange(len(counts)), counts)
    before = np.concatenate(([0], np.cumsum(counts)[:-1])) if len(counts) else counts
    first = (np.arange(len(sequences)) - before[sequences]) * block
    return np.stack((sequences, first), axis=1).astype(np.int32)
