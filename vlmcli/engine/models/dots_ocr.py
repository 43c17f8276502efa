"""dots.ocr: a tower of root-mean-square norms and gated MLPs, Qwen2-VL's merger, a Qwen2 decoder.

Covers checkpoints of the `dots_ocr` type, whose decoder's settings stand at the top of config.json.
transformers has no such class; names and formulas are those of vLLM's loader, 0.11,
`vllm/model_executor/models/dots_ocr.py`. Refuses a causal tower, sliding windows, and a decoder
without biases of queries, keys and values. Li et al. 2025, "dots.ocr", arXiv 2512.02498.
"""

from dataclasses import replace
from typing import Any

from torch import nn

from vlmcli.engine.config import ModelConfig, TextConfig, VisionConfig
from vlmcli.engine.geometry import SmartResizeConfig
from vlmcli.engine.models.names import renamed, rules
from vlmcli.engine.models.parsing import require_known
from vlmcli.engine.models.plain_text import parse_plain_text
from vlmcli.engine.models.qwen2_vl import PatchMerger, Qwen2VL, VisionTower, geometry, parse_with
from vlmcli.kernels import Ops

__all__ = ["CHAT", "DotsOcr", "canonical_name", "geometry", "parse_config"]

CHAT = ("<|user|><|img|>", "<|endofimg|>{question}<|endofuser|><|assistant|>")
_IDS = {
    "image_token_id": 151665,
    "vision_start_token_id": 151666,
    "vision_end_token_id": 151667,
}
_LIMITS = SmartResizeConfig(temporal_patch_size=1)
"""Class defaults of the processor; the published file says 3,136 to 11,289,600 pixels."""
_NAMES = rules(
    (r"^vision_tower\.", "visual."),
    (r"^visual\.patch_embed\.patchifier\.norm\.", "visual.patch_norm."),
    (r"^visual\.patch_embed\.patchifier\.", "visual.patch_embed."),
    (r"^visual\.post_trunk_norm\.", "visual.post_norm."),
    (r"^(visual\.blocks\.\d+\.attn)\.qkv_proj\.", r"\1.qkv."),
    (r"^(visual\.blocks\.\d+\.attn)\.out_proj\.", r"\1.proj."),
    (r"^(visual\.blocks\.\d+\.mlp)\.fc1\.", r"\1.gate_proj."),
    (r"^(visual\.blocks\.\d+\.mlp)\.fc2\.", r"\1.down_proj."),
    (r"^(visual\.blocks\.\d+\.mlp)\.fc3\.", r"\1.up_proj."),
)


class DotsTower(VisionTower):
    """Patches of several images to visual tokens."""

    @staticmethod
    def make_merger(config: VisionConfig, ops: Ops) -> nn.Module:
        """Qwen2-VL's, with the layer norm that the rest of the tower does not have."""
        return PatchMerger(replace(config, norm="layer"), ops)


class DotsOcr(Qwen2VL):
    """The whole model: another tower in the frame of Qwen2-VL."""

    @staticmethod
    def make_tower(config: ModelConfig, ops: Ops, *, adjacent: bool) -> nn.Module:
        """The vision half."""
        return DotsTower(config.vision, config.processor, ops, adjacent=adjacent)


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """A `dots_ocr` config.json made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know.
    """
    return parse_with(_parse_text, _parse_vision, "dots_ocr", _IDS | raw, processor, _LIMITS)


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor."""
    return renamed(name, _NAMES)


def _parse_text(raw: dict[str, Any], text: dict[str, Any]) -> TextConfig:
    require_known("dots_ocr", (text, "attention_bias", True))
    decoder = text | {"model_type": "qwen2", "attention_bias": None}
    return parse_plain_text("dots_ocr", decoder, tied=bool(raw.get("tie_word_embeddings")))


def _parse_vision(raw: dict[str, Any]) -> VisionConfig:
    require_known("dots_ocr", (raw, "is_causal", False), (raw, "temporal_patch_size", 1))
    return VisionConfig(
        hidden_size=int(raw["embed_dim"]),
        num_layers=int(raw["num_hidden_layers"]),
        num_heads=int(raw["num_attention_heads"]),
        intermediate_size=int(raw["intermediate_size"]),
        out_hidden_size=int(raw["hidden_size"]),
        in_channels=int(raw.get("num_channels", 3)),
        patch_size=int(raw.get("patch_size", 14)),
        temporal_patch_size=0,
        merge_size=int(raw.get("spatial_merge_size", 2)),
        activation="silu",
        norm_eps=float(raw.get("rms_norm_eps", 1e-5)),
        rope_theta=10000.0,
        norm="rms",
        has_block_bias=bool(raw.get("use_bias", False)),
        is_gated=True,
        patch_bias=True,
        has_patch_norm=True,
        has_post_norm=bool(raw.get("post_norm", True)),
        merger_norm_eps=1e-6,
    )
