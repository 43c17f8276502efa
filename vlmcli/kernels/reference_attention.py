"""Attention in plain torch: over block tables, and within packed sequences.

On the CPU its cost is kept low by taking sequences of like length together: padding is bounded, and
there is no Python loop over the sequences of a decode or verify batch. Gave up: reading the cache
in place; keys and values are gathered once per layer, which for short contexts costs less than the
attention itself.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from vlmcli.kernels.kv_store import KVStore, block_slots, gather_rows
from vlmcli.kernels.segments import Ends, HostSegments

Int32Array = npt.NDArray[np.int32]
IntArray = npt.NDArray[Any]

_MIN_GROUP_AREA = 1 << 15
"""Score elements per head below which another call costs more than the padding that it saves."""
_MAX_PADDING = 1.3
"""Padded over useful score elements at which a larger group is cut."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Sequences that one padded attention call takes together.

    `slots`: [n·L] cache slots; those behind a sequence's end repeat its last, so that no unwritten
    memory is ever read. In their place, where shapes may depend on values, `blocks`: [n·B] cache
    blocks that hold L places and a few more, and `stale`: places of [n·B·block] that no sequence
    has written. `rows`: [n·Q] query row of each padded place; `places`: padded places that hold
    results; `targets`: their rows in the batch. None of these three means "as they stand".
    `mask`: [n, 1, Q, L] added to the scores; None where plain causality (`is_causal`) says it all.
    """

    num_seqs: int
    max_query: int
    max_context: int
    slots: Tensor | None = None
    blocks: Tensor | None = None
    stale: Tensor | None = None
    rows: Tensor | None = None
    places: Tensor | None = None
    targets: Tensor | None = None
    mask: Tensor | None = None
    is_causal: bool = False


@dataclass(frozen=True, slots=True)
class PagedPlan:
    """Attention of one step: groups in any order, and the query rows of empty sequences."""

    groups: tuple[_Group, ...]
    empty_rows: Tensor | None
    """[T] bool, rows whose sequence has no context; their output is zero."""
    _buffers: dict[str, Tensor] = field(default_factory=dict)

    def buffer(self, name: str, group: _Group, store: KVStore) -> Tensor | None:
        """Where gathered blocks of a plain store on the CPU go, in every layer of the step.

        New memory for each layer costs more than the copy: what is larger than some megabytes is
        mapped anew, and every page of it faulted in. Sixteen contexts of 450 tokens, 16 layers of
        4 · 64 numbers a token: 320 ms, into kept memory 48.
        """
        if group.blocks is None or not isinstance(store, Tensor) or store.is_cuda:
            return None
        if name not in self._buffers:
            most = max(len(one.blocks) for one in self.groups if one.blocks is not None)
            self._buffers[name] = store.new_empty(most, *store.shape[1:])
        return self._buffers[name][: len(group.blocks)]


def plan_paged(
    block_tables: Int32Array,
    context_lens: Int32Array,
    cu_seqlens_q: Int32Array,
    block_size: int,
    like: Tensor,
) -> PagedPlan:
    """Prepare causal attention of S sequences with T query rows in all.

    The last query row of a sequence is the last of its `context_lens` tokens and sees all of them;
    each row before it sees one token less. That covers prompt chunks, decode rows and rows of
    draft verification alike. A sequence may have no query rows, or (padding) no context.

    Args:
        block_tables: [S, max_blocks].
        context_lens: [S].
        cu_seqlens_q: [S + 1] cumulative query lengths; `cu_seqlens_q[S]` is T.
        block_size: tokens per block.
        like: any tensor of the dtype and device of the queries.
    """
    query_lens = np.diff(cu_seqlens_q)
    active = np.flatnonzero(query_lens > 0)
    order = active[np.lexsort((context_lens[active], query_lens[active]))]
    groups = tuple(
        _plan_group(members, block_tables, context_lens, cu_seqlens_q, block_size, like)
        for members in _cut_groups(order, query_lens, context_lens)
        if len(members)
    )
    if len(groups) == 1:
        groups = (_whole_batch(groups[0], int(cu_seqlens_q[-1])),)
    empty = (context_lens == 0) & (query_lens > 0)
    empty_rows = np.repeat(empty, query_lens) if empty.any() else None
    return PagedPlan(groups, None if empty_rows is None else _to(empty_rows, like))


def plan_decode(
    block_tables: Tensor, context_lens: Tensor, block_size: int, like: Tensor, num_query: int = 1
) -> PagedPlan:
    """Prepare `num_query` rows per sequence, without reading a value back from the device.

    Shapes depend on the shapes of the arguments alone, so that a captured graph may contain it. As
    in `plan_paged` the last row of a sequence sees its whole context and each row before it one
    token less; rows that would stand before its first token are padding, and come out zero.

    Args:
        block_tables: [S, max_blocks] integers; the plan attends over max_blocks × block_size slots.
        context_lens: [S] integers; 0 marks a padding sequence, whose output rows are zero.
        block_size: tokens per block.
        like: any tensor of the dtype and device of the queries.
        num_query: rows of each sequence; T is S × num_query.
    """
    num_seqs, width = block_tables.shape
    places = torch.arange(width * block_size, device=like.device)
    lens = context_lens.long().unsqueeze(1)
    clamped = torch.minimum(places, (lens - 1).clamp_(min=0))
    blocks = block_tables.long().gather(1, clamped // block_size)
    slots = (blocks * block_size + clamped % block_size).view(-1)
    last_seen = lens - torch.arange(num_query, 0, -1, device=like.device)
    # A row that sees nothing must see something, or its softmax is 0 / 0; it is zeroed afterwards.
    hidden = (places > last_seen.unsqueeze(2)) & (last_seen >= 0).unsqueeze(2)
    mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
    mask.masked_fill_(hidden, float("-inf"))
    group = _Group(
        num_seqs=num_seqs,
        max_query=num_query,
        max_context=width * block_size,
        slots=slots,
        mask=mask.unsqueeze(1),
    )
    return PagedPlan((group,), (last_seen < 0).view(-1))


def paged_attention(
    query: Tensor,
    key_cache: KVStore,
    value_cache: KVStore,
    plan: PagedPlan,
    scale: float,
) -> Tensor:
    """softmax(scale · q·kᵀ) · v over each sequence's blocks, as `plan_paged` defines it.

    Reads no slot beyond a sequence's context: whatever stands there, NaN included, does not matter.

    Args:
        query: [T, heads, d]; query head h reads key head h // (heads / kv_heads).
        key_cache: [num_blocks, block_size, kv_heads, d] or a plane, this step's keys stored
            already.
        value_cache: the same for values.
        plan: of `plan_paged` or `plan_decode`.
        scale: factor on the scores.

    Returns:
        [T, heads, d]; rows of sequences without context are zero.
    """
    outputs = [_attend(query, key_cache, value_cache, plan, group, scale) for group in plan.groups]
    out = torch.empty_like(query) if len(outputs) != 1 else outputs[0]
    for group, rows in zip(plan.groups, outputs, strict=True):
        if group.targets is not None:
            out = out if out is not rows else torch.empty_like(query)
            out.index_copy_(0, group.targets, rows)
    return out if plan.empty_rows is None else out.masked_fill_(plan.empty_rows.view(-1, 1, 1), 0)


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Ends, scale: float
) -> Tensor:
    """Bidirectional attention within each of several sequences that lie one behind the other.

    Neighbours of equal length are taken together without padding, so callers sort by length.

    Args:
        query: [N, heads, d]; strided views will do, the last dimension dense.
        key: the same shape.
        value: the same shape.
        cu_seqlens: [S + 1] cumulative lengths, the last is N, or room of `make_segments` that holds
            them; empty sequences are allowed.
        scale: factor on the scores.

    Returns:
        [N, heads, d].
    """
    if not isinstance(cu_seqlens, np.ndarray):
        assert isinstance(cu_seqlens, HostSegments), "segments of other kernels"
        cu_seqlens = cu_seqlens.ends
    lens = np.diff(cu_seqlens)
    firsts = np.flatnonzero(np.diff(lens, prepend=-1))
    outputs = []
    for first, last in zip(firsts, [*firsts[1:], len(lens)], strict=True):
        length, start, end = int(lens[first]), int(cu_seqlens[first]), int(cu_seqlens[last])
        if length == 0:
            continue
        q, k, v = (
            x[start:end].view(-1, length, *x.shape[1:]).transpose(1, 2) for x in (query, key, value)
        )
        out = F.scaled_dot_product_attention(q, k, v, scale=scale)
        outputs.append(out.transpose(1, 2).reshape(end - start, *query.shape[1:]))
    return outputs[0] if len(outputs) == 1 else torch.cat([query[:0], *outputs])


def _cut_groups(order: IntArray, query_lens: IntArray, context_lens: IntArray) -> list[IntArray]:
    """Cut sequences, sorted by query length, where padding them together would waste too much."""
    if _is_dense(order, query_lens, context_lens):
        return [order]
    groups, first, useful, longest = [], 0, 0, 0
    queries, contexts = query_lens[order].tolist(), context_lens[order].tolist()
    for i, (q_len, c_len) in enumerate(zip(queries, contexts, strict=True)):
        useful += q_len * c_len
        longest = max(longest, c_len)
        padded = (i + 1 - first) * q_len * longest
        if padded > max(_MIN_GROUP_AREA, _MAX_PADDING * useful):
            groups.append(order[first:i])
            first, useful, longest = i, q_len * c_len, c_len
    groups.append(order[first:])
    return groups


def _is_dense(order: IntArray, query_lens: IntArray, context_lens: IntArray) -> bool:
    """Whether one call over all of them wastes little; true of most decode and verify batches."""
    queries, contexts = query_lens[order], context_lens[order]
    padded = len(order) * int(queries.max(initial=0)) * int(contexts.max(initial=0))
    return padded <= max(_MIN_GROUP_AREA, _MAX_PADDING * float(queries @ contexts))


def _plan_group(
    members: IntArray,
    block_tables: Int32Array,
    context_lens: Int32Array,
    cu_seqlens_q: Int32Array,
    block_size: int,
    like: Tensor,
) -> _Group:
    starts = cu_seqlens_q[members].astype(np.int64)[:, None]
    q_lens = cu_seqlens_q[members + 1].astype(np.int64)[:, None] - starts
    c_lens = context_lens[members].astype(np.int64)[:, None]
    max_query, max_context = int(q_lens.max()), max(1, int(c_lens.max()))
    blocks, stale = _whole_blocks(block_tables[members], c_lens, max_context, block_size)
    offsets = np.arange(max_query)
    rows = starts + np.minimum(offsets, q_lens - 1)
    real = np.flatnonzero(offsets < q_lens) if (q_lens < max_query).any() else None
    is_fresh = bool((q_lens == c_lens).all())
    targets = rows.ravel() if real is None else rows.ravel()[real]
    return _Group(
        num_seqs=len(members),
        max_query=max_query,
        max_context=max_context,
        blocks=_to(blocks.ravel(), like),
        stale=_to(stale, like) if len(stale) else None,
        rows=_to(rows.ravel(), like),
        places=None if real is None else _to(real, like),
        targets=_to(targets, like),
        mask=None if is_fresh else _causal_mask(q_lens, c_lens, max_query, max_context, like),
        is_causal=is_fresh,
    )


def _whole_blocks(
    tables: Int32Array, c_lens: IntArray, max_context: int, block_size: int
) -> tuple[IntArray, IntArray]:
    """Blocks [n, B] for contexts [n, 1], filled up with first ones, and the places not written."""
    most = -(-max_context // block_size)
    own = -(-c_lens // block_size)
    numbers = np.where(np.arange(most) < own, np.arange(most), 0)
    places = (numbers[:, :, None] * block_size + np.arange(block_size)).reshape(len(tables), -1)
    blocks = np.take_along_axis(tables, numbers, 1).astype(np.int64)
    return blocks, np.flatnonzero(places >= c_lens)


def _causal_mask(
    q_lens: IntArray, c_lens: IntArray, max_query: int, max_context: int, like: Tensor
) -> Tensor:
    """[n, 1, Q, L] with −inf where query i of a sequence may not see key j."""
    last_seen = c_lens - q_lens + np.minimum(np.arange(max_query), q_lens - 1)
    # A sequence without context must see something, or its softmax is 0 / 0.
    last_seen = np.where(c_lens == 0, max_context, last_seen)
    hidden = np.arange(max_context) > last_seen[:, :, None]
    mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill_(_to(hidden, like), float("-inf")).unsqueeze_(1)


def _whole_batch(group: _Group, num_rows: int) -> _Group:
    """Drop index lists that would only copy the batch onto itself."""
    assert group.rows is not None and group.targets is not None
    in_order = torch.equal(group.targets, torch.arange(num_rows, device=group.targets.device))
    if not in_order:
        return group
    return replace(group, targets=None, rows=None if group.places is None else group.rows)


def _attend(
    query: Tensor,
    key_cache: KVStore,
    value_cache: KVStore,
    plan: PagedPlan,
    group: _Group,
    scale: float,
) -> Tensor:
    """Output rows of one group, [rows, heads, d], in the order of its targets."""
    heads, dim = query.shape[1:]
    n = group.num_seqs
    q = query if group.rows is None else query.index_select(0, group.rows)
    k, v = (
        _contexts(store, group, query.dtype, plan.buffer(name, group, store))
        for name, store in (("key", key_cache), ("value", value_cache))
    )
    kv_heads = k.shape[2]
    if group.max_query == 1:
        # Query heads of one key head become rows of one product: keys are read once.
        q = q.view(n, kv_heads, heads // kv_heads, dim)
    else:
        q = q.view(n, group.max_query, heads, dim).transpose(1, 2)
    out = F.scaled_dot_product_attention(
        q,
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=group.mask,
        is_causal=group.is_causal and group.max_query > 1,
        scale=scale,
        enable_gqa=q.shape[1] != kv_heads,
    )
    if group.max_query == 1:
        return out.reshape(n, heads, dim)
    rows = out.transpose(1, 2).reshape(n * group.max_query, heads, dim)
    return rows if group.places is None else rows.index_select(0, group.places)


def _contexts(store: KVStore, group: _Group, dtype: torch.dtype, room: Tensor | None) -> Tensor:
    """[n, L, kv_heads, d] of a group's sequences, every number of it finite.

    Blocks of a plain store are copied whole where there is `room` for them: in half the time of as
    many rows. What they hold behind a sequence's end is nobody's, and becomes zero.
    """
    n, length = group.num_seqs, group.max_context
    if group.slots is not None:
        rows = gather_rows(store, group.slots, dtype)
        return rows.view(n, length, *rows.shape[1:])
    assert group.blocks is not None
    if room is not None and isinstance(store, Tensor):
        torch.index_select(store, 0, group.blocks, out=room)
        rows = room.view(-1, *room.shape[2:])
    else:
        rows = gather_rows(store, block_slots(store, group.blocks), dtype)
    if group.stale is not None:
        rows.index_fill_(0, group.stale, 0)
    return rows.view(n, -1, *rows.shape[1:])[:, :length]


def _to(array: npt.NDArray[Any], like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device, non_blocking=True)
