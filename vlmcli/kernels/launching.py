"""What all Triton kernels share when they are launched: block sizes, options, and refusals.

Launches nothing itself. Importing it imports Triton.
"""

import triton
from torch import Tensor

MAX_ROW = 65_536
"""Longest row that one program holds at once, in elements."""
OPTIONS = {"enable_fp_fusion": True}
"""Said aloud because newer Tritons warn where it is not."""


def power_of_2(size: int, least: int = 1) -> int:
    """The smallest power of two that is neither below `size` nor below `least`, itself one."""
    return max(least, int(triton.next_power_of_2(size)))


def power_of_2_within(limit: int, least: int = 1) -> int:
    """The largest power of two that is not above `limit`, but at least `least`."""
    return max(least, 1 << (max(1, limit).bit_length() - 1))


def require(is_met: bool, op: str, fault: str) -> None:
    """Refuse what a kernel cannot do.

    Raises:
        ValueError: it names the op and, in `fault`, the value that is in the way.
    """
    if not is_met:
        raise ValueError(f"{op}: {fault}")


def require_dense(op: str, **tensors: Tensor) -> None:
    """Refuse tensors whose last dimension has gaps.

    Raises:
        ValueError: it names the tensor and its stride.
    """
    for name, tensor in tensors.items():
        is_dense = tensor.stride(-1) == 1 or tensor.shape[-1] == 1
        require(is_dense, op, f"last stride of {name} is {tensor.stride(-1)}, not 1")


def is_interpreted() -> bool:
    """Whether kernels run on the CPU under Triton's interpreter (TRITON_INTERPRET=1).

    It holds bfloat16 as integers and would multiply them as such, so matrix products there are fed
    with float32, which holds every product of two bfloat16 numbers exactly.
    """
    return bool(triton.knobs.runtime.interpret)
