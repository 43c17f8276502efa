"""Configs of tiny models that take pictures whole, and their inputs, in transformers' own forms.

Used by `tiny_checkpoints`; nothing here asserts.
"""

from dataclasses import dataclass

import numpy as np
import torch
from dots_reference import DotsOcrConfig, DotsOcrForCausalLM
from transformers import (
    GlmOcrConfig,
    GlmOcrForConditionalGeneration,
    Idefics2Config,
    Idefics2ForConditionalGeneration,
    LightOnOcrConfig,
    LightOnOcrForConditionalGeneration,
    PaddleOCRVLConfig,
    PaddleOCRVLForConditionalGeneration,
)

from vlmcli.engine.config import ModelConfig
from vlmcli.engine.preprocess import as_channels, image_grid, normalise, patchify

_TOWER = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "patch_size": 14,
}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
"""Positions of one axis."""


@dataclass(frozen=True)
class Specials:
    """Ids of a checkpoint's special tokens, and whether its head is its embedding."""

    image: int
    start: int
    end: int
    tied: bool


def paddleocr_vl(text: dict, ids: Specials):
    """A SigLIP tower with 5 × 5 learned positions before an Ernie decoder."""
    config = PaddleOCRVLConfig(
        text_config={**text, "head_dim": 32, "tie_word_embeddings": ids.tied},
        vision_config={**_TOWER, "image_size": 70},
        image_token_id=ids.image,
        vision_start_token_id=ids.start,
        vision_end_token_id=ids.end,
        tie_word_embeddings=ids.tied,
    )
    return PaddleOCRVLForConditionalGeneration, config


def paddleocr_vl_inputs(config: ModelConfig, ids: torch.Tensor, pictures) -> dict:
    """Patches row by row, each a small picture, and the grids."""
    size = config.processor.geometry.patch_size
    rows = [normalise(patchify(as_channels(p, 3), size, 1), config.processor) for p in pictures]
    return {
        "pixel_values": torch.from_numpy(np.concatenate(rows)).view(-1, 3, size, size),
        "image_grid_thw": torch.tensor([image_grid(p, config.processor) for p in pictures]),
        "mm_token_type_ids": (ids == config.image_token_id).int(),
    }


def dots_ocr(text: dict, ids: Specials):
    """The tower of `dots_reference` before a Qwen2 decoder, whose settings stand at the top."""
    config = DotsOcrConfig(
        **{**text, "rope_parameters": _ROPE},
        vision_config={
            "embed_dim": 48,
            "hidden_size": text["hidden_size"],
            "intermediate_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_channels": 3,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 1,
            "rms_norm_eps": 1e-5,
            "use_bias": False,
            "post_norm": True,
        },
        image_token_id=ids.image,
        tie_word_embeddings=ids.tied,
    )
    return DotsOcrForCausalLM, config


def dots_ocr_inputs(config: ModelConfig, ids: torch.Tensor, pictures) -> dict:
    """Patches cell by cell, of one frame, and the grids."""
    size, cell = config.processor.geometry.patch_size, config.processor.cell_size
    rows = [normalise(patchify(as_channels(p, 3), size, cell), config.processor) for p in pictures]
    return {
        "pixel_values": torch.from_numpy(np.concatenate(rows)),
        "image_grid_thw": torch.tensor([image_grid(p, config.processor) for p in pictures]),
    }


def glm_ocr(text: dict, ids: Specials, *, partial: float = 0.75):
    """A tower with normalised heads before a decoder of which three quarters of a head turn."""
    rope = {**text["rope_parameters"], "partial_rotary_factor": partial}
    rope["mrope_section"] = [2, 4, 6] if partial == 0.75 else [4, 6, 6]
    config = GlmOcrConfig(
        text_config={**text, "head_dim": 32, "rope_parameters": rope},
        vision_config={
            "depth": 2,
            "hidden_size": 48,
            "intermediate_size": 80,
            "num_heads": 3,
            "patch_size": 7,
            "spatial_merge_size": 4,
            "out_hidden_size": text["hidden_size"],
        },
        image_token_id=ids.image,
        image_start_token_id=ids.start,
        image_end_token_id=ids.end,
        tie_word_embeddings=ids.tied,
    )
    return GlmOcrForConditionalGeneration, config


def idefics2(text: dict, ids: Specials):
    """A SigLIP tower with 5 × 5 positions, a resampler of 5 tokens, a Mistral decoder."""
    config = Idefics2Config(
        text_config={**text, "model_type": "mistral", "rope_parameters": _ROPE},
        vision_config={**_TOWER, "image_size": 70},
        perceiver_config={
            "hidden_size": text["hidden_size"],
            "resampler_n_latents": 5,
            "resampler_depth": 2,
            "resampler_n_heads": 4,
            "resampler_head_dim": 12,
            "num_key_value_heads": 2,
        },
        image_token_id=ids.image,
        tie_word_embeddings=ids.tied,
    )
    return Idefics2ForConditionalGeneration, config


def idefics2_inputs(config: ModelConfig, ids: torch.Tensor, pictures) -> dict:
    """Pictures on canvases of one size, and which of their pixels are there."""
    sizes = [picture.shape[:2] for picture in pictures]
    height, width = np.max(sizes, axis=0)
    canvas = np.zeros((1, len(sizes), 3, height, width), dtype=np.float32)
    mask = np.zeros((1, len(sizes), height, width), dtype=np.int64)
    for i, picture in enumerate(pictures):
        rows, columns = picture.shape[:2]
        scaled = as_channels(picture, 3).transpose(2, 0, 1) * config.processor.rescale_factor
        canvas[0, i, :, :rows, :columns] = (scaled.astype(np.float32) - 0.5) / np.float32(0.5)
        mask[0, i, :rows, :columns] = 1
    return {
        "pixel_values": torch.from_numpy(canvas),
        "pixel_attention_mask": torch.from_numpy(mask),
    }


def lighton_ocr(text: dict, ids: Specials):
    """A Pixtral tower before a Qwen3 decoder."""
    more = {"model_type": "pixtral", "head_dim": 16, "image_size": 560, "hidden_act": "silu"}
    config = LightOnOcrConfig(
        text_config={**text, "model_type": "qwen3", "head_dim": 32, "rope_parameters": _ROPE},
        vision_config={**_TOWER, **more},
        image_token_id=ids.image,
        tie_word_embeddings=ids.tied,
    )
    return LightOnOcrForConditionalGeneration, config


def lighton_ocr_inputs(config: ModelConfig, ids: torch.Tensor, pictures) -> dict:
    """Pictures padded to one size, and their sizes."""
    processor = config.processor
    sizes = [picture.shape[:2] for picture in pictures]
    canvas = np.zeros((len(sizes), 3, *np.max(sizes, axis=0)), dtype=np.float32)
    mean, std = (
        np.array(x, dtype=np.float32).reshape(3, 1, 1)
        for x in (processor.image_mean, processor.image_std)
    )
    for place, picture, (height, width) in zip(canvas, pictures, sizes, strict=True):
        rows = as_channels(picture, 3).transpose(2, 0, 1) * np.float32(processor.rescale_factor)
        place[:, :height, :width] = (rows - mean) / std
    return {"pixel_values": torch.from_numpy(canvas), "image_sizes": torch.tensor(sizes)}


UNTILED = {
    "dots_ocr": dots_ocr,
    "glm_ocr": glm_ocr,
    "idefics2": idefics2,
    "lighton_ocr": lighton_ocr,
    "paddleocr_vl": paddleocr_vl,
}
"""Kinds that are made here, to what makes the class and the config from text settings and ids."""
UNTILED_INPUTS = {
    "dots_ocr": dots_ocr_inputs,
    "idefics2": idefics2_inputs,
    "lighton_ocr": lighton_ocr_inputs,
    "paddleocr_vl": paddleocr_vl_inputs,
}
"""Model types whose pictures do not go to transformers as Qwen2-VL's do."""
UNTILED_PROCESSORS = {
    "dots_ocr": {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 1,
        "min_pixels": 28 * 28,
        "max_pixels": 28 * 28 * 64,
    },
    "idefics2": {
        "size": {"shortest_edge": 28, "longest_edge": 280},
        "do_image_splitting": False,
    },
    "lighton_ocr": {"patch_size": 14, "size": {"longest_edge": 560}},
}
"""Settings of processors that are not Qwen2-VL's."""
