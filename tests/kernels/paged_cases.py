"""Ragged batches over a poisoned pool, what attention over them is, and how far off one may be."""

import numpy as np
import torch


def naive_attention(query, key, value, scale, *, causal):
    """float64, one sequence: [q, heads, d] over [c, kv_heads, d]."""
    q_len, c_len = len(query), len(key)
    repeat = query.shape[1] // key.shape[1]
    key, value = (x.double().repeat_interleave(repeat, 1) for x in (key, value))
    scores = torch.einsum("qhd,chd->hqc", query.double(), key) * scale
    if causal:
        last = torch.arange(c_len - q_len, c_len).view(-1, 1)
        scores = scores.masked_fill(torch.arange(c_len) > last, float("-inf"))
    return torch.einsum("hqc,chd->qhd", scores.softmax(-1), value)


def paged_case(lens, block_size, kv_heads, group, seed, dim=4):
    """A pool full of NaN but for the tokens of the sequences, scattered over random blocks."""
    rng = np.random.default_rng(seed)
    needed = [-(-context // block_size) for _, context in lens]
    blocks = iter(rng.permutation(sum(needed)) + 1)
    tables = np.zeros((len(lens), max(1, *needed) + 1), np.int32)
    shape = (sum(needed) + 1, block_size, kv_heads, dim)
    keys, values = (torch.full(shape, float("nan")) for _ in range(2))
    dense = []
    for row, (_, context) in enumerate(lens):
        tables[row, : needed[row]] = [next(blocks) for _ in range(needed[row])]
        k, v = torch.randn(context, kv_heads, dim), torch.randn(context, kv_heads, dim)
        for j in range(context):
            block, offset = tables[row, j // block_size], j % block_size
            keys[block, offset], values[block, offset] = k[j], v[j]
        dense.append((k, v))
    cu_seqlens = np.cumsum([0, *[query for query, _ in lens]], dtype=np.int32)
    query = torch.randn(int(cu_seqlens[-1]), kv_heads * group, dim)
    contexts = np.array([context for _, context in lens], np.int32)
    return query, keys, values, tables, contexts, cu_seqlens, dense


def assert_no_worse(ours, torchs, exact):
    """Ours is not further from the exact result than a few roundings more than torch's is."""
    assert ours.shape == torchs.shape and ours.dtype == torchs.dtype
    assert ours.isfinite().all()
    if not ours.numel():
        return
    exact = exact.double()
    lost = (torchs.double() - exact).abs().max()
    unit = torch.finfo(ours.dtype).eps * exact.abs().max()
    assert (ours.double() - exact).abs().max() <= 2 * lost + 4 * unit
