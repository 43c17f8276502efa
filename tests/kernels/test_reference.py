"""The reference kernels against their formulas in float64, over ragged and ugly batches."""

import itertools

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_cases import naive_attention, paged_case

from vlmcli.kernels import reference

FEW = settings(max_examples=40, deadline=None)
sequences = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=7).map(
    lambda pairs: [(query, query + past) for query, past in pairs]
)


@FEW
@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 99))
def test_rms_norm(rows, size, seed):
    torch.manual_seed(seed)
    x, residual, weight = torch.randn(rows, size), torch.randn(rows, size), torch.randn(size)
    total = (x + residual).double()
    expected = total / (total.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    torch.testing.assert_close(
        reference.rms_norm(x + residual, weight, 1e-6).double(), expected, atol=1e-5, rtol=1e-5
    )
    out = reference.add_rms_norm(x, residual, weight, 1e-6)
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(residual.double(), total, atol=1e-6, rtol=1e-6)


def test_rms_norm_in_bfloat16_squares_in_float32():
    x = torch.full((1, 4096), 200.0, dtype=torch.bfloat16)
    out = reference.rms_norm(x, torch.ones(4096, dtype=torch.bfloat16), 1e-6)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), torch.ones(1, 4096))


@FEW
@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 8), st.integers(0, 99))
def test_rotary_turns_pairs(tokens, heads, half, seed):
    torch.manual_seed(seed)
    x, angles = torch.randn(tokens, heads + 1, 2 * half), torch.randn(tokens, half)
    turn = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
    expected = torch.complex(x[..., :half], x[..., half:])[:, :heads] * turn
    halves = x.clone()
    reference.rotary_(halves[:, :heads], angles.cos(), angles.sin(), adjacent=False)
    torch.testing.assert_close(halves[:, :heads, :half], expected.real)
    torch.testing.assert_close(halves[:, :heads, half:], expected.imag)
    assert torch.equal(halves[:, heads:], x[:, heads:]), "heads outside of the view moved"
    sides = torch.stack((x[..., :half], x[..., half:]), -1).flatten(2)
    for dtype in (torch.float32, torch.float64):
        pairs = sides.to(dtype, copy=True)
        reference.rotary_(
            pairs[:, :heads], angles.cos().to(dtype), angles.sin().to(dtype), adjacent=True
        )
        torch.testing.assert_close(pairs[:, :heads, 0::2].float(), expected.real)
        torch.testing.assert_close(pairs[:, :heads, 1::2].float(), expected.imag)


def test_silu_and_mul():
    x = torch.randn(3, 10)
    gate, up = x.double().split(5, -1)
    expected = gate / (1 + (-gate).exp()) * up
    torch.testing.assert_close(reference.silu_and_mul(x).double(), expected, atol=1e-6, rtol=1e-6)


@FEW
@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(0, 99))
def test_store_kv_writes_its_slots_and_nothing_else(is_real, seed):
    torch.manual_seed(seed)
    key_cache, value_cache = torch.randn(6, 3, 2, 4), torch.randn(6, 3, 2, 4)
    key_cache[0] = float("nan")
    slots = torch.randperm(15)[: len(is_real)] + 3
    slots[~torch.tensor(is_real)] = -1
    key, value = torch.randn(len(is_real), 2, 4), torch.randn(len(is_real), 2, 4)
    expected = key_cache.clone().view(18, 2, 4), value_cache.clone().view(18, 2, 4)
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            expected[0][slot], expected[1][slot] = key[row], value[row]
    reference.store_kv(key, value, key_cache, value_cache, slots)
    for cache, wanted in zip((key_cache, value_cache), expected, strict=True):
        torch.testing.assert_close(cache.view(18, 2, 4), wanted, atol=0, rtol=0, equal_nan=True)


@settings(max_examples=150, deadline=None)
@given(sequences, st.integers(1, 5), st.integers(1, 2), st.integers(1, 3), st.integers(0, 9999))
def test_paged_attention(lens, block_size, kv_heads, group, seed):
    torch.manual_seed(seed)
    case = paged_case(lens, block_size, kv_heads, group, seed)
    query, keys, values, tables, contexts, cu_seqlens, dense = case
    plan = reference.plan_paged(tables, contexts, cu_seqlens, block_size, query)
    out = reference.paged_attention(query, keys, values, plan, 0.5)
    for row, (k, v) in enumerate(dense):
        q = query[cu_seqlens[row] : cu_seqlens[row + 1]]
        expected = naive_attention(q, k, v, 0.5, causal=True) if len(k) else torch.zeros(q.shape)
        ours = out[cu_seqlens[row] : cu_seqlens[row + 1]]
        torch.testing.assert_close(ours.double(), expected.double(), atol=1e-5, rtol=1e-5)


def test_rows_without_context_are_zero():
    lens = [(3, 5), (2, 0), (1, 0), (4, 4)]
    query, keys, values, tables, contexts, _, _ = paged_case(lens, 2, 1, 3, 0)
    cu_seqlens = np.array([0, 3, 5, 6, 10], np.int32)
    plan = reference.plan_paged(tables, contexts, cu_seqlens, 2, query)
    out = reference.paged_attention(query, keys, values, plan, 1.0)
    assert not out[3:6].any()
    assert out.isfinite().all()


@FEW
@given(st.lists(st.integers(0, 17), min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 99))
def test_decode_plan_equals_ragged_plan(contexts, block_size, seed):
    torch.manual_seed(seed)
    lens = [(1, context) for context in contexts]
    query, keys, values, tables, lengths, cu_seqlens, _ = paged_case(lens, block_size, 2, 2, seed)
    ragged = reference.plan_paged(tables, lengths, cu_seqlens, block_size, query)
    fixed = reference.plan_decode(
        torch.from_numpy(tables), torch.from_numpy(lengths), block_size, query
    )
    torch.testing.assert_close(
        reference.paged_attention(query, keys, values, fixed, 0.5),
        reference.paged_attention(query, keys, values, ragged, 0.5),
    )


def test_padding_of_a_batch_is_bounded():
    """One long prompt among short ones does not make them pay for its length."""
    lens = [(8, 8)] * 30 + [(600, 600)]
    _, _, _, tables, contexts, cu_seqlens, _ = paged_case(lens, 16, 1, 1, 0)
    plan = reference.plan_paged(tables, contexts, cu_seqlens, 16, torch.empty(0))
    padded = sum(g.num_seqs * g.max_query * g.max_context for g in plan.groups)
    assert padded < 1.5 * sum(query * context for query, context in lens)


@FEW
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 99))
def test_varlen_attention(lens, seed):
    torch.manual_seed(seed)
    cu_seqlens = np.cumsum([0, *lens], dtype=np.int32)
    qkv = torch.randn(int(cu_seqlens[-1]), 3, 2, 4)
    query, key, value = qkv.unbind(1)
    out = reference.varlen_attention(query, key, value, cu_seqlens, 0.5)
    assert out.shape == query.shape
    for start, end in itertools.pairwise(cu_seqlens):
        if start < end:
            part = [x[start:end] for x in (query, key, value)]
            expected = naive_attention(*part, 0.5, causal=False)
            torch.testing.assert_close(out[start:end].double(), expected, atol=1e-5, rtol=1e-5)
