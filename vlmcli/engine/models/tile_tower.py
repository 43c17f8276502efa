"""A vision transformer over square tiles of one size, with learned positions and no rotary ones.

The tower of InternVL, of Idefics3 and SmolVLM, and of LLaVA-OneVision; what comes behind it is the
family's connector. A tile attends within itself alone, so that it gives the same tokens in every
picture that it is part of, up to rounding. Positions are put into the order of patches when they
are loaded, so that the patches of a token are neighbours and merging them costs nothing.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from vlmcli.engine.config import ModelConfig
from vlmcli.engine.layers import Layer, LayerNorm, WeightSlot, copy_slot, parameter
from vlmcli.engine.models.tower_inputs import Grid, TowerInputs
from vlmcli.engine.models.vision import PatchEmbed, VisionBlock, patch_places
from vlmcli.kernels import Ops


def patch_order(side: int, cell_size: int) -> Tensor:
    """[side²] int64: number of each patch, counted row by row, in the order of cells."""
    places = patch_places((1, side, side), cell_size).astype(np.int64)
    return torch.from_numpy(places[:, 0] * side + places[:, 1])


class TilePositions(Layer):
    """A learned vector for each patch of a tile.

    Args:
        hidden_size: width of the tower.
        num_stored: vectors in the checkpoint.
        rows: [patches of a tile] which of them each patch gets.
    """

    num_extra = 0
    """Rows that stand before the patches of each tile."""

    def __init__(self, hidden_size: int, num_stored: int, rows: Tensor) -> None:
        super().__init__()
        self.weight = parameter(len(rows), hidden_size)
        self.num_stored, self.rows = num_stored, rows

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """The checkpoint's vectors, [num_stored, hidden], those of a tile picked out."""
        fill = copy_slot(self.weight, self.rows).fill
        yield f"{name}.weight", WeightSlot((self.num_stored, self.weight.shape[1]), fill)

    def forward(self, x: Tensor) -> Tensor:
        """Patches [tiles, patches, hidden] to rows [tiles, rows, hidden]; may overwrite them."""
        return x.add_(self.weight)


class TileTower(nn.Module):
    """uint8 patches of tiles to visual tokens.

    Args:
        config: of the model.
        ops: kernels.
        positions: the learned ones, and whatever rows they add.
        merger: the connector, hidden states of patches to tokens.
        post_norm: whether a norm stands behind the last block.
    """

    def __init__(
        self,
        config: ModelConfig,
        ops: Ops,
        *,
        positions: TilePositions,
        merger: nn.Module,
        post_norm: bool,
    ) -> None:
        super().__init__()
        vision = config.vision
        self.num_patches = vision.tile_side**2
        self.patch_embed = PatchEmbed(vision, config.processor)
        self.pos_embed = positions
        self.blocks = nn.ModuleList(self.make_block(config, ops) for _ in range(vision.num_layers))
        self.post_norm = LayerNorm(vision.hidden_size, vision.norm_eps) if post_norm else None
        self.merger = merger

    @staticmethod
    def make_block(config: ModelConfig, ops: Ops) -> VisionBlock:
        """One layer; families with another one say so here."""
        return VisionBlock(config.vision, ops, adjacent=False)

    def forward(self, patches: Tensor, grids: Sequence[Grid]) -> Tensor:
        """[tiles · side², channels · size²] uint8 to [tokens, out_hidden].

        `grids` say nothing new here: an image is one tile, or several, one below the other.
        """
        return self.run(patches, self.prepare(grids))

    def prepare(self, grids: Sequence[Grid]) -> TowerInputs:
        """Tiles attend within themselves; positions are the same in each."""
        num_tiles, rest = divmod(sum(t * h * w for t, h, w in grids), self.num_patches)
        assert rest == 0, "tiles are whole"
        num_rows = self.num_patches + self.pos_embed.num_extra
        return TowerInputs(ends=np.arange(num_tiles + 1, dtype=np.int32) * np.int32(num_rows))

    def run(self, patches: Tensor, inputs: TowerInputs) -> Tensor:
        """[tiles · side², channels · size²] uint8 to [tokens, out_hidden]."""
        num_tiles, num_extra = len(patches) // self.num_patches, self.pos_embed.num_extra
        x = self.patch_embed(patches).view(num_tiles, self.num_patches, -1)
        x = self.pos_embed(x).flatten(0, 1)
        for block in self.blocks:
            x = block(x, None, inputs.ends)
        if self.post_norm is not None:
            x = self.post_norm(x)
        if num_extra:
            x = x.view(num_tiles, -1, x.shape[1])[:, num_extra:].reshape(len(patches), -1)
        tokens: Tensor = self.merger(x)
        return tokens
