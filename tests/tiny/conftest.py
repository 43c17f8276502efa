"""Tiny checkpoints are read from the command line too: tests/cli has what starts that."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "cli"))
