"""Learned positions of a vision tower: a square of vectors, resampled to the grid of each image."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vlmcli.engine.layers import Layer, parameter
from vlmcli.kernels.upload import upload


class LearnedPositions(Layer):
    """[side²] vectors over a square, bilinear in between.

    Corners of the picture fall on corners of the square, or centres of patches on their share of
    it where positions are `centred`: then what lies beyond the outer vectors takes theirs.
    """

    def __init__(self, side: int, hidden_size: int, *, centred: bool = False) -> None:
        super().__init__()
        self.side, self.centred = side, centred
        self.weight = parameter(side * side, hidden_size)

    def prepare(
        self, places: npt.NDArray[np.int32], grids: Sequence[tuple[int, int, int]]
    ) -> tuple[Tensor, Tensor]:
        """Between which vectors N patches at [N, 2] rows and columns of images lie.

        Returns:
            [N, 4] int64 of the four around each, and [N, 4] float32 of their shares.
        """
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
        rows = ((low[:, 0], 1 - share[:, 0]), (high[:, 0], share[:, 0]))
        columns = ((low[:, 1], 1 - share[:, 1]), (high[:, 1], share[:, 1]))
        corners = [(row, column) for row in rows for column in columns]
        vectors = np.stack([row * self.side + column for (row, _), (column, _) in corners], 1)
        shares = np.stack([of_row * of_column for (_, of_row), (_, of_column) in corners], 1)
        return upload(vectors, self.weight.device), upload(shares, self.weight.device)

    def forward(self, vectors: Tensor, shares: Tensor) -> Tensor:
        """[N, hidden] of patches for which `prepare` said this."""
        total = torch.zeros(len(vectors), self.weight.shape[1], device=self.weight.device)
        for i in range(vectors.shape[1]):
            picked = self.weight.index_select(0, vectors[:, i])
            total.addcmul_(picked.float(), shares[:, i : i + 1])
        return total.to(self.weight.dtype)
