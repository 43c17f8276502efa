"""Arrays of the host to a device without waiting for it.

A copy from memory that is not pinned has the host wait until the device has done all that was asked
of it before. Knows no shapes and no streams: the copy is part of the current one.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def upload(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """A tensor of the same numbers on `device`; on a CPU it may share the array's memory.

    torch keeps the pinned copy until the device has read it.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
