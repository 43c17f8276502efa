"""Qwen3-VL: Qwen2-VL with learned positions beside the rotary ones, DeepStack, and a Qwen3 decoder.

Covers dense checkpoints of transformers' `qwen3_vl` type. Pictures only. Qwen team 2025, "Qwen3-VL
Technical Report", arXiv 2511.21631.
"""

import re
from typing import Any

from vlmcli.engine.config import ModelConfig, RopeConfig, TextConfig, VisionConfig
from vlmcli.engine.models import qwen2_vl
from vlmcli.engine.models.qwen2_vl import Qwen2VL, geometry, parse_with
from vlmcli.errors import ModelError

__all__ = ["CHAT", "Qwen3VL", "canonical_name", "geometry", "parse_config"]

Qwen3VL = Qwen2VL
CHAT = ("<|im_start|>user\n<|vision_start|>", qwen2_vl.CHAT[1])
_RENAMED = (
    (re.compile(r"(visual\.blocks\.\d+\.mlp\.)linear_fc"), r"\1fc"),
    (re.compile(r"(visual\.(?:merger|deepstack_merger_list\.\d+)\.)norm\."), r"\1ln_q."),
    (re.compile(r"(visual\.(?:merger|deepstack_merger_list\.\d+)\.)linear_fc1"), r"\1mlp.0"),
    (re.compile(r"(visual\.(?:merger|deepstack_merger_list\.\d+)\.)linear_fc2"), r"\1mlp.2"),
)


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """A `qwen3_vl` config.json made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know.
    """
    config = parse_with(_parse_text, _parse_vision, "qwen3_vl", raw, processor)
    if len(config.vision.deepstack_layers) >= config.text.num_layers:
        raise ModelError("more DeepStack layers than the decoder can take")
    return config


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor; None for one that carries no weight."""
    found = qwen2_vl.canonical_name(name)
    for pattern, ours in _RENAMED:
        found = found and pattern.sub(ours, found)
    return found


def _parse_text(raw: dict[str, Any], text: dict[str, Any]) -> TextConfig:
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "mrope"):
        raise ModelError(f"rotary scaling {kind!r} of qwen3_vl is not supported")
    if text.get("hidden_act", "silu") != "silu" or text.get("attention_bias"):
        raise ModelError("an activation other than silu, or biases, in a qwen3_vl decoder")
    heads, head_dim = int(text["num_attention_heads"]), int(text.get("head_dim", 128))
    sections = tuple(int(n) for n in rope.get("mrope_section", (24, 20, 20)))
    if 2 * sum(sections) != head_dim:
        raise ModelError(f"head size {head_dim} and rotary sections {sections} do not agree")
    return TextConfig(
        hidden_size=int(text["hidden_size"]),
        num_layers=int(text["num_hidden_layers"]),
        num_heads=heads,
        num_kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        intermediate_size=int(text["intermediate_size"]),
        vocab_size=int(text["vocab_size"]),
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-6)),
        max_position_embeddings=int(text.get("max_position_embeddings", 128000)),
        rope=RopeConfig(
            theta=float(rope.get("rope_theta") or text.get("rope_theta") or 5e5),
            sections=sections,
            is_interleaved=True,
        ),
        qkv_bias=False,
        qk_norm=True,
        tie_word_embeddings=bool(text.get("tie_word_embeddings") or raw.get("tie_word_embeddings")),
    )


def _parse_vision(raw: dict[str, Any]) -> VisionConfig:
    if raw.get("hidden_act", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
        raise ModelError(f"activation {raw['hidden_act']!r} of the vision tower is not supported")
    rope = raw.get("rope_parameters") or {}
    return VisionConfig(
        hidden_size=int(raw["hidden_size"]),
        num_layers=int(raw["depth"]),
        num_heads=int(raw["num_heads"]),
        intermediate_size=int(raw["intermediate_size"]),
        out_hidden_size=int(raw["out_hidden_size"]),
        in_channels=int(raw.get("in_channels", 3)),
        patch_size=int(raw.get("patch_size", 16)),
        temporal_patch_size=int(raw.get("temporal_patch_size", 2)),
        merge_size=int(raw.get("spatial_merge_size", 2)),
        activation="gelu_tanh",
        norm_eps=1e-6,
        rope_theta=float(rope.get("rope_theta", 10000.0)),
        patch_bias=True,
        position_side=int(int(raw.get("num_position_embeddings", 2304)) ** 0.5),
        deepstack_layers=tuple(raw.get("deepstack_visual_indexes", (8, 16, 24))),
    )
