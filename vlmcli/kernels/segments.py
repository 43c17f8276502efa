"""Where packed sequences end, as something that may change while a captured step stays the same.

`varlen_attention` takes cumulative lengths, or this: room for them that is made once, written
before each replay and read when the step runs. Rows that pad a batch are a sequence of their own.
Holds what plain torch needs; `varlen_attention.TileTable` is the same for Triton.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

Int32Array = npt.NDArray[np.int32]


class Segments(Protocol):
    """Room for the ends of some sequences that have a fixed number of rows in all."""

    def write(self, cu_seqlens: Int32Array) -> None:
        """Take over cumulative lengths, as `varlen_attention` knows them.

        Raises:
            ValueError: they do not end at the number of rows, or are too many.
        """


Ends = Int32Array | Segments
"""What `varlen_attention` takes: [S + 1] cumulative lengths, or room for them."""


class HostSegments:
    """Ends on the host, for steps that run again instead of being replayed.

    Args:
        num_rows: of all sequences together.
        max_segments: sequences at most.
    """

    def __init__(self, num_rows: int, max_segments: int) -> None:
        self.num_rows, self.max_segments = num_rows, max_segments
        self.ends: Int32Array = np.array([0, num_rows], dtype=np.int32)

    def write(self, cu_seqlens: Int32Array) -> None:
        """Take over cumulative lengths.

        Raises:
            ValueError: they do not end at the number of rows, or are too many.
        """
        require_fit(cu_seqlens, self.num_rows, self.max_segments)
        self.ends = cu_seqlens


def make_segments(
    num_rows: int, max_segments: int, head_dim: int, like: Tensor
) -> HostSegments | None:
    """Room for ends of sequences; None off the CPU, where plain torch has shapes follow from them.

    Args:
        num_rows: of all sequences together.
        max_segments: sequences at most.
        head_dim: of the attention that will read it.
        like: any tensor of the dtype and device of its queries.
    """
    del head_dim
    return HostSegments(num_rows, max_segments) if like.device.type == "cpu" else None


def require_fit(cu_seqlens: Int32Array, num_rows: int, max_segments: int) -> None:
    """Refuse ends for which there is no room.

    Raises:
        ValueError: they do not end at `num_rows`, or are too many.
    """
    if int(cu_seqlens[-1]) != num_rows:
        raise ValueError(f"segments end at {cu_seqlens[-1]}, there are {num_rows} rows")
    if len(cu_seqlens) - 1 > max_segments:
        raise ValueError(f"{len(cu_seqlens) - 1} segments, there is room for {max_segments}")
