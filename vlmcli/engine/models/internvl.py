"""InternVL3 and 3.5: InternViT over tiles, pixel shuffle, an MLP, a Qwen2 or Qwen3 decoder.

Covers checkpoints of transformers' `internvl` type, which the publishers name with `-hf`; those
with code of their own (`internvl_chat`) have other names for the weights and are refused. Zhu et
al. 2025, "InternVL3", arXiv 2504.10479; Chen et al. 2024, "How Far Are We to GPT-4V?", arXiv
2404.16821, section 3.2, for tiles and pixel shuffle.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from vlmcli.engine.config import ModelConfig, ProcessorConfig, VisionConfig
from vlmcli.engine.geometry import ImageGeometry, TileConfig, internvl, tile_config
from vlmcli.engine.layers import Layer, LayerNorm, Linear, WeightSlot, parameter
from vlmcli.engine.models.names import renamed, rules
from vlmcli.engine.models.parsing import (
    faults_named,
    parse_pixels,
    picture_tower_fields,
    require_known,
    stored_dtype,
)
from vlmcli.engine.models.plain_text import is_tied, parse_plain_text
from vlmcli.engine.models.qwen2_vl import Qwen2VL
from vlmcli.engine.models.tile_tower import TilePositions, TileTower, patch_order
from vlmcli.engine.models.tower_inputs import Rope
from vlmcli.engine.models.vision import (
    VisionAttention,
    VisionBlock,
    VisionMLP,
    VisionRMSNorm,
)
from vlmcli.engine.preprocess import resize
from vlmcli.engine.views import Part, View, square_tiles
from vlmcli.errors import ModelError
from vlmcli.kernels import Ops
from vlmcli.kernels.segments import Ends

CHAT = (
    "<|im_start|>user\n",
    "\n{question}<|im_end|>\n<|im_start|>assistant\n",
)
_QK_NORM_EPS = 1e-6
_PROJECTOR_EPS = 1e-5
"""Default of torch's LayerNorm; the projector's config has no entry for it."""
_VISION = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_NAMES = rules(
    (r"^language_model\.lm_head\.", "lm_head."),
    (r"^(?:model\.)?language_model\.(?:model\.)?", "model."),
    (r"^(?:model\.)?multi_modal_projector\.", "visual.merger."),
    (r"^(?:model\.)?vision_tower\.embeddings\.cls_token$", "visual.pos_embed.cls_token"),
    (
        r"^(?:model\.)?vision_tower\.embeddings\.position_embeddings$",
        "visual.pos_embed.position_embeddings",
    ),
    (
        r"^(?:model\.)?vision_tower\.embeddings\.patch_embeddings\.projection\.",
        "visual.patch_embed.proj.",
    ),
    (r"^(?:model\.)?vision_tower\.encoder\.layer\.", "visual.blocks."),
    (r"^(?:model\.)?vision_tower\.layernorm\.", "visual.post_norm."),
    (r"^(visual\.blocks\.\d+)\.layernorm_before\.", r"\1.norm1."),
    (r"^(visual\.blocks\.\d+)\.layernorm_after\.", r"\1.norm2."),
    (r"^(visual\.blocks\.\d+)\.lambda_([12])$", r"\1.scale.lambda_\2"),
    (r"^(visual\.blocks\.\d+)\.attention\.projection_layer\.", r"\1.attn.proj."),
    (r"^(visual\.blocks\.\d+)\.attention\.", r"\1.attn."),
)


class ClassPositions(TilePositions):
    """Positions of the patches, and a learned row before each tile with a position of its own."""

    num_extra = 1

    def __init__(self, hidden_size: int, rows: Tensor) -> None:
        super().__init__(hidden_size, len(rows), rows)
        self.first = parameter(hidden_size)
        self.first_position = parameter(hidden_size)

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """The class token, and the positions of it and of the patches in one tensor."""
        size = len(self.first)
        yield f"{name}.cls_token", WeightSlot((1, 1, size), self._fill_first)
        yield (
            f"{name}.position_embeddings",
            WeightSlot((1, self.num_stored + 1, size), self._fill_positions),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[tiles, patches, hidden] to [tiles, 1 + patches, hidden]."""
        first = (self.first + self.first_position).expand(len(x), 1, -1)
        return torch.cat((first, x.add_(self.weight)), dim=1)

    def _fill_first(self, value: Tensor) -> None:
        self.first.copy_(value.view(-1))

    def _fill_positions(self, value: Tensor) -> None:
        self.first_position.copy_(value[0, 0])
        self.weight.copy_(value[0, 1:][self.rows])


class LayerScale(Layer):
    """A factor for each channel of what attention and MLP add to the residual stream."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.lambda_1 = parameter(hidden_size)
        self.lambda_2 = parameter(hidden_size)


class InternVitAttention(VisionAttention):
    """Attention whose queries and keys may be normalised over all heads together."""

    def __init__(self, config: VisionConfig, ops: Ops) -> None:
        super().__init__(config, ops, adjacent=False)
        if config.has_wide_qk_norm:
            self.q_norm = VisionRMSNorm(config.hidden_size, _QK_NORM_EPS, ops)
            self.k_norm = VisionRMSNorm(config.hidden_size, _QK_NORM_EPS, ops)

    def forward(self, x: Tensor, rope: Rope, ends: Ends) -> Tensor:
        """[N, hidden] to head outputs [N, hidden]; the caller applies proj."""
        query, key, value = self.qkv(x).chunk(3, dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (x.unflatten(1, (self.num_heads, -1)) for x in (query, key, value))
        return self.ops.varlen_attention(query, key, value, ends, self.scale).flatten(1)


class InternVitBlock(VisionBlock):
    """A block whose two outputs are scaled before they are added."""

    def __init__(self, config: VisionConfig, ops: Ops) -> None:
        super().__init__(config, ops, adjacent=False)
        self.attn = InternVitAttention(config, ops)
        self.mlp = VisionMLP(config)
        self.scale = LayerScale(config.hidden_size)

    def forward(self, x: Tensor, rope: Rope, ends: Ends) -> Tensor:
        """[N, hidden] to [N, hidden], in place."""
        attended = self.attn.proj(self.attn(self.norm1(x), rope, ends))
        x.addcmul_(attended, self.scale.lambda_1)
        return x.addcmul_(self.mlp(self.norm2(x)), self.scale.lambda_2)


class ShuffleProjector(nn.Module):
    """Neighbouring patches to one token: norm and an MLP to the decoder's width."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.width = config.hidden_size * config.merge_size**2
        self.layer_norm = LayerNorm(self.width, _PROJECTOR_EPS)
        self.linear_1 = Linear(self.width, config.out_hidden_size)
        self.linear_2 = Linear(config.out_hidden_size, config.out_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """[N, hidden] in the order of cells to [N / merge_size², out_hidden]."""
        merged = self.layer_norm(x.view(-1, self.width))
        tokens: Tensor = self.linear_2(self.linear_1.activated(merged, "gelu"))
        return tokens


class InternVitTower(TileTower):
    """Tiles to visual tokens."""

    @staticmethod
    def make_block(config: ModelConfig, ops: Ops) -> VisionBlock:
        """A block with scaled outputs."""
        return InternVitBlock(config.vision, ops)


class InternVL(Qwen2VL):
    """The whole model: another tower in the frame of Qwen2-VL."""

    @staticmethod
    def make_tower(config: ModelConfig, ops: Ops, *, adjacent: bool) -> nn.Module:
        """The vision half; it has no rotary positions that `adjacent` could speak of."""
        vision = config.vision
        rows = patch_order(vision.tile_side, vision.merge_size)
        return InternVitTower(
            config,
            ops,
            positions=ClassPositions(vision.hidden_size, rows),
            merger=ShuffleProjector(vision),
            post_norm=vision.has_post_norm,
        )


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """An `internvl` config.json made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know.
    """
    with faults_named("internvl"):
        text = raw["text_config"]
        _require_known(raw)
        tied = is_tied(raw, text, default=True)
        vision = _parse_vision(raw, int(text["hidden_size"]))
        return ModelConfig(
            model_type="internvl",
            text=parse_plain_text("internvl", text, tied=tied),
            vision=vision,
            processor=_parse_processor(raw, processor, vision),
            image_token_id=int(raw.get("image_token_id", 151667)),
            dtype=stored_dtype(raw),
        )


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor; None for one that carries no weight.

    The mask token is a leftover of pretraining.
    """
    if name.endswith("vision_tower.embeddings.mask_token"):
        return None
    return renamed(name, _NAMES)


def geometry(width: int, height: int, processor: ProcessorConfig) -> ImageGeometry:
    """Canvas, tiles and token count of a picture of `width` × `height` pixels."""
    assert isinstance(processor.geometry, TileConfig)
    return internvl(width, height, processor.geometry)


def cut(pixels: npt.NDArray[np.uint8], config: ModelConfig) -> list[Part]:
    """A picture, (H, W, 3) or (H, W) uint8, to tiles row by row and a thumbnail behind them."""
    processor = config.processor
    assert isinstance(processor.geometry, TileConfig)
    size = processor.geometry.tile_size
    canvas = geometry(pixels.shape[1], pixels.shape[0], processor)
    tiles = square_tiles(resize(pixels, canvas.width, canvas.height, processor.resample), size)
    if len(tiles) > 1:
        tiles.append(resize(pixels, size, size, processor.resample))
    num_tokens = processor.geometry.tokens_per_tile
    return ["<img>", *(View(pixels=tile, num_tokens=num_tokens) for tile in tiles), "</img>"]


def _require_known(raw: dict[str, Any]) -> None:
    vision = raw["vision_config"]
    require_known(
        "internvl",
        (raw, "projector_hidden_act", "gelu"),
        (raw, "vision_feature_layer", -1),
        (raw, "vision_feature_select_strategy", "default"),
        (vision, "hidden_act", "gelu"),
        (vision, "use_absolute_position_embeddings", True),
    )


def _parse_vision(raw: dict[str, Any], out_size: int) -> VisionConfig:
    vision = raw["vision_config"]
    norm = str(vision.get("norm_type", "layer_norm"))
    if norm not in ("layer_norm", "rms_norm"):
        raise ModelError(f"norm {norm!r} of an internvl tower is not supported")
    patch, image = _side(vision.get("patch_size", 14)), _side(vision.get("image_size", 448))
    return VisionConfig(
        **picture_tower_fields(_VISION | vision),
        out_hidden_size=out_size,
        patch_size=patch,
        merge_size=round(1 / float(raw.get("downsample_ratio", 0.5))),
        activation="gelu",
        rope_theta=0.0,
        norm="rms" if norm == "rms_norm" else "layer",
        has_qkv_bias=bool(vision.get("attention_bias", False)),
        has_wide_qk_norm=bool(vision.get("use_qk_norm", False)),
        has_post_norm=not vision.get("use_mean_pooling", True),
        tile_side=image // patch,
    )


def _parse_processor(
    raw: dict[str, Any], processor: dict[str, Any], vision: VisionConfig
) -> ProcessorConfig:
    tiles = tile_config(raw, processor)
    if tiles.tile_size != vision.tile_side * vision.patch_size:
        raise ModelError(
            f"tiles of {tiles.tile_size} pixels for a tower of "
            f"{vision.tile_side} x {vision.patch_size} are not supported"
        )
    return parse_pixels(processor, tiles, tile_cell_size=vision.merge_size)


def _side(value: Any) -> int:
    """A size in pixels, which may stand as a pair of equal numbers."""
    if isinstance(value, list | tuple):
        if len(set(value)) != 1:
            raise ModelError(f"oblong tiles of {value} pixels are not supported")
        return int(value[0])
    return int(value)
