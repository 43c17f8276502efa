"""Kernels run on the CPU here, under Triton's interpreter; whole models are tests/tiny's."""

import os
import sys
from pathlib import Path

assert os.environ["TRITON_INTERPRET"] == "1", "tests/kernels run under Triton's interpreter"
sys.path.append(str(Path(__file__).parents[1] / "tiny"))
