"""Writes a training checkpoint as a Hugging Face Qwen2-VL folder, and reads such a folder back.

The folder loads in `transformers` as it is: config.json, model.safetensors (fp16), tokenizer.json,
preprocessor_config.json, generation_config.json; the draft head lies in draft/, because vLLM reads
every safetensors file beside the model as model weights. It does not quantise.

    python export.py run/checkpoint.pt out/
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from model import (
    BLANK,
    DRAFT_END,
    END,
    IMAGE,
    MERGE,
    PATCH,
    VISION_END,
    VISION_START,
    VOCABULARY,
    Nano,
    NanoConfig,
)
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from words import FILE, write_words

_PATCH_WEIGHT = "visual.patch_embed.proj.weight"
_COPIES = 6  # three equal channels times two equal frames
_SPECIAL = (
    "<|image_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|video_pad|>",
    "<|draft_end|>",
    "<|reserved|>",
)


def to_hugging_face(model: Nano) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The model's tensors by Hugging Face name, and the draft head's by its own."""
    tensors: dict[str, Tensor] = {}
    draft: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if name == _PATCH_WEIGHT:
            grey = value.view(-1, 1, 1, PATCH, PATCH) / _COPIES
            tensors[name] = grey.expand(-1, 3, 2, PATCH, PATCH)
        elif name.startswith("draft_head."):
            draft[name] = value
        elif not name.startswith("column_head."):
            tensors[name] = value
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    return tensors, draft


def load_into(model: Nano, folder: Path) -> None:
    """Fill `model` from an exported folder; heads that the folder lacks keep their start values."""
    state = load_file(folder / "model.safetensors")
    state.pop("lm_head.weight")
    state[_PATCH_WEIGHT] = state[_PATCH_WEIGHT].float().sum((1, 2)).flatten(1)
    draft = folder / "draft" / "model.safetensors"
    if draft.exists():
        head = load_file(draft)
        state |= {k: v for k, v in head.items() if k in model.state_dict()}
    columns = folder / "column_head.safetensors"
    if columns.exists():
        state |= {f"column_head.{k.rsplit('.', 1)[-1]}": v for k, v in load_file(columns).items()}
    missing, unexpected = model.load_state_dict({k: v.float() for k, v in state.items()}, False)
    assert not unexpected, unexpected
    assert all(k.startswith(("draft_head.", "column_head.")) for k in missing), missing


def model_config(config: NanoConfig, dtype: str) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "intermediate_size": config.intermediate,
        "vocab_size": VOCABULARY,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "rope_scaling": {"type": "mrope", "mrope_section": list(config.mrope)},
        "vision_start_token_id": VISION_START,
        "vision_end_token_id": VISION_END,
        "image_token_id": IMAGE,
        "video_token_id": 261,
        "eos_token_id": END,
        "pad_token_id": BLANK,
        "bos_token_id": None,
        "torch_dtype": dtype,
        "draft_head": {
            "type": "ctc",
            "steps": config.draft_steps,
            "width": config.draft_width,
            "reach": config.draft_reach,
            "blank_token_id": BLANK,
            "draft_end_token_id": DRAFT_END,
            "in_prompt": True,
            "prompt_length": config.draft_length,
            "pad_token_id": BLANK,
        },
        "vision_config": {
            "model_type": "qwen2_vl",
            "depth": config.vision_depth,
            "embed_dim": config.vision_width,
            "hidden_size": config.width,
            "num_heads": config.vision_heads,
            "mlp_ratio": 4,
            "in_channels": 3,
            "in_chans": 3,
            "patch_size": PATCH,
            "spatial_patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "hidden_act": "quick_gelu",
        },
    }


def build_tokenizer() -> Tokenizer:
    """Byte-level: token n is byte n below 256, then the special tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in letters)
    letters |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab={letters[b]: b for b in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    return tokenizer


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def export(model: Nano, folder: Path, dtype: torch.dtype = torch.float16) -> None:
    """Write the folder; existing files of the same names are replaced."""
    (folder / "draft").mkdir(parents=True, exist_ok=True)
    tensors, draft = to_hugging_face(model)
    for path, group in (("model.safetensors", tensors), ("draft/model.safetensors", draft)):
        ready = {name: value.detach().to(dtype).cpu().contiguous() for name, value in group.items()}
        save_file(ready, folder / path, metadata={"format": "pt"})
    _write_json(folder / "config.json", model_config(model.config, str(dtype).split(".")[-1]))
    image = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 28 * 28}
    image |= {"max_pixels": 28 * 28 * 256, "patch_size": PATCH, "merge_size": MERGE}
    image |= {"temporal_patch_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    _write_json(folder / "preprocessor_config.json", image)
    _write_json(
        folder / "generation_config.json",
        {"eos_token_id": END, "pad_token_id": BLANK, "do_sample": False, "max_new_tokens": 256},
    )
    reads: dict[str, Any] = {"reads": "lines", "line_height": PATCH * MERGE}
    reads |= {"max_line_width": 896, "reread_below": 0.99}
    reads |= {"words": FILE} if write_words(folder) else {}
    _write_json(folder / "vlmcli.json", reads)
    build_tokenizer().save(str(folder / "tokenizer.json"))
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    words |= {"pad_token": "<|endoftext|>", "image_token": "<|image_pad|>"}
    _write_json(folder / "tokenizer_config.json", words | {"model_max_length": 4096})


def load_checkpoint(path: Path, *, averaged: bool = True) -> Nano:
    """The model of a training checkpoint, with its averaged weights unless told otherwise."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    config = state["config"] | {"mrope": tuple(state["config"]["mrope"])}
    model = Nano(NanoConfig(**config))
    model.load_state_dict(state["average"] if averaged else state["model"])
    return model.eval()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    export(load_checkpoint(args.checkpoint), args.folder)


if __name__ == "__main__":
    main()
