"""Idefics3, SmolVLM and SmolVLM2: SigLIP over tiles, pixel shuffle, one product, a Llama decoder.

Covers checkpoints of transformers' types `idefics3` (Granite-Docling-258M and SmolDocling are
these) and `smolvlm`, which differ in name alone. Pictures only. Laurençon et al. 2024, "Building
and better understanding vision-language models", arXiv 2408.12637; Marafioti et al. 2025,
"SmolVLM", arXiv 2504.05299.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from vlmcli.engine.config import ModelConfig, ProcessorConfig, VisionConfig
from vlmcli.engine.geometry import (
    Idefics3Config,
    ImageGeometry,
    idefics3,
    idefics3_config,
    idefics3_resized,
)
from vlmcli.engine.layers import Linear
from vlmcli.engine.models import siglip
from vlmcli.engine.models.names import renamed, rules
from vlmcli.engine.models.parsing import (
    faults_named,
    parse_pixels,
    picture_tower_fields,
    stored_dtype,
)
from vlmcli.engine.models.plain_text import is_tied, parse_plain_text
from vlmcli.engine.models.qwen2_vl import Qwen2VL
from vlmcli.engine.models.tile_tower import TilePositions, TileTower, patch_order
from vlmcli.engine.preprocess import resize
from vlmcli.engine.views import Part, View, square_tiles
from vlmcli.errors import ModelError
from vlmcli.kernels import Ops

CHAT = (
    "<|begin_of_text|>User:",
    "{question}<end_of_utterance>\nAssistant:",
)
CHAT_BY_TOKEN = {
    "<|start_of_role|>": (
        "<|start_of_role|>user<|end_of_role|>",
        "{question}<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    ),
    "<|im_start|>": ("<|im_start|>User:", CHAT[1]),
}
"""Of Granite-Docling, and of SmolVLM and SmolDocling."""
_AROUND, _WHOLE = "<fake_token_around_image>", "<global-img>"
_DEFAULTS: dict[str, Any] = {
    "image_mean": (0.5, 0.5, 0.5),
    "image_std": (0.5, 0.5, 0.5),
    "resample": 1,
}
"""Of the image processor; 1 is Lanczos."""
_VISION = {
    "hidden_size": 1152,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "intermediate_size": 3072,
}
_NAMES = rules(
    (r"^model\.text_model\.", "model."),
    (r"^model\.connector\.", "visual.merger."),
    (r"^model\.vision_model\.", "visual."),
)


class Connector(nn.Module):
    """Neighbouring patches to one token by a single product."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.width = config.hidden_size * config.merge_size**2
        projection = Linear(self.width, config.out_hidden_size, bias=False)
        self.modality_projection = nn.ModuleDict({"proj": projection})

    def forward(self, x: Tensor) -> Tensor:
        """[N, hidden] in the order of cells to [N / merge_size², out_hidden]."""
        tokens: Tensor = self.modality_projection["proj"](x.view(-1, self.width))
        return tokens


class Idefics3(Qwen2VL):
    """The whole model: another tower in the frame of Qwen2-VL."""

    @staticmethod
    def make_tower(config: ModelConfig, ops: Ops, *, adjacent: bool) -> nn.Module:
        """The vision half; it has no rotary positions that `adjacent` could speak of."""
        vision = config.vision
        rows = siglip.bucket_ids(vision.tile_side, vision.tile_side, vision.position_side)
        rows = rows[patch_order(vision.tile_side, vision.merge_size)]
        return TileTower(
            config,
            ops,
            positions=TilePositions(vision.hidden_size, vision.position_side**2, rows),
            merger=Connector(vision),
            post_norm=vision.has_post_norm,
        )


def parse_idefics3(model_type: str, raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """A config.json of this architecture made typed; raises what `parse_config` does."""
    with faults_named(model_type):
        text = raw["text_config"]
        vision = _parse_vision(model_type, raw, processor, int(text["hidden_size"]))
        pixels = parse_pixels(
            _DEFAULTS | processor,
            idefics3_config(raw, processor),
            tile_cell_size=vision.merge_size,
        )
        tied = is_tied(raw, text, default=False)
        return ModelConfig(
            model_type=model_type,
            text=parse_plain_text(model_type, text, tied=tied),
            vision=vision,
            processor=pixels,
            image_token_id=int(raw.get("image_token_id", 128257)),
            dtype=stored_dtype(raw),
        )


parse_config = partial(parse_idefics3, "idefics3")
"""An `idefics3` config.json made typed.

Raises:
    ModelError: a key is missing or has a value that this family file does not know.
"""


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor; None for one that carries no weight."""
    return renamed(renamed(name, _NAMES), siglip.NAMES)


def geometry(width: int, height: int, processor: ProcessorConfig) -> ImageGeometry:
    """Canvas, tiles and token count of a picture of `width` × `height` pixels."""
    assert isinstance(processor.geometry, Idefics3Config)
    return idefics3(width, height, processor.geometry)


def cut(pixels: npt.NDArray[np.uint8], config: ModelConfig) -> list[Part]:
    """A picture, (H, W, 3) or (H, W) uint8, to tiles with their places, and a view of the whole.

    It is resized twice, first in its own shape, as the published processor does it.
    """
    processor = config.processor
    settings = processor.geometry
    assert isinstance(settings, Idefics3Config)
    height, width = pixels.shape[:2]
    canvas = geometry(width, height, processor)
    pixels = resize(pixels, *idefics3_resized(width, height, settings), processor.resample)
    pixels = resize(pixels, canvas.width, canvas.height, processor.resample)
    kept = config.vision.tile_side * config.vision.patch_size

    def view(tile: npt.NDArray[np.uint8]) -> View:
        """The tile without the pixels behind its last whole patch."""
        return View(pixels=tile[:kept, :kept], num_tokens=settings.tokens_per_tile)

    tiles = square_tiles(pixels, settings.tile_size)
    parts: list[Part] = []
    for i, tile in enumerate(tiles if len(tiles) > 1 else ()):
        row, column = divmod(i, canvas.tiles[1])
        line_break = "\n" if i and column == 0 else ""
        parts += [f"{line_break}{_AROUND}<row_{row + 1}_col_{column + 1}>", view(tile)]
    paragraph = "\n\n" if parts else ""
    size = settings.tile_size
    whole = view(resize(pixels, size, size, processor.resample))
    return [*parts, f"{paragraph}{_AROUND}{_WHOLE}", whole, _AROUND]


def _parse_vision(
    model_type: str, raw: dict[str, Any], processor: dict[str, Any], out_size: int
) -> VisionConfig:
    vision = raw["vision_config"]
    activation = vision.get("hidden_act", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh":
        raise ModelError(f"activation {activation!r} of the vision tower is not supported")
    patch, scale = int(vision.get("patch_size", 32)), int(raw.get("scale_factor", 2))
    tile_side = idefics3_config(raw, processor).tile_size // patch
    if tile_side % scale:
        raise ModelError(
            f"tiles of {tile_side} patches in a {model_type} model cannot be merged by {scale}"
        )
    return VisionConfig(
        **picture_tower_fields(_VISION | vision),
        out_hidden_size=out_size,
        patch_size=patch,
        merge_size=scale,
        activation="gelu_tanh",
        rope_theta=0.0,
        position_side=int(vision.get("image_size", 224)) // patch,
        tile_side=tile_side,
        has_post_norm=True,
    )
