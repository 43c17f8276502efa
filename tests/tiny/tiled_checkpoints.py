"""Tiny random checkpoints of families that cut pictures into tiles, and prompts for both sides.

The pixels of the reference are those of transformers' own image processors, so that cutting,
resizing and the order of tiles are compared along with the model. Nothing here asserts.
"""

import json
import re
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_checkpoints import Prompt, random_model
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    InternVLConfig,
    InternVLForConditionalGeneration,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    PreTrainedConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from vlmcli.checkpoint import built_in_path
from vlmcli.engine.config import ModelConfig
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.models.registry import find_family
from vlmcli.engine.preprocess import as_channels
from vlmcli.engine.views import lay_out

IMAGE, EOS = 256, 259
FIRST_MARKER, VOCAB = 272, 300
MARKERS = (
    *("<img>", "</img>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"),
    *(f"<row_{row}_col_{column}>" for row in (1, 2, 3) for column in (1, 2, 3)),
)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_TEXT = {
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "vocab_size": VOCAB,
    "max_position_embeddings": 2048,
    "eos_token_id": EOS,
    "bos_token_id": None,
    "pad_token_id": None,
}
_TOWER = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "patch_size": 14,
    "image_size": 56,
}


@dataclass(frozen=True)
class TiledKind:
    """A tiny model: classes of transformers, settings, and its image processor."""

    make_config: Any
    make_model: Any
    make_processor: Any
    text: dict
    vision: dict = field(default_factory=dict)
    config: dict = field(default_factory=dict)
    processor: dict = field(default_factory=dict)
    image_token_key: str = "image_token_id"


def _internvl(text: dict, **vision) -> TiledKind:
    return TiledKind(
        make_config=InternVLConfig,
        make_model=InternVLForConditionalGeneration,
        make_processor=GotOcr2ImageProcessorPil,
        text=text,
        vision=vision,
        processor={
            "size": {"height": 56, "width": 56},
            "crop_to_patches": True,
            "max_patches": 6,
            "image_mean": list(MEAN),
            "image_std": list(STD),
        },
    )


_PINPOINTS = [[60 * rows, 60 * columns] for rows in (1, 2, 3) for columns in (1, 2, 3)]
KINDS = {
    "llava_onevision": TiledKind(
        make_config=LlavaOnevisionConfig,
        make_model=LlavaOnevisionForConditionalGeneration,
        make_processor=LlavaOnevisionImageProcessorPil,
        text={"model_type": "qwen2"},
        vision={"model_type": "siglip_vision_model", "image_size": 60, "vision_use_head": False},
        config={"image_grid_pinpoints": _PINPOINTS, "vision_aspect_ratio": "anyres_max_2"},
        processor={"size": {"height": 60, "width": 60}, "image_grid_pinpoints": _PINPOINTS},
        image_token_key="image_token_index",
    ),
    "idefics3": TiledKind(
        make_config=Idefics3Config,
        make_model=Idefics3ForConditionalGeneration,
        make_processor=Idefics3ImageProcessorPil,
        text={"model_type": "llama"},
        vision={"image_size": 70},
        processor={"size": {"longest_edge": 168}, "max_image_size": {"longest_edge": 56}},
    ),
    "smolvlm": TiledKind(
        make_config=SmolVLMConfig,
        make_model=SmolVLMForConditionalGeneration,
        make_processor=SmolVLMImageProcessorPil,
        text={"model_type": "llama"},
        vision={"image_size": 89, "patch_size": 14},
        config={"scale_factor": 3},
        processor={"size": {"longest_edge": 178}, "max_image_size": {"longest_edge": 89}},
    ),
    "internvl3": _internvl(
        {
            "model_type": "qwen2",
            "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        },
        attention_bias=True,
    ),
    "internvl3_5": _internvl(
        {"model_type": "qwen3", "head_dim": 32},
        norm_type="rms_norm",
        use_qk_norm=True,
        use_mean_pooling=False,
    ),
}
"""Idefics3's tiles have fewer patches than its tower has positions, SmolVLM's are no multiple of a
patch. The second InternVL has the norms of the 6B tower, and a norm behind it that no release
has."""


def write_tiled_checkpoint(
    path: Path, kind: str, *, tied: bool = False, seed: int = 0, **save
) -> Path:
    """A random checkpoint of one of `KINDS` with a tokenizer of bytes, its logits far from flat."""
    facts = KINDS[kind]
    model = random_model(facts.make_model, _config(kind, tied=tied), seed)
    model.save_pretrained(path, **save)
    (path / "preprocessor_config.json").write_text(json.dumps(facts.processor))
    write_tokenizer(path)
    return path


def write_tokenizer(path: Path, markers: Sequence[str] = MARKERS) -> None:
    """The built-in tokenizer of bytes, and a token for each marker."""
    raw = json.loads((built_in_path() / "tokenizer.json").read_text())
    like = raw["added_tokens"][-1]
    more = [like | {"id": FIRST_MARKER + i, "content": text} for i, text in enumerate(markers)]
    raw["added_tokens"] += more
    (path / "tokenizer.json").write_text(json.dumps(raw))
    shutil.copy(built_in_path() / "tokenizer_config.json", path / "tokenizer_config.json")


def tiled_config(kind: str) -> ModelConfig:
    """Our reading of a kind's configuration, without a checkpoint."""
    raw = _config(kind).to_dict()
    return find_family(raw["model_type"]).parse_config(raw, KINDS[kind].processor)


def _config(kind: str, *, tied: bool = False) -> PreTrainedConfig:
    facts = KINDS[kind]
    return facts.make_config(
        text_config={**_TEXT, "tie_word_embeddings": tied, **facts.text},
        vision_config={**_TOWER, **facts.vision},
        tie_word_embeddings=tied,
        **{facts.image_token_key: IMAGE},
        **facts.config,
    )


def encode_markers(text: str) -> list[int]:
    """A tokenizer that has a token for every marker in angle brackets and for a line break."""
    assert re.fullmatch(r"(<[^<>]+>|\n)*", text)
    return [100 + zlib.crc32(found.encode()) % 100 for found in re.findall(r"<[^<>]+>|\n", text)]


def tiled_prompt(runner: ModelRunner, parts: list) -> Prompt:
    """A prompt of token ids and pictures of any size, in the given order.

    `pictures` are the tiles, parallel to the placeholders, as the engine takes them.
    """
    family = find_family(runner.model_config.model_type)
    ids: list[int] = []
    images, placeholders = [], []
    for part in parts:
        if isinstance(part, int):
            ids.append(part)
            continue
        laid_out = lay_out(
            family.parts(part, runner.model_config),
            encode_markers,
            image_token_id=runner.model_config.image_token_id,
            offset=len(ids),
        )
        ids += laid_out.token_ids
        images += laid_out.images
        placeholders += laid_out.placeholders
    return Prompt(ids, tuple(images), tuple(placeholders))


def reference_inputs(kind: str, ids: list[int], pictures: list) -> dict[str, torch.Tensor]:
    """A prompt as transformers takes it; its image processor cuts the pictures."""
    tensor = torch.tensor([ids])
    inputs = {"input_ids": tensor, "attention_mask": torch.ones_like(tensor)}
    if not pictures:
        return inputs
    facts = KINDS[kind]
    processor = facts.make_processor(**facts.processor)
    colour = [as_channels(picture, 3) for picture in pictures]
    out = processor(images=colour, return_tensors="pt")
    names = ("pixel_values", "pixel_attention_mask", "image_sizes")
    return inputs | {name: out[name] for name in names if name in out}


def pictures_of(parts: list) -> list[np.ndarray]:
    """The pictures among the parts of a prompt."""
    return [part for part in parts if not isinstance(part, int)]
