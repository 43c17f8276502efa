"""GLM-OCR: a CogViT tower, a convolution with a gated MLP as merger, a GLM decoder with M-RoPE.

Covers checkpoints of transformers' `glm_ocr` type. The layer that predicts further tokens, which
published files carry behind the decoder's, is not read. GLM team 2025, "GLM-4.5V and GLM-4.1V",
arXiv 2507.01006, section 2.1.
"""

from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from vlmcli.engine.config import ModelConfig, ProcessorConfig, TextConfig, VisionConfig
from vlmcli.engine.geometry import GLM4V, ImageGeometry, SmartResizeConfig, glm4v
from vlmcli.engine.layers import GatedMLP, LayerNorm, Linear
from vlmcli.engine.models.merging import MergingLayer
from vlmcli.engine.models.names import renamed, rules
from vlmcli.engine.models.parsing import (
    decoder_fields,
    multimodal_rope,
    tower_fields,
    width_fields,
)
from vlmcli.engine.models.qwen2_vl import Qwen2VL, VisionTower, parse_with
from vlmcli.errors import ModelError
from vlmcli.kernels import Ops

CHAT = (
    "[gMASK]<sop><|user|>\n<|begin_of_image|>",
    "<|end_of_image|>{question}<|assistant|>\n",
)
_NAMES = rules(
    (r"^model\.language_model\.", "model."),
    (r"^model\.visual\.", "visual."),
    (r"^visual\.post_layernorm\.", "visual.post_norm."),
    (r"^visual\.downsample\.", "visual.merger.downsample."),
    (r"^visual\.merger\.(gate|up|down)_proj\.", r"visual.merger.mlp.\1_proj."),
)


class GlmMerger(nn.Module):
    """A cell of patches to one vector, a projection, and a gated MLP."""

    def __init__(self, config: VisionConfig, ops: Ops) -> None:
        super().__init__()
        out = config.out_hidden_size
        self.width = config.hidden_size * config.merge_size**2
        self.downsample = MergingLayer(
            config.hidden_size, out, config.merge_size, is_convolution=True
        )
        self.proj = Linear(out, out, bias=False)
        self.post_projection_norm = LayerNorm(out, 1e-5)
        self.mlp = GatedMLP(out, out * config.in_channels, ops, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[N, hidden] to [N / merge_size², out_hidden]."""
        cells = self.proj(self.downsample(x.view(-1, self.width)))
        tokens: Tensor = self.mlp(F.gelu(self.post_projection_norm(cells)))
        return tokens


class GlmTower(VisionTower):
    """Patches of several images to visual tokens."""

    @staticmethod
    def make_merger(config: VisionConfig, ops: Ops) -> nn.Module:
        """What turns patches into tokens."""
        return GlmMerger(config, ops)


class GlmOcr(Qwen2VL):
    """The whole model: another merger in the frame of Qwen2-VL."""

    @staticmethod
    def make_tower(config: ModelConfig, ops: Ops, *, adjacent: bool) -> nn.Module:
        """The vision half."""
        return GlmTower(config.vision, config.processor, ops, adjacent=adjacent)


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """A `glm_ocr` config.json made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know.
    """
    ids = {
        "image_token_id": raw.get("image_token_id", 59280),
        "vision_start_token_id": raw.get("image_start_token_id", 59256),
        "vision_end_token_id": raw.get("image_end_token_id", 59257),
    }
    config = parse_with(_parse_text, _parse_vision, "glm_ocr", raw | ids, processor, GLM4V)
    return replace(config, unread_weights=(f"model.layers.{config.text.num_layers}.",))


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor."""
    return renamed(name, _NAMES)


def geometry(width: int, height: int, processor: ProcessorConfig) -> ImageGeometry:
    """Resized size, grid and token count of a picture of `width` × `height` pixels."""
    assert isinstance(processor.geometry, SmartResizeConfig)
    return glm4v(width, height, processor.geometry)


def _parse_text(raw: dict[str, Any], text: dict[str, Any]) -> TextConfig:
    if text.get("hidden_act", "silu") != "silu" or text.get("attention_bias"):
        raise ModelError("an activation other than silu, or biases, in a glm_ocr decoder")
    shared = decoder_fields(text)
    head_dim = int(text.get("head_dim") or shared["hidden_size"] // shared["num_heads"])
    rope = text.get("rope_parameters") or {}
    rotary_dim = int(head_dim * float(rope.get("partial_rotary_factor", 1.0)))
    mrope = multimodal_rope("glm_ocr", text, rotary_dim, theta=1e4, sections=(8, 12, 12))
    tied = text.get("tie_word_embeddings") or raw.get("tie_word_embeddings")
    return TextConfig(
        **shared,
        head_dim=head_dim,
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-5)),
        max_position_embeddings=int(text.get("max_position_embeddings", 131072)),
        rope=replace(mrope, dim=rotary_dim, has_adjacent_pairs=True),
        qkv_bias=False,
        has_sandwich_norm=True,
        has_fused_gate_up=True,
        tie_word_embeddings=bool(tied),
    )


def _parse_vision(raw: dict[str, Any]) -> VisionConfig:
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"activation {raw['hidden_act']!r} of the vision tower is not supported")
    shared = tower_fields(raw, int(raw.get("patch_size", 14)))
    return VisionConfig(
        **width_fields(raw),
        **shared | {"norm_eps": float(raw.get("rms_norm_eps", 1e-5))},
        activation="silu",
        norm="rms",
        has_block_bias=bool(raw.get("attention_bias", True)),
        qk_norm=True,
        is_gated=True,
        patch_bias=True,
        has_post_norm=True,
    )
