"""How a cluster is divided up: nothing is given twice, whatever its nodes are."""

from dataclasses import replace

import pytest
from fake_fleet import BUDGETS
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.cluster.layout import Node, lay_out, lay_out_here, share
from vlmcli.errors import UnreachableError
from vlmcli.memory.spread import Spread

NODES = st.lists(
    st.builds(Node, cpus=st.integers(0, 64), gpus=st.integers(0, 8)), min_size=1, max_size=6
)


@given(NODES, st.none() | st.integers(1, 16), st.booleans())
def test_every_worker_has_its_part_of_a_node(nodes, threads, on_gpus):
    try:
        layout = lay_out(nodes, workers=None, threads=threads, on_gpus=on_gpus)
    except UnreachableError:
        if on_gpus:
            assert not any(node.gpus for node in nodes)
        else:
            assert not any(node.cpus >= (threads or 1) for node in nodes)
        return
    assert layout.num_workers >= 1 and layout.cpus >= 1
    assert layout.cpus == threads or threads is None
    if on_gpus:
        assert layout.gpus == 1 and layout.num_workers == sum(node.gpus for node in nodes)
    else:
        assert layout.gpus == 0
        assert layout.num_workers == sum(node.cpus // layout.cpus for node in nodes)


@given(NODES, st.integers(1, 300))
def test_workers_that_are_asked_for_have_room_where_they_can(nodes, workers):
    if not sum(node.cpus for node in nodes):
        return
    layout = lay_out(nodes, workers=workers, threads=None, on_gpus=False)
    room = sum(node.cpus // layout.cpus for node in nodes)
    assert layout.num_workers == workers
    assert room >= workers or layout.cpus == 1


def test_as_many_as_are_asked_for():
    layout = lay_out([Node(cpus=8, gpus=0)], workers=5, threads=4, on_gpus=False)
    assert (layout.num_workers, layout.cpus) == (5, 4)
    with pytest.raises(UnreachableError, match="a GPU"):
        lay_out([Node(cpus=8, gpus=0)], workers=5, threads=4, on_gpus=True)


@given(st.integers(1, 64), st.none() | st.integers(1, 80), st.none() | st.integers(1, 80))
def test_workers_on_this_machine_share_its_processors(cpus, workers, threads):
    layout = lay_out_here(cpus, workers=workers, threads=threads)
    assert layout.num_workers == workers or workers is None
    assert layout.cpus >= 1
    if threads is None and layout.num_workers <= cpus:
        assert layout.cpus * layout.num_workers <= cpus


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1 << 40)), min_size=1))
def test_no_place_is_promised_more_memory_than_it_has(rooms):
    each = share(rooms, "a")
    for place, room in rooms:
        processes = [other for other, _ in rooms].count(place) + (place == "a")
        assert each * processes <= room


@given(st.integers(0, 1 << 40), st.integers(1, 100), st.integers(0, 1 << 30))
def test_the_cap_that_a_remedy_names_is_enough(needed, sharing, apart):
    some = Spread(
        num_workers=1,
        worker_cap_bytes=0,
        driver_cap_bytes=0,
        num_sharing=sharing,
        apart_bytes=apart,
    )
    each = (some.max_memory(needed) - apart) // sharing
    assert replace(some, worker_cap_bytes=each).plan_cap_bytes == needed


@given(st.integers(1, 1000), st.integers(0, 100_000))
def test_pictures_for_all_workers_within_half_of_the_drivers_memory(workers, cap):
    spread = Spread(num_workers=workers, worker_cap_bytes=cap, driver_cap_bytes=cap)
    wide = spread.widen(BUDGETS)
    assert 100 <= wide.reader_bytes <= max(100, min(workers * 100, cap // 2))
    assert wide.overlap
