"""What a vision tower knows of its pictures before it sees a pixel: everything that grids decide.

Worked out on the host and sent ahead, so that the layers themselves wait for nothing and, where all
shapes are fixed, can be captured. Attends to nothing and holds no weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from vlmcli.kernels.segments import Ends

Grid = tuple[int, int, int]
Rope = tuple[Tensor, Tensor] | None
"""Cosines and sines of rotary positions; None for a tower without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerInputs:
    """For N patches of several pictures, one behind the other."""

    ends: Ends
    """Of the pictures, or of whatever attends within itself, in patches."""
    rope: Rope = None
    """[N, head_dim / 2] each."""
    corners: tuple[Tensor, Tensor] | None = None
    """[N, 4] each: vectors of learned positions around a patch, and their shares."""
    cells: Tensor | None = None
    """int64, flat or not: an order of cells or of patches, a permutation of its first numbers."""
    windows: Ends | None = None
    """Of the windows, in patches, once cells are in that order."""


@runtime_checkable
class StaticTower(Protocol):
    """A tower whose work is a function of shapes, given `TowerInputs`."""

    def prepare(self, grids: Sequence[Grid]) -> TowerInputs:
        """For pictures with these grids, on the tower's device."""

    def run(self, patches: Tensor, inputs: TowerInputs) -> Tensor:
        """uint8 patches [N, values] to visual tokens; allocates and launches, waits for nothing."""
