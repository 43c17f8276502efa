"""Qwen3-VL: Qwen2-VL with learned positions beside the rotary ones, DeepStack, and a Qwen3 decoder.

Covers dense checkpoints of transformers' `qwen3_vl` type. Pictures only. Qwen team 2025, "Qwen3-VL
Technical Report", arXiv 2511.21631.
"""

from typing import Any

from vlmcli.engine.config import ModelConfig, TextConfig, VisionConfig
from vlmcli.engine.models import qwen2_vl
from vlmcli.engine.models.names import renamed, rules
from vlmcli.engine.models.parsing import (
    decoder_fields,
    multimodal_rope,
    tower_fields,
    width_fields,
)
from vlmcli.engine.models.qwen2_vl import Qwen2VL, geometry, parse_with
from vlmcli.errors import ModelError

__all__ = ["CHAT", "Qwen3VL", "canonical_name", "geometry", "parse_config"]

Qwen3VL = Qwen2VL
CHAT = ("<|im_start|>user\n<|vision_start|>", qwen2_vl.CHAT[1])
_NAMES = rules(
    (r"(visual\.blocks\.\d+\.mlp\.)linear_fc", r"\1fc"),
    (r"(visual\.(?:merger|deepstack_merger_list\.\d+)\.)norm\.", r"\1ln_q."),
    (r"(visual\.(?:merger|deepstack_merger_list\.\d+)\.)linear_fc1", r"\1mlp.0"),
    (r"(visual\.(?:merger|deepstack_merger_list\.\d+)\.)linear_fc2", r"\1mlp.2"),
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
    return None if found is None else renamed(found, _NAMES)


def _parse_text(raw: dict[str, Any], text: dict[str, Any]) -> TextConfig:
    if text.get("hidden_act", "silu") != "silu" or text.get("attention_bias"):
        raise ModelError("an activation other than silu, or biases, in a qwen3_vl decoder")
    head_dim = int(text.get("head_dim", 128))
    return TextConfig(
        **decoder_fields(text),
        head_dim=head_dim,
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-6)),
        max_position_embeddings=int(text.get("max_position_embeddings", 128000)),
        rope=multimodal_rope(
            "qwen3_vl", text, head_dim, theta=5e5, sections=(24, 20, 20), is_interleaved=True
        ),
        qkv_bias=False,
        qk_norm=True,
        tie_word_embeddings=bool(text.get("tie_word_embeddings") or raw.get("tie_word_embeddings")),
    )


def _parse_vision(raw: dict[str, Any]) -> VisionConfig:
    if raw.get("hidden_act", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
        raise ModelError(f"activation {raw['hidden_act']!r} of the vision tower is not supported")
    return VisionConfig(
        **width_fields(raw),
        **tower_fields(raw, int(raw.get("patch_size", 16))),
        activation="gelu_tanh",
        patch_bias=True,
        position_side=int(int(raw.get("num_position_embeddings", 2304)) ** 0.5),
        deepstack_layers=tuple(raw.get("deepstack_visual_indexes", (8, 16, 24))),
    )
