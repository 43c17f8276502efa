"""Encoder cache: the byte cap holds after every operation, pins hold what is needed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmcli.engine.encoder_cache import EncoderCache

Cache = EncoderCache[str]


def test_an_item_that_nobody_needs_stays_until_there_is_no_room() -> None:
    cache = Cache(100)
    for name in (b"a", b"b", b"c"):
        cache.put(name, name.decode(), 40, ["r"]) if cache.has_room(40) else None
        cache.unpin(name, "r")
        cache.check_integrity()
    assert [name in cache for name in (b"a", b"b", b"c")] == [False, True, True]


def test_use_makes_an_item_young_again() -> None:
    cache = Cache(100)
    for name in (b"a", b"b"):
        cache.put(name, "", 40, ["r"])
        cache.unpin(name, "r")
    cache.pin(b"a", "s")
    cache.unpin(b"a", "s")
    cache.put(b"c", "", 40, ["r"])
    assert b"a" in cache and b"b" not in cache and b"c" in cache


def test_pinned_items_are_never_evicted_and_leave_no_room() -> None:
    cache = Cache(100)
    cache.put(b"a", "", 60, ["r", "s"])
    assert not cache.has_room(60) and cache.has_room(40) and not cache.has_room(40, planned=10)
    cache.unpin(b"a", "r")
    assert not cache.has_room(60)
    cache.unpin(b"a", "s")
    assert cache.has_room(60)


def test_an_oversize_item_is_usable_while_needed_and_evicts_nothing() -> None:
    cache = Cache(100)
    cache.put(b"a", "small", 60, ["r"])
    cache.unpin(b"a", "r")
    assert cache.has_room(500) and not cache.has_room(500, planned=1)
    cache.make_room(500)
    cache.put(b"huge", "huge", 500, ["s"])
    assert b"a" in cache and cache.get(b"huge") == "huge" and cache.num_bytes == 60
    assert not cache.has_room(500), "one oversize item at a time"
    cache.pin(b"huge", "t")
    cache.unpin(b"huge", "s")
    assert b"huge" in cache
    cache.unpin(b"huge", "t")
    assert b"huge" not in cache
    cache.check_integrity()


def test_without_retention_the_cap_only_bounds_what_is_needed() -> None:
    cache = Cache(100, retain=False)
    cache.put(b"a", "", 60, ["r"])
    cache.unpin(b"a", "r")
    assert b"a" not in cache and cache.num_bytes == 0
    cache.check_integrity()


def test_nothing_is_put_for_nobody() -> None:
    with pytest.raises(AssertionError):
        Cache(100).put(b"a", "", 10, [])


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "pin", "unpin"]),
        st.binary(min_size=1, max_size=1).map(lambda b: bytes([b[0] % 8])),
        st.sampled_from(["r", "s", "t"]),
        st.integers(1, 60),
    ),
    max_size=80,
)


@settings(max_examples=100)
@given(OPERATIONS, st.booleans())
def test_any_operations_keep_the_cap(operations: list, retain: bool) -> None:
    cache = Cache(100, retain=retain)
    for operation, name, owner, size in operations:
        if operation == "put" and name not in cache and cache.has_room(size):
            cache.make_room(size)
            cache.put(name, "", size, [owner])
        elif operation == "pin" and name in cache:
            cache.pin(name, owner)
        elif operation == "unpin":
            cache.unpin(name, owner)
        cache.check_integrity()
        assert cache.num_bytes <= 100
    for owner in cache.owners():
        for i in range(8):
            cache.unpin(bytes([i]), owner)
    assert cache.num_pinned_bytes == 0 and not cache.owners()
