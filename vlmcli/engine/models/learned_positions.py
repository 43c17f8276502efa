"""Learned positions of a vision tower: a square of vectors, resampled to the grid of each image."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vlmcli.engine.layers import Layer, parameter


class LearnedPositions(Layer):
    """[side²] vectors over a square, bilinear in between.

    Corners of the picture fall on corners of the square, or centres of patches on their share of
    it where positions are `centred`: then what lies beyond the outer vectors takes theirs.
    """

    def __init__(self, side: int, hidden_size: int, *, centred: bool = False) -> None:
        super().__init__()
        self.side, self.centred = side, centred
        self.weight = parameter(side * side, hidden_size)

    def forward(
        self, places: npt.NDArray[np.int32], grids: Sequence[tuple[int, int, int]]
    ) -> Tensor:
        """[N, hidden] for N patches at [N, 2] rows and columns of images with these grids."""
        counts = [int(np.prod(grid)) for grid in grids]
        sizes = np.repeat(np.array(grids)[:, 1:], counts, axis=0)
        if self.centred:
            centres = (places.astype(np.float32) + 0.5) * np.float32(self.side) / sizes - 0.5
            where = np.clip(centres, 0, self.side - 1)
        else:
            where = places.astype(np.float32) * np.float32(self.side - 1) / np.maximum(sizes - 1, 1)
        low = np.floor(where).astype(np.int64)
        high = np.minimum(low + 1, self.side - 1)
        share = (where - low).astype(np.float32)
        total = torch.zeros(len(places), self.weight.shape[1], device=self.weight.device)
        for row, of_row in ((low[:, 0], 1 - share[:, 0]), (high[:, 0], share[:, 0])):
            for column, of_column in ((low[:, 1], 1 - share[:, 1]), (high[:, 1], share[:, 1])):
                vectors = self.weight.index_select(0, self._to(row * self.side + column))
                total.addcmul_(vectors.float(), self._to(of_row * of_column).unsqueeze(1))
        return total.to(self.weight.dtype)

    def _to(self, array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.weight.device)
