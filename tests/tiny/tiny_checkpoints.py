"""Tiny random checkpoints written by transformers, and prompts over pictures for both sides.

Imported by the tests of this directory; nothing here asserts.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForImageTextToText,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from untiled import UNTILED, UNTILED_INPUTS, UNTILED_PROCESSORS, Specials

from vlmcli.engine.batch import BatchInput
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.positions import mrope_positions, rope_positions
from vlmcli.engine.preprocess import as_channels, image_grid, normalise, patchify
from vlmcli.engine.request import ImageInput, PlaceholderRange

IMAGE, START, END, EOS, VIDEO = 90, 91, 92, 93, 94
FACTS = {
    "merge2_patch14": {"patch_size": 14, "spatial_merge_size": 2, "heads": 4, "kv_heads": 2},
    "merge4_patch7": {"patch_size": 7, "spatial_merge_size": 4, "heads": 3, "kv_heads": 1},
    "dots_ocr": {"patch_size": 14, "spatial_merge_size": 2, "heads": 4, "kv_heads": 2},
    "lighton_ocr": {"patch_size": 14, "spatial_merge_size": 2, "heads": 4, "kv_heads": 2},
    "qwen2_5_vl": {"patch_size": 14, "spatial_merge_size": 2, "heads": 4, "kv_heads": 2},
    "qwen3_vl": {"patch_size": 14, "spatial_merge_size": 2, "heads": 4, "kv_heads": 2},
    "glm_ocr": {
        "patch_size": 7,
        "spatial_merge_size": 4,
        "heads": 3,
        "kv_heads": 1,
        "final_norm": 0.5,
    },
    "idefics2": {"patch_size": 14, "spatial_merge_size": 1, "heads": 4, "kv_heads": 2},
    "paddleocr_vl": {"patch_size": 14, "spatial_merge_size": 2, "heads": 4, "kv_heads": 2},
}
"""`final_norm` is the size of the last norm's weights, and so of the logits. Through its merger
and sandwich norms, GLM-OCR has float32 err by 9e-6 on logits of size 1, on either side."""
TOWERS = {
    "qwen2_vl": (Qwen2VLConfig, Qwen2VLForConditionalGeneration, {"embed_dim": 48}),
    "qwen2_5_vl": (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        {"intermediate_size": 80, "window_size": 56, "fullatt_block_indexes": [1]},
    ),
    "qwen3_vl": (
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        {
            "intermediate_size": 80,
            "num_position_embeddings": 49,
            "deepstack_visual_indexes": [0, 1],
        },
    ),
}
"""Classes and the tower's own facts; the width of the tower is 48, windows are of 2 × 2 cells."""


def write_checkpoint(
    path: Path,
    kind: str,
    *,
    tied: bool = False,
    seed: int = 0,
    first_special: int = IMAGE,
    vocab_size: int = 97,
    **save,
) -> Path:
    """A random checkpoint of one of `FACTS`, its logits far from flat.

    `IMAGE` and the other special ids are those for the default of `first_special`.
    """
    facts = FACTS[kind]
    shift = first_special - IMAGE
    heads = facts["heads"]
    text = {
        "hidden_size": 32 * heads,
        "num_hidden_layers": 3,
        "num_attention_heads": heads,
        "num_key_value_heads": facts["kv_heads"],
        **({"head_dim": 32} if kind in ("qwen3_vl",) else {}),
        "intermediate_size": 96,
        "vocab_size": vocab_size,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [4, 6, 6],
        },
        "max_position_embeddings": 512,
        "eos_token_id": EOS + shift,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    if kind in UNTILED:
        specials = Specials(IMAGE + shift, START + shift, END + shift, tied=tied)
        make_model, config = UNTILED[kind](text, specials)
        return write_model(path, make_model, config, facts, seed, save)
    make_config, make_model, own = TOWERS[kind if kind in TOWERS else "qwen2_vl"]
    width = "out_hidden_size" if "intermediate_size" in own else "hidden_size"
    config = make_config(
        text_config=text,
        vision_config={
            "depth": 2,
            "hidden_size": 48,
            width: 32 * heads,
            "num_heads": 3,
            "patch_size": facts["patch_size"],
            "spatial_merge_size": facts["spatial_merge_size"],
            **own,
        },
        image_token_id=IMAGE + shift,
        video_token_id=VIDEO + shift,
        vision_start_token_id=START + shift,
        vision_end_token_id=END + shift,
        tie_word_embeddings=tied,
    )
    return write_model(path, make_model, config, facts, seed, save)


def write_model(path: Path, make_model, config, facts: dict, seed: int, save: dict) -> Path:
    """A model with random weights, and the settings of its processor."""
    model = random_model(make_model, config, seed, final_norm=facts.get("final_norm", 1.0))
    model.save_pretrained(path, **save)
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": facts["patch_size"],
        "merge_size": facts["spatial_merge_size"],
        "temporal_patch_size": 2,
        "min_pixels": 28 * 28,
        "max_pixels": 28 * 28 * 64,
    }
    processor = UNTILED_PROCESSORS.get(config.model_type, processor)
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    return path


def random_model(make_model, config, seed: int, *, final_norm: float = 1.0) -> PreTrainedModel:
    """A model whose biases are near zero, whose norms are near one, and whose logits vary."""
    torch.manual_seed(seed)
    model = make_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim == 1:
                is_norm = ("norm" in name or "ln_q" in name) and name.endswith("weight")
                parameter.copy_(noise * 0.2 + (is_norm or "lambda" in name))
                if name.endswith("language_model.norm.weight"):
                    parameter.mul_(final_norm)
            else:
                parameter.copy_(noise / parameter[0].numel() ** 0.5)
    return model


def load_runner(path: Path, num_blocks: int = 64, **config) -> ModelRunner:
    """Our side of a checkpoint, with a pool of `num_blocks` blocks."""
    runner = ModelRunner.from_checkpoint(path, EngineConfig(**config))
    runner.allocate_kv(num_blocks)
    return runner


def load_reference(path: Path) -> PreTrainedModel:
    """Transformers' side, float32, attention in plain torch."""
    model = AutoModelForImageTextToText.from_pretrained(
        path, dtype=torch.float32, attn_implementation="sdpa"
    )
    return model.eval()


def random_picture(rng: np.random.Generator, height: int, width: int, *, grey: bool) -> np.ndarray:
    """uint8 noise over a gradient, so that every patch is different."""
    shape = (height, width) if grey else (height, width, 3)
    noise = rng.integers(0, 200, shape)
    ramp = np.linspace(0, 55, width).reshape((1, -1) if grey else (1, -1, 1))
    return (noise + ramp).astype(np.uint8)


def as_input(pixels: np.ndarray | ImageInput) -> ImageInput:
    """A picture for our encoder; what is ready already stays as it is."""
    if isinstance(pixels, ImageInput):
        return pixels
    digest = hashlib.sha256(pixels.tobytes() + repr(pixels.shape).encode()).digest()
    return ImageInput(pixels=pixels, mm_hash=digest)


@dataclass(frozen=True)
class Prompt:
    """Token ids with expanded placeholders, and the pictures behind them."""

    ids: list[int]
    pictures: tuple[np.ndarray | ImageInput, ...]
    placeholders: tuple[PlaceholderRange, ...]


def make_prompt(runner: ModelRunner, parts: list) -> Prompt:
    """A prompt of token ids and pictures in the given order."""
    processor = runner.model_config.processor
    ids, pictures, placeholders = [], [], []
    for part in parts:
        if isinstance(part, int):
            ids.append(part)
            continue
        grid = runner.model_config.vision.token_grid(image_grid(part, processor))
        length = int(np.prod(grid))
        config = runner.model_config
        ids.append(config.vision_start_token_id if config.uses_mrope else 1)
        placeholders.append(PlaceholderRange(offset=len(ids), length=length, grid=grid))
        end = config.vision_end_token_id if config.uses_mrope else 2
        ids += [config.image_token_id] * length + [end]
        pictures.append(part)
    return Prompt(ids, tuple(pictures), tuple(placeholders))


def reference_logits(model, runner: ModelRunner, prompt: Prompt) -> torch.Tensor:
    """Transformers' logits [T, vocab] of the whole prompt."""
    with torch.no_grad():
        return model(**reference_inputs(runner, prompt)).logits[0]


def reference_inputs(runner: ModelRunner, prompt: Prompt) -> dict[str, torch.Tensor]:
    """A prompt as transformers' models of the family take it."""
    ids = torch.tensor([prompt.ids])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if not prompt.pictures:
        return inputs
    if runner.model_config.model_type in UNTILED_INPUTS:
        make = UNTILED_INPUTS[runner.model_config.model_type]
        return inputs | make(runner.model_config, ids, prompt.pictures)
    pixel_values, grids = reference_pixels(runner, prompt.pictures)
    types = (ids == runner.model_config.image_token_id).int()
    more = {"pixel_values": pixel_values, "image_grid_thw": grids, "mm_token_type_ids": types}
    return inputs | more


def reference_pixels(runner: ModelRunner, pictures) -> tuple[torch.Tensor, torch.Tensor]:
    """`pixel_values` and `image_grid_thw` for transformers, frames repeated."""
    processor = runner.model_config.processor
    geometry = processor.geometry
    rows, grids = [], []
    for picture in pictures:
        colour = as_channels(picture, 3)
        patches = normalise(patchify(colour, geometry.patch_size, geometry.merge_size), processor)
        frames = patches.reshape(len(patches), 3, 1, -1).repeat(geometry.temporal_patch_size, 2)
        rows.append(frames.reshape(len(patches), -1))
        grids.append(image_grid(picture, processor))
    return torch.from_numpy(np.concatenate(rows)), torch.tensor(grids)


@dataclass(frozen=True)
class Chunk:
    """Tokens [start, end) of a sequence that owns `blocks`."""

    prompt: Prompt
    start: int
    end: int
    blocks: tuple[int, ...]


def make_batch(runner: ModelRunner, chunks: list[Chunk]) -> BatchInput:
    """The arrays of one step over several chunks; logits of every row are wanted."""
    size = runner.config.block_size
    ids, positions, slots, embed_rows, embeds, lens = [], [], [], [], [], []
    for chunk in chunks:
        prompt, base = chunk.prompt, sum(lens)
        where, _ = (
            mrope_positions(len(prompt.ids), prompt.placeholders)
            if runner.model_config.uses_mrope
            else rope_positions(len(prompt.ids))
        )
        ids += prompt.ids[chunk.start : chunk.end]
        positions.append(where[:, chunk.start : chunk.end])
        slots += [chunk.blocks[i // size] * size + i % size for i in range(chunk.start, chunk.end)]
        encoded = runner.encode([as_input(picture) for picture in prompt.pictures])
        for placeholder, tokens in zip(prompt.placeholders, encoded, strict=True):
            first = max(placeholder.offset, chunk.start)
            last = min(placeholder.end, chunk.end)
            if first < last:
                embed_rows += range(base + first - chunk.start, base + last - chunk.start)
                embeds.append(tokens[first - placeholder.offset : last - placeholder.offset])
        lens.append(chunk.end - chunk.start)
    width = max(len(chunk.blocks) for chunk in chunks)
    tables = [[*chunk.blocks, *[0] * (width - len(chunk.blocks))] for chunk in chunks]
    return BatchInput(
        input_ids=np.array(ids, dtype=np.int64),
        positions=np.concatenate(positions, axis=1),
        slot_mapping=np.array(slots, dtype=np.int64),
        block_tables=np.array(tables, dtype=np.int32),
        context_lens=np.array([chunk.end for chunk in chunks], dtype=np.int32),
        cu_seqlens_q=np.cumsum([0, *lens], dtype=np.int32),
        logit_rows=np.arange(len(ids), dtype=np.int64),
        embed_rows=np.array(embed_rows, dtype=np.int64),
        embeds=tuple(embeds),
    )
