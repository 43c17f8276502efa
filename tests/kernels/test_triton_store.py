"""Storing keys and values with the kernel leaves the cache as the reference leaves it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from vlmcli.kernels import reference, triton_ops
from vlmcli.kernels.kv_store import KVPart, KVPlane

TEXT, VISION, SIZE = 4, 3, 3
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
FORMATS = st.sampled_from([torch.float32, torch.bfloat16, torch.int8])


def rubbish(num_blocks, heads, dim, dtype):
    """Blocks that nothing was stored in yet."""
    shape = (num_blocks, SIZE, heads, dim)
    if dtype != torch.int8:
        return KVPart(torch.full(shape, float("nan"), dtype=dtype))
    return KVPart(torch.full(shape, 77, dtype=dtype), torch.full(shape[:3], float("nan")))


def copies(plane):
    def part(one):
        if one is None:
            return None
        return KVPart(one.data.clone(), None if one.scales is None else one.scales.clone())

    return KVPlane(part(plane.text), part(plane.vision))


def assert_equal(ours, theirs):
    for one, other in ((ours.text, theirs.text), (ours.vision, theirs.vision)):
        assert (one is None) == (other is None)
        if one is None:
            continue
        if one.scales is None:
            # The interpreter cuts bfloat16 off where a GPU and torch round.
            eps = torch.finfo(one.data.dtype).eps
            close = {"atol": 0, "rtol": eps, "equal_nan": True}
            torch.testing.assert_close(one.data, other.data, **close)
        else:
            torch.testing.assert_close(one.data, other.data, atol=0, rtol=0)
            torch.testing.assert_close(one.scales, other.scales, atol=0, rtol=1e-6, equal_nan=True)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.booleans(), min_size=0, max_size=9),
    st.sampled_from([(1, 1), (2, 8), (3, 5), (1, 80)]),
    DTYPES,
    FORMATS,
    st.none() | FORMATS,
    st.integers(0, 999),
)
def test_slots_are_filled_and_nothing_else(is_real, shape, dtype, text, vision, seed):
    heads, dim = shape
    torch.manual_seed(seed)
    blocks = [rubbish(TEXT, *shape, text), vision and rubbish(VISION + 1, *shape, vision)]
    ours = [copies(KVPlane(*blocks)) for _ in range(2)]
    theirs = [copies(KVPlane(*blocks)) for _ in range(2)]
    num_slots = (TEXT - 1 + (VISION if vision else 0)) * SIZE
    slots = torch.randperm(num_slots)[: len(is_real)] + SIZE
    padding = ~torch.tensor(is_real, dtype=torch.bool)
    slots[padding] = -1
    packed = torch.randn(len(slots), 2 * heads + 1, dim) * 10.0 ** torch.randint(
        -3, 3, (len(slots), 1, 1)
    )
    packed[padding] = float("nan")
    packed[torch.rand(len(slots)) < 0.2] = 0
    key, value = packed.to(dtype).split((heads, heads, 1), dim=1)[:2]
    triton_ops.store_kv(key, value, *ours, slots)
    reference.store_kv(key, value, *theirs, slots)
    for one, other in zip(ours, theirs, strict=True):
        assert_equal(one, other)


def test_a_plain_cache_is_written_in_place():
    caches = [torch.full((3, SIZE, 2, 4), float("nan")) for _ in range(2)]
    key, value = torch.randn(2, 2, 4), torch.randn(2, 2, 4)
    triton_ops.store_kv(key, value, *caches, torch.tensor([4, -1]))
    for cache, rows in zip(caches, (key, value), strict=True):
        flat = cache.view(-1, 2, 4)
        assert torch.equal(flat[4], rows[0])
        assert flat[torch.arange(9) != 4].isnan().all()


def test_what_does_not_fit_is_named():
    rows, slots = torch.ones(1, 2, 4), torch.tensor([0])
    with pytest.raises(ValueError, match=r"store_kv: heads \[2, 4\] to a cache \[1, 3, 2, 5\]"):
        triton_ops.store_kv(rows, rows, *[torch.zeros(1, SIZE, 2, 5)] * 2, slots)
    turned = torch.zeros(1, SIZE, 4, 2).transpose(2, 3)
    with pytest.raises(ValueError, match="store_kv: strides"):
        triton_ops.store_kv(rows, rows, turned, turned, slots)
