"""Random checkpoints of supported families, for benchmarks that need shapes and no answers.

Written by transformers, so that they are what a user's checkpoint is: config, processor, tokenizer,
safetensors. The tokenizer is the built-in model's; their answers mean nothing.
"""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from vlmcli.bench.apart import apart
from vlmcli.checkpoint import built_in_path

BYTE_IMAGE, _START, _END, BYTE_EOS, BYTE_PAD = 256, 257, 258, 259, 260
"""Special tokens of the built-in model's tokenizer."""
_PRINTED = (33, 127)
"""Its printable ASCII bytes, from and up to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """A model of any size: widths and depths of its two halves."""

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    vocab_size: int
    vision_width: int
    vision_layers: int
    vision_heads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(Widths):
    """A Qwen-VL of any size, and its pixel limit."""

    max_pixels: int
    family: Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl"] = "qwen2_vl"


TINY = Shape(
    name="tiny",
    hidden_size=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    intermediate_size=256,
    vocab_size=512,
    vision_width=64,
    vision_layers=2,
    vision_heads=2,
    max_pixels=3_000_000,
)
SMALL = Shape(
    name="small",
    hidden_size=384,
    num_layers=6,
    num_heads=6,
    num_kv_heads=2,
    intermediate_size=1024,
    vocab_size=8192,
    vision_width=192,
    vision_layers=4,
    vision_heads=3,
    max_pixels=1_000_000,
)
WINDOWED = replace(SMALL, name="windowed", family="qwen2_5_vl")
MID = Shape(
    name="mid",
    hidden_size=768,
    num_layers=12,
    num_heads=12,
    num_kv_heads=4,
    intermediate_size=2048,
    vocab_size=16_384,
    vision_width=512,
    vision_layers=8,
    vision_heads=8,
    max_pixels=600_000,
    family="qwen3_vl",
)
"""About 150 million parameters."""
_PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16}


REUSE = Shape(
    name="reuse",
    hidden_size=768,
    num_layers=16,
    num_heads=12,
    num_kv_heads=4,
    intermediate_size=2560,
    vocab_size=16_384,
    vision_width=640,
    vision_layers=12,
    vision_heads=10,
    max_pixels=500_000,
)
"""About 210 million parameters, 0.45 of the vision tower to 1 of the decoder's layers, as in
Qwen2-VL-2B; 600 visual tokens a page."""
THREE_BILLION = Shape(
    name="3b",
    hidden_size=2048,
    num_layers=36,
    num_heads=16,
    num_kv_heads=2,
    intermediate_size=11_008,
    vocab_size=151_936,
    vision_width=1280,
    vision_layers=32,
    vision_heads=16,
    max_pixels=3_000_000,
    family="qwen2_5_vl",
)
"""Qwen2.5-VL-3B, with an output layer of its own where it is lively."""


def write_lively(folder: Path, shape: Shape) -> Path:
    """A `lively` checkpoint, written by a process of its own: transformers must not count as
    memory of a benchmark."""
    return apart(write_checkpoint, folder, shape, lively=True)


def write_checkpoint(
    folder: Path, shape: Shape, *, lively: bool = False, dtype: torch.dtype = torch.float32
) -> Path:
    """A checkpoint of this shape, the same one every time; returns its directory.

    It repeats itself, whatever it is asked. A `lively` one answers every question otherwise, and in
    printable letters: its weights are scaled by their fan-in, its output layer is not its
    embedding.
    """
    from transformers import AutoConfig

    config = _config(shape) | {"tie_word_embeddings": not lively}
    path = save_random(
        folder / shape.name,
        AutoConfig.for_model(shape.family, **config),
        lively=lively,
        dtype=dtype,
    )
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": _PATCH[shape.family],
        "merge_size": 2,
        "temporal_patch_size": 2,
        "min_pixels": 56 * 56,
        "max_pixels": shape.max_pixels,
    }
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(built_in_path() / name, path / name)
    return path


def save_random(
    path: Path, config: Any, *, lively: bool = True, dtype: torch.dtype = torch.float32
) -> Path:
    """Config and random weights of a model of transformers; what `lively` is, says
    `write_checkpoint`."""
    from transformers import AutoModelForImageTextToText
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config, dtype=dtype)
    if lively:
        _enliven(model)
    model.save_pretrained(path)
    return path


@torch.no_grad()
def _enliven(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if parameter.ndim > 1:
            # Sharp attention: the average over all tokens is the same whatever is asked.
            sharp = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
            if "patch_embed" in name:
                # Most of a page is paper: what is equal all over a patch must not drown the print.
                noise -= noise.mean(dim=tuple(range(1, noise.ndim)), keepdim=True)
            parameter.copy_(noise * sharp / parameter[0].numel() ** 0.5)
        else:
            is_norm = "norm" in name or "ln_q" in name
            parameter.copy_(noise * 0.2 + (is_norm and name.endswith("weight")))
        if name.startswith("lm_head"):
            parameter[: _PRINTED[0]] = 0
            parameter[_PRINTED[1] :] = 0


def text_config(
    shape: Widths, rope_theta: float, max_positions: int, **rope: object
) -> dict[str, object]:
    """The decoder, as transformers' text configurations name its sizes; `rope` says more of it."""
    return {
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.hidden_size // shape.num_heads,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": max_positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta, **rope},
        "eos_token_id": BYTE_EOS,
        "bos_token_id": None,
        "pad_token_id": BYTE_PAD,
    }


def _config(shape: Shape) -> dict[str, object]:
    pairs = shape.hidden_size // shape.num_heads // 2
    time = pairs // 4
    sections = [time, (pairs - time) // 2, (pairs - time) // 2]
    text = text_config(shape, 1e6, 32_768, mrope_section=sections)
    return {
        "text_config": text,
        "vision_config": _vision(shape),
        "image_token_id": BYTE_IMAGE,
        "video_token_id": BYTE_PAD + 1,
        "vision_start_token_id": _START,
        "vision_end_token_id": _END,
    }


def _vision(shape: Shape) -> dict[str, object]:
    """The tower. Qwen2-VL calls the decoder's width `hidden_size`, and its own `embed_dim`."""
    common = {
        "depth": shape.vision_layers,
        "num_heads": shape.vision_heads,
        "patch_size": _PATCH[shape.family],
        "spatial_merge_size": 2,
    }
    if shape.family == "qwen2_vl":
        return {**common, "embed_dim": shape.vision_width, "hidden_size": shape.hidden_size}
    last = shape.vision_layers - 1
    own: dict[str, object] = (
        {"fullatt_block_indexes": [last], "window_size": 112}
        if shape.family == "qwen2_5_vl"
        else {"deepstack_visual_indexes": [0, last // 2, last], "num_position_embeddings": 2304}
    )
    return {
        **common,
        **own,
        "hidden_size": shape.vision_width,
        "intermediate_size": 4 * shape.vision_width,
        "out_hidden_size": shape.hidden_size,
    }
