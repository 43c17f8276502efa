"""Pages in work stay within the limits, whatever comes and goes."""

from hypothesis import given
from hypothesis import strategies as st

from vlmcli.admission import Admission, Limits, PageCost

costs = st.builds(PageCost, worker_bytes=st.integers(0, 100), reader_bytes=st.integers(0, 100))
limits = st.builds(
    Limits,
    jobs=st.integers(1, 4),
    worker_bytes=st.integers(0, 250),
    reader_bytes=st.integers(0, 400),
    max_pages=st.none() | st.integers(1, 5),
)
steps = st.lists(st.tuples(st.sampled_from(["enter", "prepared", "leave"]), costs), max_size=60)


@given(limits, steps)
def test_nothing_is_admitted_beyond_a_limit(limits, steps) -> None:
    admission = Admission(limits)
    workers: dict[int, PageCost] = {}
    reader: dict[int, int] = {}
    for serial, (step, cost) in enumerate(steps):
        if step == "enter" and admission.admits(cost):
            is_first = not workers and not reader
            admission.enter(serial, cost)
            workers[serial] = cost
            drawn = sorted((one.worker_bytes for one in workers.values()), reverse=True)
            pixels = sum(one.reader_bytes for one in workers.values()) + sum(reader.values())
            if not is_first:
                assert sum(drawn[: limits.jobs]) <= limits.worker_bytes
                assert pixels <= limits.reader_bytes
                assert limits.max_pages is None or len(workers) + len(reader) <= limits.max_pages
        elif step == "prepared" and workers:
            first = min(workers)
            # A page never turns out to be more than was kept free for it.
            size = min(cost.reader_bytes, workers.pop(first).reader_bytes)
            reader[first] = size
            admission.prepared(first, size)
        elif step == "leave" and (workers or reader):
            first = min([*workers, *reader])
            admission.leave(first)
            workers.pop(first, None)
            reader.pop(first, None)
        assert admission.num_pages == len(workers) + len(reader)
    for serial in [*workers, *reader]:
        admission.leave(serial)
    assert admission.num_pages == 0
    assert admission.admits(PageCost(worker_bytes=10**9, reader_bytes=10**9))


@given(limits, st.lists(st.integers(-3, 10), max_size=8))
def test_a_narrowed_bound_never_rises_by_narrowing_and_never_reaches_zero(limits, numbers) -> None:
    admission = Admission(limits)
    before = limits.max_pages
    for number in numbers:
        admission.narrow(number)
        assert admission.max_pages is not None and admission.max_pages >= 1
        assert before is None or admission.max_pages <= before
        before = admission.max_pages


def test_a_bound_widens_up_to_where_it_began() -> None:
    admission = Admission(Limits(jobs=1, worker_bytes=0, reader_bytes=0, max_pages=3))
    admission.narrow(1)
    for _ in range(5):
        admission.widen()
    assert admission.max_pages == 3
    unbound = Admission(Limits(jobs=1, worker_bytes=0, reader_bytes=0))
    unbound.widen()
    assert unbound.max_pages is None


def test_many_small_pages_do_not_keep_a_large_one_out_for_ever() -> None:
    admission = Admission(Limits(jobs=2, worker_bytes=100, reader_bytes=100))
    small, large = (
        PageCost(worker_bytes=1, reader_bytes=10),
        PageCost(worker_bytes=99, reader_bytes=95),
    )
    for serial in range(4):
        assert admission.admits(small)
        admission.enter(serial, small)
    # Pages go in order: while the large one waits no other overtakes it, so its time comes.
    waited = 0
    while not admission.admits(large):
        admission.leave(waited)
        waited += 1
    assert waited == 4
