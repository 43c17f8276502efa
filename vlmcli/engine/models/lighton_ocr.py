"""LightOnOCR: a Pixtral tower, a projector that merges 2 × 2 patches, a Qwen3 decoder.

Covers checkpoints of transformers' `lighton_ocr` type (LightOnOCR-1B). Odd rows or columns of
patches at the edge are seen by the others and then dropped, as the published projector does it.
Agrawal et al. 2024, "Pixtral 12B", arXiv 2410.07073, section 2.2, for the tower.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from vlmcli.engine.config import (
    ModelConfig,
    ProcessorConfig,
    RopeConfig,
    TextConfig,
    VisionConfig,
)
from vlmcli.engine.geometry import LIGHTON_OCR, ImageGeometry, PixtralConfig, pixtral
from vlmcli.engine.layers import Linear
from vlmcli.engine.models.merging import MergingLayer
from vlmcli.engine.models.names import renamed, rules
from vlmcli.engine.models.parsing import (
    decoder_fields,
    faults_named,
    parse_pixels,
    stored_dtype,
)
from vlmcli.engine.models.qwen2_vl import Qwen2VL
from vlmcli.engine.models.tower_inputs import Grid, TowerInputs
from vlmcli.engine.models.vision import (
    PatchEmbed,
    VisionBlock,
    VisionRMSNorm,
    VisionRotary,
    frame_ends,
    patch_places,
)
from vlmcli.errors import ModelError
from vlmcli.kernels import Ops
from vlmcli.kernels.upload import upload

CHAT = (
    "<|im_start|>system<|im_end|>\n<|im_start|>user\n",
    "{question}<|im_end|>\n<|im_start|>assistant\n",
)
_NAMES = rules(
    (r"^model\.language_model\.", "model."),
    (r"^(?:model\.)?vision_projection\.", "visual.merger."),
    (r"^(?:model\.)?vision_encoder\.patch_conv\.", "visual.patch_embed.proj."),
    (r"^(?:model\.)?vision_encoder\.transformer\.layers\.", "visual.blocks."),
    (r"^(?:model\.)?vision_encoder\.", "visual."),
    (r"^(visual\.blocks\.\d+)\.attention_norm\.", r"\1.norm1."),
    (r"^(visual\.blocks\.\d+)\.ffn_norm\.", r"\1.norm2."),
    (r"^(visual\.blocks\.\d+)\.feed_forward\.", r"\1.mlp."),
    (r"^(visual\.blocks\.\d+)\.attention\.o_proj\.", r"\1.attn.proj."),
    (r"^(visual\.blocks\.\d+)\.attention\.", r"\1.attn."),
)


class Projector(nn.Module):
    """Norm, merging, and an MLP to the decoder's width."""

    def __init__(self, config: VisionConfig, norm_eps: float, ops: Ops) -> None:
        super().__init__()
        self.norm = VisionRMSNorm(config.hidden_size, norm_eps, ops)
        width = config.hidden_size
        merging = MergingLayer(width, width, config.merge_size)
        self.patch_merger = nn.ModuleDict({"merging_layer": merging})
        self.linear_1 = Linear(config.hidden_size, config.out_hidden_size, bias=False)
        self.linear_2 = Linear(config.out_hidden_size, config.out_hidden_size, bias=False)

    def forward(self, x: Tensor, cells: Tensor) -> Tensor:
        """[N, hidden] and [tokens, merge_size²] patches of each token to [tokens, out_hidden]."""
        merged = self.norm(x).index_select(0, cells.view(-1)).view(len(cells), -1)
        merged = self.patch_merger["merging_layer"](merged)
        tokens: Tensor = self.linear_2(self.linear_1.activated(merged, "gelu"))
        return tokens


class PixtralTower(nn.Module):
    """Patches of several images, row by row, to visual tokens."""

    def __init__(self, config: ModelConfig, ops: Ops, *, adjacent: bool) -> None:
        super().__init__()
        vision = config.vision
        self.merge_size = vision.merge_size
        self.patch_embed = PatchEmbed(vision, config.processor)
        self.ln_pre = VisionRMSNorm(vision.hidden_size, vision.norm_eps, ops)
        self.rotary = VisionRotary(vision)
        self.blocks = nn.ModuleList(
            VisionBlock(vision, ops, adjacent=adjacent) for _ in range(vision.num_layers)
        )
        self.merger = Projector(vision, config.text.rms_norm_eps, ops)

    def forward(self, patches: Tensor, grids: Sequence[Grid]) -> Tensor:
        """[N, channels · size²] uint8 of images with the given grids to [tokens, out_hidden]."""
        return self.run(patches, self.prepare(grids))

    def prepare(self, grids: Sequence[Grid]) -> TowerInputs:
        """Positions, and the patches of each token, of images with these grids."""
        weight = self.patch_embed.colour
        places = np.concatenate([patch_places(grid, 1) for grid in grids])
        return TowerInputs(
            ends=frame_ends(grids),
            rope=self.rotary(upload(places, weight.device), weight.dtype),
            cells=upload(cell_members(grids, self.merge_size), weight.device),
        )

    def run(self, patches: Tensor, inputs: TowerInputs) -> Tensor:
        """[N, channels · size²] uint8 of images that `inputs` describe to [tokens, out_hidden]."""
        x = self.ln_pre(self.patch_embed(patches))
        for block in self.blocks:
            x = block(x, inputs.rope, inputs.ends)
        tokens: Tensor = self.merger(x, inputs.cells)
        return tokens


class LightOnOcr(Qwen2VL):
    """The whole model: another tower in the frame of Qwen2-VL."""

    @staticmethod
    def make_tower(config: ModelConfig, ops: Ops, *, adjacent: bool) -> nn.Module:
        """The vision half."""
        return PixtralTower(config, ops, adjacent=adjacent)


def cell_members(grids: Sequence[Grid], merge_size: int) -> npt.NDArray[np.int64]:
    """[tokens, merge_size²] patches of each merged cell; patches go row by row, image by image."""
    members, first = [], 0
    for frames, height, width in grids:
        rows, columns = height // merge_size, width // merge_size
        index = first + np.arange(frames * height * width).reshape(frames, height, width)
        kept = index[:, : rows * merge_size, : columns * merge_size]
        cells = kept.reshape(frames, rows, merge_size, columns, merge_size)
        members.append(cells.transpose(0, 1, 3, 2, 4).reshape(-1, merge_size**2))
        first += index.size
    return np.concatenate(members)


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """A `lighton_ocr` config.json made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know.
    """
    with faults_named("lighton_ocr"):
        text = _parse_text(raw, raw["text_config"])
        return ModelConfig(
            model_type="lighton_ocr",
            text=text,
            vision=_parse_vision(raw["vision_config"], raw, text.hidden_size),
            processor=_parse_processor(processor, raw),
            image_token_id=int(raw.get("image_token_id", 151655)),
            dtype=stored_dtype(raw),
        )


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor; None for one that carries no weight."""
    return renamed(name, _NAMES)


def geometry(width: int, height: int, processor: ProcessorConfig) -> ImageGeometry:
    """Resized size, grid and token count of a picture of `width` × `height` pixels."""
    assert isinstance(processor.geometry, PixtralConfig)
    return pixtral(width, height, processor.geometry)


def _parse_text(raw: dict[str, Any], text: dict[str, Any]) -> TextConfig:
    rope = text.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default" or text.get("attention_bias"):
        raise ModelError("scaled rotary embeddings or biases in a lighton_ocr decoder")
    return TextConfig(
        **decoder_fields(text),
        head_dim=int(text.get("head_dim", 128)),
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-6)),
        max_position_embeddings=int(text.get("max_position_embeddings", 40960)),
        rope=RopeConfig(theta=float(rope.get("rope_theta") or text.get("rope_theta") or 1e6)),
        qkv_bias=False,
        qk_norm=True,
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", True)),
    )


def _parse_vision(vision: dict[str, Any], raw: dict[str, Any], out_size: int) -> VisionConfig:
    activation = vision.get("hidden_act", "gelu")
    if activation not in ("silu", "swish"):
        raise ModelError(f"activation {activation!r} of a pixtral tower is not supported")
    width, heads = int(vision["hidden_size"]), int(vision["num_attention_heads"])
    if int(vision.get("head_dim") or width // heads) * heads != width:
        raise ModelError("heads of a pixtral tower that do not cover its width are not supported")
    rope = vision.get("rope_parameters") or {}
    return VisionConfig(
        hidden_size=width,
        num_layers=int(vision["num_hidden_layers"]),
        num_heads=heads,
        intermediate_size=int(vision["intermediate_size"]),
        out_hidden_size=out_size,
        in_channels=int(vision.get("num_channels", 3)),
        patch_size=int(vision.get("patch_size", 14)),
        temporal_patch_size=0,
        merge_size=int(raw.get("spatial_merge_size", 2)),
        activation="silu",
        norm_eps=1e-5,
        rope_theta=float(rope.get("rope_theta") or vision.get("rope_theta") or 10000.0),
        norm="rms",
        has_block_bias=False,
        has_split_qkv=True,
        has_axis_frequencies=True,
        is_gated=True,
    )


def _parse_processor(processor: dict[str, Any], raw: dict[str, Any]) -> ProcessorConfig:
    patch_size = int(raw["vision_config"].get("patch_size", LIGHTON_OCR.patch_size))
    align = processor.get("patch_size", patch_size)
    if isinstance(align, dict):
        align = align["height"]
    size = processor.get("size") or {}
    geometry = PixtralConfig(
        patch_size=patch_size,
        merge_size=int(raw.get("spatial_merge_size", 2)),
        longest_edge=int(size.get("longest_edge", LIGHTON_OCR.longest_edge)),
        align=int(align),
        has_breaks=False,
    )
    return parse_pixels(processor, geometry)
