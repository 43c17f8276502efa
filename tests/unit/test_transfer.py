"""Objects cross between processes as they are, large buffers and all."""

import os
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli import transfer


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    first, second = Pipe()
    yield first, second
    first.close()
    second.close()


@given(st.lists(st.integers(0, 400_000), max_size=5), st.text(max_size=20))
def test_what_is_sent_arrives(sizes: list[int], text: str) -> None:
    first, second = Pipe()
    sent = (text, [np.arange(size, dtype=np.uint8).reshape(1, -1) for size in sizes])
    thread = threading.Thread(target=transfer.send, args=(first, sent))
    thread.start()
    name, arrays = transfer.receive(second)
    thread.join()
    first.close()
    second.close()
    assert name == text
    assert [array.shape for array in arrays] == [(1, size) for size in sizes]
    assert all(map(np.array_equal, arrays, sent[1]))
    # Torch warns of arrays that must not be written to.
    assert all(array.flags.writeable for array in arrays)


def test_a_strided_picture_arrives_whole(ends: tuple[Connection, Connection]) -> None:
    picture = np.arange(600_000, dtype=np.uint8).reshape(600, 1000)[::2, ::-1]
    thread = threading.Thread(target=transfer.send, args=(ends[0], picture))
    thread.start()
    assert np.array_equal(transfer.receive(ends[1]), picture)
    thread.join()


def test_an_end_within_an_object_is_an_end(ends: tuple[Connection, Connection]) -> None:
    ends[0].send(([1000], b"stream"))
    os.write(ends[0].fileno(), b"x" * 10)
    ends[0].close()
    with pytest.raises((EOFError, OSError)):
        transfer.receive(ends[1])
