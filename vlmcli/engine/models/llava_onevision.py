"""LLaVA-OneVision: SigLIP over tiles, an MLP, a mosaic of the tiles' tokens, a Qwen2 decoder.

Covers checkpoints of transformers' `llava_onevision` type. A picture is a base tile of the whole,
and tiles whose tokens are put side by side, freed of padding, shrunk where they are too many, and
ended row by row with a learned break. The tokens of a row come out of several tiles, so the mosaic
is one image to the engine, and is reused as a whole or not at all. Each picture of a prompt is
treated like an only one; the publishers' coarser treatment of several is not covered, nor is video.
Li et al. 2024, "LLaVA-OneVision", arXiv 2408.03326, section 3.2.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlmcli.engine.config import ModelConfig, ProcessorConfig, VisionConfig
from vlmcli.engine.geometry import (
    ImageGeometry,
    LlavaOneVisionConfig,
    Mosaic,
    llava_onevision,
    llava_onevision_config,
    llava_onevision_mosaic,
)
from vlmcli.engine.layers import Layer, Linear, WeightSlot, copy_slot, parameter
from vlmcli.engine.models import siglip
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
from vlmcli.engine.preprocess import resize
from vlmcli.engine.views import Part, Pixels, View, square_tiles
from vlmcli.errors import ModelError
from vlmcli.kernels import Ops

CHAT = (
    "<|im_start|>user ",
    "\n{question}<|im_end|><|im_start|>assistant\n",
)
_VISION = {
    "hidden_size": 1152,
    "num_hidden_layers": 26,
    "num_attention_heads": 16,
    "intermediate_size": 4304,
}
_UNUSED = re.compile(r"vision_tower\.(?:vision_model\.)?(?:post_layernorm|head)\.")
"""Behind the layer whose output is used."""
_NAMES = rules(
    (r"^language_model\.lm_head\.", "lm_head."),
    (r"^model\.image_newline$", "image_newline"),
    (r"^(?:model\.)?language_model\.(?:model\.)?", "model."),
    (r"^(?:model\.)?multi_modal_projector\.", "visual.merger."),
    (r"^(?:model\.)?vision_tower\.(?:vision_model\.)?", "visual."),
)


class Projector(nn.Module):
    """An MLP from the tower's width to the decoder's, patch by patch."""

    def __init__(self, config: VisionConfig, *, bias: bool) -> None:
        super().__init__()
        self.linear_1 = Linear(config.hidden_size, config.out_hidden_size, bias=bias)
        self.linear_2 = Linear(config.out_hidden_size, config.out_hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[N, hidden] to [N, out_hidden]."""
        tokens: Tensor = self.linear_2(self.linear_1.activated(x, "gelu"))
        return tokens


class LineBreak(Layer):
    """The learned token behind each row of a picture."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = parameter(hidden_size)

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """The checkpoint has it under the plain name."""
        yield name, copy_slot(self.weight)


class LlavaOneVision(Qwen2VL):
    """The whole model: another tower in the frame of Qwen2-VL, and the mosaic behind it."""

    def __init__(self, config: ModelConfig, ops: Ops, *, adjacent: bool) -> None:
        super().__init__(config, ops, adjacent=adjacent)
        self.image_newline = LineBreak(config.text.hidden_size)

    @staticmethod
    def make_tower(config: ModelConfig, ops: Ops, *, adjacent: bool) -> nn.Module:
        """The vision half; it has no rotary positions that `adjacent` could speak of."""
        vision = config.vision
        rows = patch_order(vision.tile_side, 1)
        return TileTower(
            config,
            ops,
            positions=TilePositions(vision.hidden_size, len(rows), rows),
            merger=Projector(vision, bias=vision.has_merger_bias),
            post_norm=False,
        )

    def assemble(self, tokens: Tensor, mosaic: Mosaic) -> Tensor:
        """[tiles · side², hidden] tokens of tiles, row by row, to [num_tokens, hidden]."""
        tile_rows, tile_columns = mosaic.tiles
        side = math.isqrt(len(tokens) // (tile_rows * tile_columns))
        plane = tokens.view(tile_rows, tile_columns, side, side, -1).permute(4, 0, 2, 1, 3)
        plane = plane.reshape(-1, tile_rows * side, tile_columns * side)
        (rows, columns), (height, width) = mosaic.kept, plane.shape[1:]
        top, left = (height - rows) // 2, (width - columns) // 2
        plane = plane[:, top : top + rows, left : left + columns]
        if mosaic.shape != mosaic.kept:
            plane = F.interpolate(plane.unsqueeze(0), mosaic.shape, mode="bilinear").squeeze(0)
        breaks = self.image_newline.weight.view(-1, 1, 1).expand(-1, plane.shape[1], 1)
        return torch.cat((plane, breaks), dim=2).flatten(1).t().contiguous()


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """A `llava_onevision` config.json made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know.
    """
    with faults_named("llava_onevision"):
        text = raw["text_config"]
        _require_known(raw)
        tied = is_tied(raw, text, default=False)
        vision = _parse_vision(raw, int(text["hidden_size"]))
        return ModelConfig(
            model_type="llava_onevision",
            text=parse_plain_text("llava_onevision", text, tied=tied),
            vision=vision,
            processor=parse_pixels(processor, _parse_geometry(raw, processor)),
            image_token_id=int(raw.get("image_token_index", raw.get("image_token_id", 151646))),
            dtype=stored_dtype(raw),
        )


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor; None for one that carries no weight."""
    if _UNUSED.search(name):
        return None
    return renamed(renamed(name, _NAMES), siglip.NAMES)


def geometry(width: int, height: int, processor: ProcessorConfig) -> ImageGeometry:
    """Canvas, tiles and token count of a picture of `width` × `height` pixels."""
    assert isinstance(processor.geometry, LlavaOneVisionConfig)
    return llava_onevision(width, height, processor.geometry)


def cut(pixels: npt.NDArray[np.uint8], config: ModelConfig) -> list[Part]:
    """A picture, (H, W, 3) or (H, W) uint8, to its base tile and the mosaic of its tiles.

    Tiles lose the pixels behind their last whole patch.
    """
    processor = config.processor
    settings = processor.geometry
    assert isinstance(settings, LlavaOneVisionConfig)
    size, kept = settings.tile_size, settings.side * settings.patch_size
    mosaic = llava_onevision_mosaic(pixels.shape[1], pixels.shape[0], settings)
    rows, columns = mosaic.tiles
    canvas = fitted(pixels, columns * size, rows * size, processor.resample)
    tiles = [tile[:kept, :kept] for tile in square_tiles(canvas, size)]
    base = resize(pixels, size, size, processor.resample)[:kept, :kept]
    return [
        View(pixels=base, num_tokens=settings.side**2),
        View(pixels=np.concatenate(tiles), num_tokens=mosaic.num_tokens, mosaic=mosaic),
    ]


def fitted(pixels: Pixels, width: int, height: int, resample: int) -> Pixels:
    """A picture in its own shape in the middle of a black canvas, as large as it can be."""
    across, down = width / pixels.shape[1], height / pixels.shape[0]
    inner_width, inner_height = width, height
    if across < down:
        inner_height = min(math.ceil(pixels.shape[0] * across), height)
    else:
        inner_width = min(math.ceil(pixels.shape[1] * down), width)
    canvas = np.zeros((height, width, *pixels.shape[2:]), np.uint8)
    top, left = (height - inner_height) // 2, (width - inner_width) // 2
    inner = resize(pixels, inner_width, inner_height, resample)
    canvas[top : top + inner_height, left : left + inner_width] = inner
    return canvas


def _require_known(raw: dict[str, Any]) -> None:
    vision = raw["vision_config"]
    require_known(
        "llava_onevision",
        (raw, "projector_hidden_act", "gelu"),
        (raw, "vision_feature_layer", -1),
        (raw, "vision_feature_select_strategy", "full"),
        (vision, "model_type", "siglip_vision_model"),
        (vision, "hidden_act", "gelu_pytorch_tanh"),
    )


def _parse_vision(raw: dict[str, Any], out_size: int) -> VisionConfig:
    vision = raw["vision_config"]
    patch, image = int(vision.get("patch_size", 14)), int(vision.get("image_size", 384))
    return VisionConfig(
        **picture_tower_fields(_VISION | vision),
        out_hidden_size=out_size,
        patch_size=patch,
        merge_size=1,
        activation="gelu_tanh",
        rope_theta=0.0,
        tile_side=image // patch,
        has_merger_bias=bool(raw.get("multimodal_projector_bias", True)),
    )


def _parse_geometry(raw: dict[str, Any], processor: dict[str, Any]) -> LlavaOneVisionConfig:
    settings = llava_onevision_config(raw, processor)
    size = processor.get("size") or {}
    stated = int(size.get("height") or size.get("shortest_edge") or settings.tile_size)
    if stated != settings.tile_size or any(n % stated for pair in settings.pinpoints for n in pair):
        raise ModelError(
            f"tiles of {stated} pixels for a tower of {settings.tile_size}, or canvases that "
            "tiles do not fill, are not supported"
        )
    return settings
