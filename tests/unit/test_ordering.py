"""Records come out in document order, each once, whatever the order in which they were finished."""

from hypothesis import given
from hypothesis import strategies as st

from vlmcli.ordering import InOrder, record_bytes
from vlmcli.results import PageRecord


def record(document: int, place: int) -> PageRecord:
    return PageRecord(
        document=f"d{document}", page=place + 1, pages=99, status="ok", text="x" * place
    )


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_order_in_document_order_out(sizes: list[int], random: object) -> None:
    order = InOrder()
    events: list[tuple[str, int, int]] = [("expect", d, n) for d, n in enumerate(sizes)]
    events += [("put", d, place) for d, n in enumerate(sizes) for place in range(n)]
    random.shuffle(events)  # type: ignore[attr-defined]
    out: list[tuple[int, int]] = []
    for kind, document, value in events:
        if kind == "expect":
            order.expect(document, value)
        else:
            order.put((document, value), record(document, value))
        out += [key for key, _ in order.take()]
    assert out == [(d, place) for d, n in enumerate(sizes) for place in range(n)]
    assert order.is_empty
    assert order.waiting_bytes == 0


def test_waiting_bytes_count_what_waits() -> None:
    order = InOrder()
    order.expect(0, 3)
    late = [record(0, 1), record(0, 2)]
    order.put((0, 1), late[0])
    order.put((0, 2), late[1])
    assert order.take() == []
    assert order.waiting_bytes == sum(map(record_bytes, late))
    order.put((0, 0), record(0, 0))
    assert [key for key, _ in order.take()] == [(0, 0), (0, 1), (0, 2)]
    assert order.waiting_bytes == 0
