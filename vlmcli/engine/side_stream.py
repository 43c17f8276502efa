"""Work of the encoder on a CUDA stream of its own, beside the decoder's.

Results are handed over by an event that the other stream waits for, and marked as used there, so
that the allocator does not give their memory to the next batch while the decoder may still read it.
Off CUDA there is no stream: what is asked for is there at once, and `Ready` says so.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Ready:
    """Embeddings that whoever asked may use right away."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors

    def is_done(self) -> bool:
        """Always."""
        return True

    def wait(self) -> list[Tensor]:
        """The embeddings."""
        return self._tensors


class Started:
    """Embeddings that a stream is still computing."""

    def __init__(self, tensors: list[Tensor], stream: Any) -> None:
        self._tensors, self.stream = tensors, stream
        self._event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(stream)

    def is_done(self) -> bool:
        """Whether they are computed."""
        return bool(self._event.query())

    def wait(self) -> list[Tensor]:
        """The embeddings, for the current stream, which waits for them; the host does not."""
        current = torch.cuda.current_stream(self.stream.device)
        current.wait_event(self._event)
        for tensor in self._tensors:
            tensor.record_stream(current)
        return self._tensors


class SideStream:
    """A stream beside the one that steps run on.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def start(self, work: Callable[[], list[Tensor]]) -> Started:
        """Begin, behind everything that the current stream has been asked for so far.

        Args:
            work: launches on the current stream and waits for nothing.
        """
        self.stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self.stream):
            return Started(work(), self.stream)
