"""Attention kernels under Triton's interpreter against the reference, over ragged, ugly batches."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_cases import assert_no_worse, paged_case

pytest.importorskip("triton")

from vlmcli.kernels import paged_attention as paged
from vlmcli.kernels import reference, triton_ops
from vlmcli.kernels.attention_tile import query_tiles
from vlmcli.kernels.kv_store import KVPart, KVPlane, gather_rows, quantise

FEW = settings(max_examples=12, deadline=None)
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
LENGTHS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 40)).map(lambda pair: (pair[0], sum(pair))),
    min_size=1,
    max_size=4,
)
"""Query rows and context of each sequence."""
RAGGED = [(1, 70), (0, 5), (5, 5), (3, 0), (9, 100), (1, 1)]


def attend(ops, case, block_size, dtype, caches=None, scale=0.3):
    query, keys, values, tables, contexts, cu_seqlens, _ = case
    plan = ops.plan_paged(tables, contexts, cu_seqlens, block_size, query)
    caches = caches or (keys.to(dtype), values.to(dtype))
    return ops.paged_attention(query.to(dtype), *caches, plan, scale)


def padded(lens):
    """A sequence without a context is padding: it may have rows."""
    return [(query, context) for query, context in lens if query <= context or context == 0]


@FEW
@given(
    LENGTHS,
    st.sampled_from([1, 4, 16]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 3, 8]),
    st.sampled_from([1, 6, 32]),
    DTYPES,
    st.integers(0, 9999),
)
def test_paged_attention(lens, block_size, kv_heads, group, dim, dtype, seed):
    torch.manual_seed(seed)
    case = paged_case(lens, block_size, kv_heads, group, seed, dim)
    torchs = attend(reference, case, block_size, dtype)
    rounded = [x.to(dtype).double() for x in case[:3]]
    exact = attend(reference, (*rounded, *case[3:]), block_size, torch.float64)
    assert_no_worse(attend(triton_ops, case, block_size, dtype), torchs, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_splits", [2, 4])
def test_a_shared_context_gives_the_same(monkeypatch, dtype, num_splits):
    """However many programs share a context; some of them find nothing to do."""
    torch.manual_seed(0)
    monkeypatch.setattr(paged, "_num_splits", lambda *_: num_splits)
    case = paged_case(RAGGED, 4, 2, 3, 0, 8)
    torchs = attend(reference, case, 4, dtype)
    rounded = [x.to(dtype).double() for x in case[:3]]
    exact = attend(reference, (*rounded, *case[3:]), 4, torch.float64)
    ours = attend(triton_ops, case, 4, dtype)
    assert_no_worse(ours, torchs, exact)
    assert not ours[6:9].any(), "rows without a context are zero"


def test_contexts_are_shared_only_where_programs_are_few():
    for programs, context in itertools.product((1, 8, 200, 256, 5000), (0, 1, 300, 100_000)):
        splits = paged._num_splits(programs, context)
        assert splits >= 1 and splits & (splits - 1) == 0
        assert splits == 1 or splits * programs <= 256
        assert splits == 1 or splits * 128 <= context
    assert paged._num_splits(8, 4096) == 32


@pytest.mark.parametrize("text", [torch.bfloat16, torch.int8])
@pytest.mark.parametrize("vision", [None, torch.int8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_format_of_the_cache_is_read_as_stored(text, vision, dtype):
    """Against the reference over a plain cache that holds what gathering finds in the planes."""
    torch.manual_seed(1)
    case = paged_case(RAGGED, 4, 2, 2, 1, 8)
    num_blocks = case[1].shape[0]
    num_text = num_blocks // 2 if vision else num_blocks
    planes = [plane_of(x, num_text, text, vision) for x in case[1:3]]
    used = torch.unique(torch.from_numpy(case[3]).long())
    slots = (used[used > 0].unsqueeze(1) * 4 + torch.arange(4)).view(-1)
    plain = []
    for plane, pool in zip(planes, case[1:3], strict=True):
        flat = pool.to(dtype, copy=True).view(-1, 2, 8)
        flat[slots] = gather_rows(plane, slots, dtype)
        plain.append(flat.view(pool.shape))
    torchs = attend(reference, case, 4, dtype, plain)
    rounded = [case[0].to(dtype).double(), *[x.double() for x in plain]]
    exact = attend(reference, (*rounded, *case[3:]), 4, torch.float64)
    assert_no_worse(attend(triton_ops, case, 4, dtype, planes), torchs, exact)


def plane_of(pool, num_text, text, vision):
    """A poisoned pool in other formats: its first blocks as `text`, the others as `vision`."""

    def part(blocks, dtype):
        if dtype != torch.int8:
            return KVPart(blocks.to(dtype))
        data, scales = quantise(blocks.nan_to_num())
        scales[blocks.isnan().any(-1)] = float("nan")
        return KVPart(data, scales)

    first = part(pool[:num_text], text)
    if vision is None:
        return KVPlane(first)
    return KVPlane(first, part(torch.cat([pool[:1], pool[num_text:]]), vision))


@FEW
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([1, 4]),
    st.integers(0, 99),
)
def test_fixed_rows_per_sequence(contexts, num_query, block_size, seed):
    """Plans of fixed shape: rows before a sequence's first token, and padding, come out zero."""
    torch.manual_seed(seed)
    lens = [(min(num_query, context), context) for context in contexts]
    case = paged_case(lens, block_size, 2, 2, seed, 8)
    ragged = attend(reference, case, block_size, torch.float32)
    _, keys, values, tables, lengths, *_ = case
    rows = torch.cat(
        [
            torch.arange(num_query * (i + 1) - own, num_query * (i + 1))
            for i, (own, _) in enumerate(lens)
        ]
    )
    query = torch.randn(num_query * len(lens), 4, 8)
    query[rows] = case[0]
    expected = torch.zeros_like(query)
    expected[rows] = ragged
    tables, lengths = torch.from_numpy(tables), torch.from_numpy(lengths)
    for ops in (reference, triton_ops):
        plan = ops.plan_decode(tables, lengths, block_size, query, num_query)
        out = ops.paged_attention(query, keys, values, plan, 0.3)
        torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)


@FEW
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 5, 16, 20]),
    DTYPES,
    st.integers(0, 99),
)
def test_varlen_attention(lens, heads, dim, dtype, seed):
    torch.manual_seed(seed)
    cu_seqlens = np.cumsum([0, *lens], dtype=np.int32)
    packed = torch.randn(int(cu_seqlens[-1]), 3 * heads, dim).to(dtype)
    torchs = reference.varlen_attention(*packed.chunk(3, dim=1), cu_seqlens, 0.4)
    exact = reference.varlen_attention(*packed.double().chunk(3, dim=1), cu_seqlens, 0.4)
    ours = triton_ops.varlen_attention(*packed.chunk(3, dim=1), cu_seqlens, 0.4)
    assert_no_worse(ours, torchs, exact)


@given(st.lists(st.integers(0, 40), max_size=6), st.integers(1, 9))
def test_tiles_cover_every_row_once(lens, block):
    covered = [
        (int(sequence), row)
        for sequence, first in query_tiles(np.array(lens, dtype=np.int64), block)
        for row in range(first, min(first + block, lens[sequence]))
    ]
    assert covered == [(i, row) for i, length in enumerate(lens) for row in range(length)]


def test_what_attention_cannot_do_it_names():
    cu_seqlens = np.array([0, 2], np.int32)
    with pytest.raises(ValueError, match="varlen_attention: heads of 300"):
        triton_ops.varlen_attention(*[torch.ones(2, 1, 300)] * 3, cu_seqlens, 1.0)
    with pytest.raises(ValueError, match="varlen_attention: 3 rows, cu_seqlens end at 2"):
        triton_ops.varlen_attention(*[torch.ones(3, 1, 4)] * 3, cu_seqlens, 1.0)
    case = paged_case([(1, 3)], 4, 2, 1, 0, 300)
    with pytest.raises(ValueError, match="paged_attention: heads of 300"):
        attend(triton_ops, case, 4, torch.float32)
    case = paged_case([(1, 3)], 4, 2, 1, 0, 8)
    query = torch.ones(1, 3, 8)
    with pytest.raises(ValueError, match="paged_attention: 3 heads over 2 key heads"):
        attend(triton_ops, (query, *case[1:]), 4, torch.float32)


@settings(max_examples=4, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.integers(0, 30),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 20, 80]),
    DTYPES,
    st.integers(0, 9999),
)
def test_segments_that_change_between_two_runs(lens, padding, heads, dim, dtype, seed):
    """Room is made once; what a batch does not fill is a sequence of its own, full of NaN."""
    torch.manual_seed(seed)
    rows = sum(lens) + padding
    packed = torch.randn(rows, 3 * heads, dim).to(dtype)
    packed[sum(lens) :] = float("nan")
    query, key, value = packed.chunk(3, dim=1)
    rooms = [ops.make_segments(rows, 8, dim, query) for ops in (triton_ops, reference)]
    for some in (lens, lens[::-1]):
        cu_seqlens = np.cumsum([0, *some, *([padding] if padding else [])], dtype=np.int32)
        for room in rooms:
            room.write(cu_seqlens)
        ours = triton_ops.varlen_attention(query, key, value, rooms[0], 0.4)[: sum(lens)]
        torchs = reference.varlen_attention(query, key, value, rooms[1], 0.4)[: sum(lens)]
        wide = (x.double() for x in (query, key, value))
        exact = reference.varlen_attention(*wide, cu_seqlens, 0.4)[: sum(lens)]
        assert not torchs.isnan().any()
        assert_no_worse(ours, torchs, exact)


@pytest.mark.parametrize("ops", [triton_ops, reference])
def test_ends_for_which_there_is_no_room_are_refused(ops):
    room = ops.make_segments(8, 2, 4, torch.ones(1))
    with pytest.raises(ValueError, match="segments end at 7, there are 8 rows"):
        room.write(np.array([0, 7], np.int32))
    with pytest.raises(ValueError, match="3 segments, there is room for 2"):
        room.write(np.array([0, 1, 2, 8], np.int32))
    with pytest.raises(ValueError, match="varlen_attention: 3 rows, cu_seqlens end at 8"):
        triton_ops.varlen_attention(
            *[torch.ones(3, 1, 4)] * 3, triton_ops.make_segments(8, 2, 4, torch.ones(1)), 1.0
        )
