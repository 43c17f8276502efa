"""Random checkpoints of the shape of SmolVLM-256M-Instruct, and of a tiny one of the same family.

As in `checkpoints`: written by transformers, the built-in model's tokenizer with the marks of tiles
added, answers without meaning. Pages become fewer tiles than the published model makes of them: a
benchmark wants to see the decoder, and tiles of 512 pixels cost what they cost in any runtime.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from vlmcli.bench.checkpoints import BYTE_IMAGE, BYTE_PAD, Widths, save_random, text_config
from vlmcli.checkpoint import built_in_path

_FIRST_MARK = 272
"""Behind all ids of the built-in tokenizer."""
_SIDE = 4
"""Rows and columns of tiles that have marks."""
_MARKS = (
    *("<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<global-img>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, _SIDE + 1) for column in range(1, _SIDE + 1)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledShape(Widths):
    """A SmolVLM of any size: its decoder, its SigLIP tower, and how pages are cut."""

    tile_size: int
    patch_size: int
    scale_factor: int
    longest_edge: int
    """Pixels of a page's longer side before it is cut; each side is rounded up to whole tiles."""


SMOLVLM_256M = TiledShape(
    name="smolvlm-256m",
    hidden_size=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    intermediate_size=1536,
    vocab_size=49_280,
    vision_width=768,
    vision_layers=12,
    vision_heads=12,
    tile_size=512,
    patch_size=16,
    scale_factor=4,
    longest_edge=1024,
)
"""256 million parameters; the published processor has 2,048 pixels for the longest edge."""
SMOLVLM_TINY = TiledShape(
    name="smolvlm-tiny",
    hidden_size=96,
    num_layers=2,
    num_heads=3,
    num_kv_heads=1,
    intermediate_size=192,
    vocab_size=512,
    vision_width=48,
    vision_layers=2,
    vision_heads=3,
    tile_size=64,
    patch_size=16,
    scale_factor=2,
    longest_edge=128,
)


def write_smolvlm(folder: Path, shape: TiledShape) -> Path:
    """A lively checkpoint of this shape, the same one every time; returns its directory."""
    from transformers import SmolVLMConfig

    config = SmolVLMConfig(
        text_config={"model_type": "llama", **text_config(shape, 100_000.0, 8192)},
        vision_config={
            "hidden_size": shape.vision_width,
            "num_hidden_layers": shape.vision_layers,
            "num_attention_heads": shape.vision_heads,
            "intermediate_size": 4 * shape.vision_width,
            "image_size": shape.tile_size,
            "patch_size": shape.patch_size,
        },
        scale_factor=shape.scale_factor,
        image_token_id=BYTE_IMAGE,
        pad_token_id=BYTE_PAD,
        tie_word_embeddings=False,
    )
    path = save_random(folder / shape.name, config)
    processor = {
        "image_processor_type": "SmolVLMImageProcessor",
        "size": {"longest_edge": shape.longest_edge},
        "max_image_size": {"longest_edge": shape.tile_size},
    }
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    _write_tokenizer(path)
    return path


def _write_tokenizer(path: Path) -> None:
    """The built-in tokenizer of bytes, with a token for every mark."""
    raw = json.loads((built_in_path() / "tokenizer.json").read_text())
    like = raw["added_tokens"][-1]
    raw["added_tokens"] += [
        like | {"id": _FIRST_MARK + i, "content": text} for i, text in enumerate(_MARKS)
    ]
    (path / "tokenizer.json").write_text(json.dumps(raw))
    shutil.copy(built_in_path() / "tokenizer_config.json", path / "tokenizer_config.json")
