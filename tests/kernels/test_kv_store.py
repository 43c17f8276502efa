"""KV in other formats: rounding is bounded, blocks keep their places, attention reads them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.kernels import reference
from vlmcli.kernels.kv_store import (
    KVPart,
    KVPlane,
    dequantise,
    gather_rows,
    quantise,
    store_rows,
)

HEADS, DIM, SIZE = 2, 8, 4
SEEDS = st.integers(0, 2**31)


def rows_of(count: int, seed: int) -> torch.Tensor:
    """Rows of very different magnitudes, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, HEADS, DIM, generator=generator)
    exponents = torch.randint(-8, 8, (count, HEADS, 1), generator=generator)
    rows *= 10.0**exponents
    rows[torch.rand(count, generator=generator) < 0.1] = 0
    return rows


def plane(num_text: int, num_vision: int, text: torch.dtype, vision: torch.dtype) -> KVPlane:
    """Blocks full of rubbish."""

    def part(num_blocks: int, dtype: torch.dtype) -> KVPart:
        shape = (num_blocks, SIZE, HEADS, DIM)
        if dtype != torch.int8:
            return KVPart(torch.full(shape, float("nan"), dtype=dtype))
        return KVPart(torch.full(shape, 77, dtype=dtype), torch.full(shape[:3], float("nan")))

    return KVPlane(part(num_text, text), part(num_vision + 1, vision) if num_vision else None)


@given(st.integers(1, 40), SEEDS)
def test_a_round_trip_errs_by_half_a_step(count, seed):
    rows = rows_of(count, seed)
    data, scales = quantise(rows)
    assert data.dtype == torch.int8 and scales.dtype == torch.float32
    assert scales.shape == (count, HEADS)
    back = dequantise(data, scales, torch.float32)
    step = rows.abs().amax(-1, keepdim=True) / 127
    assert ((back - rows).abs() <= 0.5001 * step).all()
    assert (back[rows == 0] == 0).all()
    again, _ = quantise(back)
    assert torch.equal(again, data)


@given(
    st.sampled_from([torch.float32, torch.bfloat16, torch.int8]),
    st.sampled_from([None, torch.int8, torch.bfloat16]),
    SEEDS,
)
def test_rows_come_back_from_their_slots_alone_or_together(text, vision, seed):
    rng = np.random.default_rng(seed)
    num_vision = 3 if vision is not None else 0
    cache = plane(4, num_vision, text, vision or text)
    places = SIZE + rng.permutation((3 + num_vision) * SIZE)
    slots = torch.from_numpy(places[:12])
    rows = rows_of(len(slots), seed)
    padded = torch.cat([slots, torch.tensor([-1, -1])])
    store_rows(cache, torch.cat([rows, rows[:2] * float("nan")]), padded)
    single = plane(4, num_vision, text, vision or text)
    for i in range(len(slots)):
        store_rows(single, rows[i : i + 1], slots[i : i + 1])
    back = gather_rows(cache, slots, torch.float32)
    assert torch.equal(back, gather_rows(single, slots, torch.float32))
    for row, found, slot in zip(rows, back, slots.tolist(), strict=True):
        stored = (vision if slot >= 4 * SIZE else text) or text
        if stored == torch.int8:
            expected = dequantise(*quantise(row), torch.float32)
        else:
            expected = row.to(stored).float()
        assert torch.equal(found, expected)


@pytest.mark.parametrize("vision", [torch.int8, torch.bfloat16])
def test_attention_reads_what_was_stored(vision):
    cases = np.array([[5, 1, 6], [2, 7, 0]], dtype=np.int32)
    caches = [plane(5, 4, torch.float32, vision) for _ in range(2)]
    slots = torch.tensor([b * SIZE + i for b in (5, 1, 6, 2, 7) for i in range(SIZE)])
    plain = []
    for number, cache in enumerate(caches):
        store_rows(cache, rows_of(len(slots), number) / 1e8, slots)
        tensor = torch.full((9, SIZE, HEADS, DIM), float("nan"))
        tensor.view(-1, HEADS, DIM)[slots] = gather_rows(cache, slots, torch.float32)
        plain.append(tensor)
    query = torch.randn(5, 4, DIM)
    for context, starts in (((12, 7), (0, 4, 5)), ((9, 8), (0, 2, 5))):
        plan = reference.plan_paged(
            cases, np.array(context, np.int32), np.array(starts, np.int32), SIZE, query
        )
        found = reference.paged_attention(query, *caches, plan, 0.3)
        assert not found.isnan().any()
        assert torch.equal(found, reference.paged_attention(query, *plain, plan, 0.3))
