"""Qwen2.5-VL: Qwen2-VL with a tower of windows, root-mean-square norms and gated MLPs.

Covers every checkpoint of transformers' `qwen2_5_vl` type (Qwen2.5-VL, olmOCR, Nanonets-OCR).
Pictures only: the times of video frames are not its business. Bai et al. 2025, "Qwen2.5-VL", arXiv
2502.13923.
"""

from functools import partial
from typing import Any

from vlmcli.engine.config import ModelConfig, VisionConfig
from vlmcli.engine.models.parsing import tower_fields, width_fields
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
    shared = tower_fields(raw, int(raw.get("patch_size", 14)))
    cell = shared["merge_size"] * shared["patch_size"]
    return VisionConfig(
        **width_fields(raw),
        **shared,
        activation="silu",
        norm="rms",
        is_gated=True,
        window_cells=int(raw.get("window_size", 112)) // cell,
        full_attention_layers=tuple(raw.get("fullatt_block_indexes", (7, 15, 23, 31))),
    )
