"""Kernels run on the CPU here: Triton reads this when it is imported, so it is imported right away.

Nothing else in the suite launches a kernel, apart from tests/gpu, which wants to be run alone.
"""

import contextlib
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
assert "triton" not in sys.modules, "something imported Triton before its interpreter was chosen"

# There may be no Triton for this system; the tests that need it say so and are skipped.
with contextlib.suppress(ImportError):
    import triton  # noqa: F401

# The tiny checkpoints that whole models are built of.
sys.path.append(str(Path(__file__).parents[1] / "tiny"))
