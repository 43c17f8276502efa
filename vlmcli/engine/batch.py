"""From scheduled integers to the index arrays of one forward pass.

Everything here is numpy on the CPU, so that a wrong slot or position can be found without a model;
the model runner copies to its device. Costs a few array operations per batch, not per sequence.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """One ragged batch: S sequences with T query tokens in all, R rows whose logits are wanted.

    Sequence `s` owns rows `cu_seqlens_q[s]` up to `cu_seqlens_q[s + 1]`; its last query token is the
    last of its `context_lens[s]` tokens, and the rows before it are the tokens before it.
    """

    input_ids: Int64Array
    """[T] token ids; image placeholders keep the model's image token id."""
    positions: Int64Array
    """[3, T] rotary positions (time, row, column); three equal rows for 1-D rotary models."""
    slot_mapping: Int64Array
    """[T] where each token's key and value go: block × block_size + offset; −1 writes nowhere."""
    block_tables: Int32Array
    """[S, max_blocks] block ids, padded with the null block 0."""
    context_lens: Int32Array
    """[S] tokens in the cache once this step is written."""
    cu_seqlens_q: Int32Array
    """[S + 1] cumulative query lengths."""
    logit_rows: Int64Array
    """[R] rows of T whose logits are wanted, ascending."""
    embed_rows: Int64Array
    """[E] rows of T whose input embedding is replaced by a visual one."""
    embeds: Seq["torch.Tensor"] = ()
    """Pieces [n, hidden] that concatenate to the E replacement rows, in the order of `embed_rows`."""
