"""A SigLIP tower for pictures of any size: learned positions by where a patch lies in its picture.

Patches go row by row, image by image, and come out as they went in: connectors are elsewhere.
Dehghani et al. 2023, "Patch n' Pack", arXiv 2307.06304, section 2.1, for positions as fractions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vlmcli.engine.config import ProcessorConfig, VisionConfig
from vlmcli.engine.layers import Layer, parameter
from vlmcli.engine.models.names import Rules, rules
from vlmcli.engine.models.tower_inputs import Grid
from vlmcli.engine.models.vision import PatchEmbed, VisionBlock, frame_ends, vision_norm
from vlmcli.kernels import Ops

NAMES: Rules = rules(
    (r"^visual\.embeddings\.patch_embedding\.", "visual.patch_embed.proj."),
    (r"^visual\.embeddings\.position_embedding\.", "visual.pos_embed."),
    (r"^visual\.encoder\.layers\.", "visual.blocks."),
    (r"^visual\.post_layernorm\.", "visual.post_norm."),
    (r"^(visual\.blocks\.\d+)\.layer_norm([12])\.", r"\1.norm\2."),
    (r"^(visual\.blocks\.\d+)\.self_attn\.out_proj\.", r"\1.attn.proj."),
    (r"^(visual\.blocks\.\d+)\.self_attn\.", r"\1.attn."),
)
"""SigLIP's names in transformers, below `visual.`, to those of the modules here."""


class BucketPositions(Layer):
    """[side²] vectors over a square; a patch has the one into which its upper left corner falls."""

    def __init__(self, side: int, hidden_size: int) -> None:
        super().__init__()
        self.side = side
        self.weight = parameter(side * side, hidden_size)

    def forward(self, grids: Sequence[Grid]) -> Tensor:
        """[N, hidden] for the patches of images with these grids, row by row."""
        ids = [
            bucket_ids(rows, columns, self.side).repeat(frames) for frames, rows, columns in grids
        ]
        return self.weight.index_select(0, torch.cat(ids).to(self.weight.device))


def bucket_ids(rows: int, columns: int, side: int) -> Tensor:
    """[rows · columns] int64: which of `side`² positions each patch of a picture has, row by row.

    That into which its upper left corner falls.
    """
    return (_buckets(rows, side).view(-1, 1) * side + _buckets(columns, side)).flatten()


def _buckets(count: int, side: int) -> Tensor:
    # The roundings of float32 decide where a corner lies on a border, so they are those of the
    # models' own code.
    borders = torch.arange(1 / side, 1.0, 1 / side, device="cpu")
    step = 1.0 / torch.tensor(count, device="cpu")
    places = torch.arange(count, dtype=torch.float32, device="cpu") * step
    return torch.bucketize(places.clamp(max=1.0 - 1e-6), borders, right=True)


class SiglipTower(nn.Module):
    """Patches of several images to vectors of the tower's width."""

    def __init__(self, config: VisionConfig, processor: ProcessorConfig, ops: Ops) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(config, processor)
        self.pos_embed = BucketPositions(config.position_side, config.hidden_size)
        self.blocks = nn.ModuleList(
            VisionBlock(config, ops, adjacent=False) for _ in range(config.num_layers)
        )
        self.post_norm = vision_norm(config, ops)

    def features(self, patches: Tensor, grids: Sequence[Grid]) -> Tensor:
        """[N, channels · size²] uint8 of images with the given grids to [N, hidden]."""
        x = self.patch_embed(patches)
        x.add_(self.pos_embed(grids))
        cu_seqlens = frame_ends(grids)
        for block in self.blocks:
            x = block(x, None, cu_seqlens)
        normed: Tensor = self.post_norm(x)
        return normed
