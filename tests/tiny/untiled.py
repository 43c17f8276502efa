"""Configs of tiny models that take pictures whole, and their inputs, in transformers' own forms.

Used by `tiny_checkpoints`; nothing here asserts.
"""

from dataclasses import dataclass

import numpy as np
import torch
from transformers import (
    GlmOcrConfig,
    GlmOcrForConditionalGeneration,
    PaddleOCRVLConfig,
    PaddleOCRVLForConditionalGeneration,
)

from vlmcli.engine.config import ModelConfig
from vlmcli.engine.preprocess import as_channels, image_grid, normalise, patchify


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
        vision_config={
            "hidden_size": 48,
            "intermediate_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "image_size": 70,
            "patch_size": 14,
        },
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


UNTILED = {"glm_ocr": glm_ocr, "paddleocr_vl": paddleocr_vl}
"""Kinds that are made here, to what makes the class and the config from text settings and ids."""
UNTILED_INPUTS = {"paddleocr_vl": paddleocr_vl_inputs}
"""Model types whose pictures do not go to transformers as Qwen2-VL's do."""
