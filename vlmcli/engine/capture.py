"""Recording a step once and running it again: CUDA graphs, or what they do said without a GPU.

Whoever captures promises that a step reads and writes the same memory every time, and takes what it
returns before the next replay, which overwrites it.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

Step = Callable[[], Tensor]
K = TypeVar("K", bound=Hashable)
_WARM_UPS = 2
_MIB = 1 << 20
_log = logging.getLogger(__name__)


class Capturer(Protocol):
    """Records steps, all of them into one pool of memory."""

    def capture(self, step: Step, *, warm_up: bool) -> Step:
        """Record a step; the result runs it again and always returns the same tensor.

        Raises:
            torch.OutOfMemoryError: there is no room for it.
        """

    def num_bytes(self) -> int:
        """Bytes of device memory that what is recorded has taken."""


class EagerCapturer:
    """The stand-in: every replay runs the step, and its result overwrites the one before."""

    def capture(self, step: Step, *, warm_up: bool) -> Step:
        """Records nothing; the first replay makes the tensor that all of them return."""
        del warm_up
        kept: list[Tensor] = []

        def replay() -> Tensor:
            found = step()
            if not kept:
                kept.append(found.clone())
            return kept[0].copy_(found)

        return replay

    def num_bytes(self) -> int:
        """None."""
        return 0


class CudaCapturer:
    """CUDA graphs in one pool: they run one after the other, so they share all their memory.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._free_before: int | None = None
        # A pool whose last graph goes cannot be used again; this one never goes.
        anchor = partial(torch.zeros, 1, device=device)
        self._warm_up(anchor)
        self._anchor = self._record(anchor)

    def capture(self, step: Step, *, warm_up: bool) -> Step:
        """Record a step as a graph.

        Args:
            step: allocates and launches on the current stream alone, waits for nothing.
            warm_up: whether the step is run before, as it must be the first time: libraries and
                kernels are set up then, and memory that is short is found short outside of a
                capture.
        """
        if warm_up:
            self._warm_up(step)
        if self._free_before is None:
            self._free_before = self._free()
        graph, output = self._record(step)

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay

    def num_bytes(self) -> int:
        """Memory of the device that is gone since the first capture began."""
        return 0 if self._free_before is None else self._free_before - self._free()

    def _warm_up(self, step: Step) -> None:
        stream: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                step()
        torch.cuda.current_stream(self._device).wait_stream(stream)

    def _record(self, step: Step) -> tuple[Any, Tensor]:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                output = step()
        except RuntimeError as error:
            # Ending a capture that ran out of memory fails as well, and hides why.
            if isinstance(error.__context__, torch.OutOfMemoryError):
                raise error.__context__ from error
            raise
        return graph, output

    def _free(self) -> int:
        """Bytes that the device has left when nothing is kept for later tensors."""
        torch.cuda.empty_cache()
        free: int = torch.cuda.mem_get_info(self._device)[0]
        return free


def capture_all(
    capturer: Capturer,
    steps: Iterable[tuple[K, Step]],
    max_bytes: int | None,
    *,
    warm_up: bool,
) -> dict[K, Step]:
    """Record steps, and leave out with a warning those that do not fit.

    Args:
        capturer: records them.
        steps: of each what it is for, as a warning says it, and the step; the largest first, so
            that the others find their memory in what it has taken.
        max_bytes: of all that the capturer holds; None for as many as there are.
        warm_up: as in `Capturer.capture`.
    """
    replays: dict[K, Step] = {}
    for name, step in steps:
        try:
            replay = capturer.capture(step, warm_up=warm_up)
        except torch.OutOfMemoryError:
            _log.warning("no memory for the graph of %s; it runs eagerly", name)
            continue
        replays[name] = replay
        if max_bytes is not None and capturer.num_bytes() > max_bytes:
            del replays[name], replay
            _log.warning(
                "the graph of %s does not fit into %.1f MiB; it runs eagerly",
                name,
                max_bytes / _MIB,
            )
    return replays
