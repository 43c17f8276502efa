"""A failed allocation, however torch, numpy or Python put it; and what a device holds for us."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vlmcli.reading import OutOfMemoryError

_WORDS = ("can't allocate memory", "out of memory", "cannot allocate memory", "bad_alloc")
"""Torch has no type of its own for main memory: a RuntimeError says so in words."""


@contextmanager
def memory_errors_translated() -> Iterator[None]:
    """Failed allocations leave as `OutOfMemoryError`, everything else as it is."""
    try:
        yield
    except MemoryError as error:
        raise OutOfMemoryError(str(error)) from error
    except RuntimeError as error:
        if is_shortage(error):
            raise OutOfMemoryError(str(error)) from error
        raise


def is_shortage(error: Exception) -> bool:
    """Whether an error is a failed allocation of torch's."""
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(word in text for word in _WORDS)
    )


def device_bytes(device: str) -> int:
    """Bytes that torch has taken of a GPU for this process; 0 for the CPU."""
    return torch.cuda.memory_reserved(device) if device.startswith("cuda") else 0


def release_device(device: str) -> None:
    """Give back what torch keeps of a GPU without using it."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
