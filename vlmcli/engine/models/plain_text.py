"""Decoders with 1-D rotary positions that stand behind several towers: Llama, Qwen2 and Qwen3.

Their config.json made typed. Refuses sliding windows, biases that the type does not have, and
scaled rotary embeddings, except those that change nothing within the positions of the model.
"""

from typing import Any

from vlmcli.engine.config import RopeConfig, TextConfig
from vlmcli.engine.models.parsing import decoder_fields
from vlmcli.errors import ModelError

_DEFAULTS = {
    "llama": {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
    "qwen2": {"rms_norm_eps": 1e-6, "max_position_embeddings": 32768},
    "qwen3": {"rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "head_dim": 128},
}
"""What the config classes of transformers 5.24 fill in."""
_ROPE_THETA = 10000.0


def parse_plain_text(model_type: str, text: dict[str, Any], *, tied: bool) -> TextConfig:
    """The text part of a config.json.

    Args:
        model_type: of the whole model, for messages.
        text: its `text_config`.
        tied: whether the language head is the embedding.

    Raises:
        ModelError: another decoder, or a setting that is not covered.
    """
    kind = str(text.get("model_type", "llama"))
    if kind not in _DEFAULTS:
        raise ModelError(f"a {kind} decoder in a {model_type} model is not supported")
    text = {**_DEFAULTS[kind], **{key: value for key, value in text.items() if value is not None}}
    if text.get("use_sliding_window"):
        raise ModelError(f"sliding-window attention of {model_type} is not supported")
    if text.get("hidden_act", "silu") != "silu":
        raise ModelError(f"activation {text['hidden_act']!r} of {model_type} is not supported")
    if text.get("attention_bias") or text.get("mlp_bias"):
        raise ModelError(f"biases in the {kind} decoder of {model_type} are not supported")
    shared = decoder_fields(text)
    head_dim = int(text.get("head_dim") or shared["hidden_size"] // shared["num_heads"])
    return TextConfig(
        **shared,
        head_dim=head_dim,
        rms_norm_eps=float(text["rms_norm_eps"]),
        max_position_embeddings=int(text["max_position_embeddings"]),
        rope=RopeConfig(theta=_rope_theta(model_type, text)),
        qkv_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
        tie_word_embeddings=tied,
    )


def is_tied(raw: dict[str, Any], text: dict[str, Any], *, default: bool) -> bool:
    """Whether the language head is the embedding; the whole model's word counts before its part's.

    `default` is what the family's class in transformers says.
    """
    for part in (raw, text):
        if part.get("tie_word_embeddings") is not None:
            return bool(part["tie_word_embeddings"])
    return default


def _rope_theta(model_type: str, text: dict[str, Any]) -> float:
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    # Dynamic NTK scaling begins behind max_position_embeddings, where the engine takes no request.
    if kind not in ("default", "dynamic"):
        raise ModelError(f"rotary scaling {kind!r} of {model_type} is not supported")
    return float(rope.get("rope_theta") or text.get("rope_theta") or _ROPE_THETA)
