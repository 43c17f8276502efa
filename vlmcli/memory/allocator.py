"""The C library's allocator, told to give memory back: otherwise a job keeps the most it ever had.

Speaks to glibc, and does nothing where there is another C library. The environment's own settings
(`MALLOC_ARENA_MAX` and the like) are read before this runs and are overruled.
"""

import ctypes
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_LARGE = 4 << 20
"""Bytes from which a block is mapped by itself, and unmapped when it is freed: each of its pages is
then faulted in anew. Measured on 20 scanned pages with the built-in model: 38 CPU s and 440 MiB at
1 MiB, 32 s and 470 MiB at 4 MiB, 31 s and 480 MiB at 16 MiB."""
_ARENAS = 2
_TRIM_SECONDS = 0.5
"""Between two times at which the heap is trimmed while pages are read: 30 MiB less on pages of many
sizes, and no CPU time that could be measured; after each of 300 tiny pages it took 8 %."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_heap_small() -> None:
    """For a process with activations of many sizes: large blocks stay out of the heap.

    By itself glibc moves its threshold up to 32 MiB, and what a small block pins down in such a
    heap is never given back. Few arenas, because each one reserves 64 MiB of address space.
    """
    library = _libc()
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        library.mallopt(_M_TRIM_THRESHOLD, _LARGE)
        library.mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Return what is free in the heap; some milliseconds where there is much."""
    library = _libc()
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


class Trimmer:
    """Gives back what is free in the heap, every now and then.

    Args:
        clock: seconds, for tests.
        trim: gives back.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, trim: Callable[[], None] = give_back
    ) -> None:
        self._clock, self._trim = clock, trim
        self._next = 0.0

    def trim(self) -> None:
        """Give back, unless that was done just now."""
        if self._clock() >= self._next:
            self._trim()
            self._next = self._clock() + _TRIM_SECONDS


@lru_cache(maxsize=1)
def _libc() -> Any:
    return ctypes.CDLL(None)
