"""From scheduled integers to the index arrays of one forward pass.

Everything here is numpy on the CPU, so that a wrong slot or position can be found without a model;
the model runner copies to its device. Costs a few array operations per batch, not per sequence.
"""

from bisect import bisect_right
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vlmcli.engine.step import ScheduledSequence

if TYPE_CHECKING:
    import torch

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """One ragged batch: S sequences with T query tokens in all, R rows whose logits are wanted.

    Sequence `s` owns rows `cu_seqlens_q[s]` up to `cu_seqlens_q[s + 1]`; its last query token is
    the last of its `context_lens[s]` tokens, and the rows before it are the tokens before it.
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
    """Pieces [n, hidden] that concatenate to the E replacement rows, in `embed_rows` order."""


def build_batch(
    items: Seq[ScheduledSequence], block_size: int, embedding: Callable[[bytes], "torch.Tensor"]
) -> BatchInput:
    """The arrays of a scheduled decoder batch.

    Args:
        items: at least one, each with at least one query token.
        block_size: tokens per block.
        embedding: the [tokens, hidden] embedding of an image by its digest.
    """
    starts = np.array([item.start for item in items], dtype=np.int64)
    num_draft = np.array([len(item.draft.token_ids) for item in items], dtype=np.int64)
    num_query = np.array([item.num_tokens for item in items], dtype=np.int64) + num_draft
    cu_seqlens_q = np.concatenate(([0], np.cumsum(num_query)))
    rows = np.repeat(np.arange(len(items)), num_query)
    index = np.arange(cu_seqlens_q[-1]) + np.repeat(starts - cu_seqlens_q[:-1], num_query)
    block_tables = _block_tables([item.sequence.block_table for item in items])
    slots = block_tables[rows, index // block_size].astype(np.int64) * block_size
    deltas = np.array([item.sequence.position_delta for item in items], dtype=np.int64)
    positions = np.tile(index + deltas[rows], (3, 1))
    input_ids = np.empty(len(index), dtype=np.int64)
    embed_rows: list[Int64Array] = []
    embeds: list[torch.Tensor] = []
    for item, first in zip(items, cu_seqlens_q[:-1].tolist(), strict=True):
        sequence, start = item.sequence, item.start
        end = start + item.num_tokens
        input_ids[first : first + item.num_tokens] = sequence.token_ids[start:end]
        if item.draft.token_ids:
            input_ids[first + item.num_tokens : first + item.num_query_tokens] = (
                item.draft.token_ids
            )
        num_prompt = min(end, sequence.num_prompt_tokens) - start
        if num_prompt > 0:
            positions[:, first : first + num_prompt] = sequence.positions[
                :, start : start + num_prompt
            ]
            for low, piece in _embeds(item, embedding):
                embed_rows.append(np.arange(first + low, first + low + len(piece)))
                embeds.append(piece)
    return BatchInput(
        input_ids=input_ids,
        positions=positions,
        slot_mapping=slots + index % block_size,
        block_tables=block_tables,
        context_lens=(starts + num_query).astype(np.int32),
        cu_seqlens_q=cu_seqlens_q.astype(np.int32),
        logit_rows=_logit_rows(items, cu_seqlens_q, num_draft),
        embed_rows=np.concatenate(embed_rows) if embed_rows else np.empty(0, dtype=np.int64),
        embeds=embeds,
    )


def _block_tables(tables: Seq[list[int]]) -> Int32Array:
    lengths = np.array([len(table) for table in tables])
    out = np.zeros((len(tables), int(lengths.max())), dtype=np.int32)
    out[np.arange(out.shape[1]) < lengths[:, None]] = list(chain.from_iterable(tables))
    return out


def _logit_rows(
    items: Seq[ScheduledSequence], cu_seqlens_q: Int64Array, num_draft: Int64Array
) -> Int64Array:
    """Rows of the last known token and of every drafted token, where logits are wanted."""
    wanted = np.array([item.wants_logits for item in items], dtype=np.bool_)
    num_rows = (num_draft + 1)[wanted]
    ends = cu_seqlens_q[1:][wanted]
    shift = ends - np.cumsum(num_rows)
    return np.arange(int(num_rows.sum())) + np.repeat(shift, num_rows)


def _embeds(
    item: ScheduledSequence, embedding: Callable[[bytes], "torch.Tensor"]
) -> list[tuple[int, "torch.Tensor"]]:
    """Pieces of image embeddings in this chunk, each with its row within the sequence's rows."""
    start, end = item.start, item.start + item.num_tokens
    request = item.sequence.request
    pieces = []
    for i in range(bisect_right(item.sequence.image_ends, start), len(request.images)):
        place = request.placeholders[i]
        if place.offset >= end:
            break
        low, high = max(place.offset, start), min(place.end, end)
        rows = embedding(request.images[i].mm_hash)[low - place.offset : high - place.offset]
        pieces.append((low - start, rows))
    return pieces
