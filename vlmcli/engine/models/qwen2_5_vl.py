"""Qwen2.5-VL: Qwen2-VL with a tower of windows, root-mean-square norms and gated MLPs.

Covers every checkpoint of transformers' `qwen2_5_vl` type (Qwen2.5-VL, olmOCR, Nanonets-OCR).
Pictures only: the times of video frames are not its business. Bai et al. 2025, "Qwen2.5-VL", arXiv
2502.13923.
"""

from functools import partial
from typing import Any

from vlmcli.engine.config import ModelConfig, VisionConfig
from vlmcli.engine.models.qwen2_vl import (
    CHAT,
    Qwen2VL,
    canonical_name,
    geometry,
    parse_qwen2_text,
    parse_with,
)
from vlmcli.errors import ModelError

__all__ = ["CHAT", "Qwen25VL", "canonical_name", "geometry", "parse_config"]

Qwen25VL = Qwen2VL


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """A `qwen2_5_vl` config.json, flat or nested, made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know.
    """
    parse_text = partial(parse_qwen2_text, "qwen2_5_vl")
    return parse_with(parse_text, _parse_vision, "qwen2_5_vl", raw, processor)


def _parse_vision(raw: dict[str, Any]) -> VisionConfig:
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"activation {raw['hidden_act']!r} of the vision tower is not supported")
    patch_size, merge_size = int(raw.get("patch_size", 14)), int(raw.get("spatial_merge_size", 2))
    rope = raw.get("rope_parameters") or {}
    return VisionConfig(
        hidden_size=int(raw["hidden_size"]),
        num_layers=int(raw["depth"]),
        num_heads=int(raw["num_heads"]),
        intermediate_size=int(raw["intermediate_size"]),
        out_hidden_size=int(raw["out_hidden_size"]),
        in_channels=int(raw.get("in_channels") or raw.get("in_chans") or 3),
        patch_size=patch_size,
        temporal_patch_size=int(raw.get("temporal_patch_size", 2)),
        merge_size=merge_size,
        activation="silu",
        norm_eps=1e-6,
        rope_theta=float(rope.get("rope_theta", 10000.0)),
        norm="rms",
        is_gated=True,
        window_cells=int(raw.get("window_size", 112)) // merge_size // patch_size,
        full_attention_layers=tuple(raw.get("fullatt_block_indexes", (7, 15, 23, 31))),
    )
