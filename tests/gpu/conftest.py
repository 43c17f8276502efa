"""Tests that need a CUDA device: `TRITON_INTERPRET=0 python -m pytest tests/gpu`.

With the rest of the suite they are skipped: it has Triton run its kernels on the CPU.
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "tiny"))


def why_not() -> str | None:
    """What is missing."""
    if not torch.cuda.is_available():
        return "needs a CUDA device, and torch finds none"
    if importlib.util.find_spec("triton") is None:
        return "needs Triton"
    if os.environ["TRITON_INTERPRET"] != "0":
        return "Triton's interpreter is on: run it with TRITON_INTERPRET=0"
    return None


@pytest.fixture(autouse=True)
def card():
    """The device; skips the test where there is none."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    return torch.device("cuda", 0)
