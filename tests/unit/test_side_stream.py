"""What the second stream asks of CUDA, in which order, written down by stand-ins for its objects.

That a card does what it is asked is for tests/gpu.
"""

from contextlib import contextmanager

import pytest
import torch

from vlmcli.engine.side_stream import Ready, SideStream

DEVICE = torch.device("cuda", 0)


class Cuda:
    """Streams, events and tensors that write down what is done to them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = Stream(self, "main")
        self.is_past = False

    def stream(self, device):
        return Stream(self, "side")

    @contextmanager
    def entered(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


class Stream:
    def __init__(self, cuda, name) -> None:
        self.cuda, self.name, self.device = cuda, name, DEVICE

    def wait_stream(self, other) -> None:
        self.cuda.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event) -> None:
        self.cuda.log.append(f"{self.name} waits for the event")


class Event:
    def __init__(self, cuda) -> None:
        self.cuda = cuda

    def record(self, stream) -> None:
        self.cuda.log.append(f"event on {stream.name}")

    def query(self) -> bool:
        return self.cuda.is_past


class Embedding:
    def __init__(self, cuda) -> None:
        self.cuda = cuda

    def record_stream(self, stream) -> None:
        self.cuda.log.append(f"used on {stream.name}")


@pytest.fixture
def cuda(monkeypatch):
    cuda = Cuda()
    monkeypatch.setattr(torch.cuda, "Stream", cuda.stream)
    monkeypatch.setattr(torch.cuda, "Event", lambda: Event(cuda))
    monkeypatch.setattr(torch.cuda, "stream", cuda.entered)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: cuda.current)
    return cuda


def test_work_begins_behind_the_steps_and_is_used_behind_the_work(cuda):
    side = SideStream(DEVICE)

    def work():
        cuda.log.append(f"work on {cuda.current.name}")
        return [Embedding(cuda), Embedding(cuda)]

    started = side.start(work)
    assert cuda.current.name == "main"
    assert cuda.log == ["side waits for main", "work on side", "event on side"]
    assert not started.is_done()
    cuda.is_past = True
    assert started.is_done()
    del cuda.log[:]
    assert len(started.wait()) == 2
    assert cuda.log == ["main waits for the event", "used on main", "used on main"]


def test_work_that_fails_leaves_the_current_stream_as_it_was(cuda):
    def work():
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        SideStream(DEVICE).start(work)
    assert cuda.log == ["side waits for main"] and cuda.current.name == "main"


def test_what_is_ready_asks_nothing_of_anybody(cuda):
    ready = Ready([torch.ones(1)])
    assert ready.is_done() and len(ready.wait()) == 1
    assert cuda.log == []
