"""Tiny random checkpoints with a CTC draft head, and lines for them; nothing here asserts."""

import itertools
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tiny_checkpoints import as_input, random_picture, write_checkpoint

from vlmcli.engine.config import ModelConfig
from vlmcli.engine.request import PlaceholderRange, Request, SamplingParams

STEPS, WIDTH, REACH, DRAFT_LENGTH = 5, 16, 2, 20
IMAGE, START, END, EOS, BLANK, DRAFT_END, VOCABULARY = 256, 257, 258, 259, 260, 262, 264
HEAD = {
    "type": "ctc",
    "steps": STEPS,
    "width": WIDTH,
    "reach": REACH,
    "blank_token_id": BLANK,
    "draft_end_token_id": DRAFT_END,
    "prompt_length": DRAFT_LENGTH,
    "pad_token_id": BLANK,
}


def write_draft_checkpoint(path: Path, *, seed: int = 0, **head) -> Path:
    """A checkpoint with bytes as tokens, whose decoder writes bytes and now and then ends.

    `head` overrides entries of `HEAD` in config.json.
    """
    write_checkpoint(path, "merge4_patch7", seed=seed, first_special=IMAGE, vocab_size=VOCABULARY)
    weights = load_file(path / "model.safetensors")
    special = torch.arange(VOCABULARY) >= IMAGE
    special[EOS] = False
    weights["lm_head.weight"][special] = 0
    weights["lm_head.weight"][EOS] *= 1.3
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    hidden = config["text_config"]["hidden_size"]
    (path / "config.json").write_text(json.dumps(config | {"draft_head": HEAD | head}))
    (path / "draft").mkdir()
    save_file(random_head(hidden, seed), path / "draft" / "model.safetensors")
    return path


def random_head(hidden: int, seed: int) -> dict[str, torch.Tensor]:
    """Weights that say nothing at some half of the steps and repeat themselves now and then."""
    torch.manual_seed(seed)
    fc2 = torch.randn(VOCABULARY, WIDTH)
    fc2[8:BLANK] *= 0.5
    bias = torch.zeros(VOCABULARY)
    bias[BLANK] = 2.0
    return {
        "draft_head.fc1.weight": torch.randn(STEPS * WIDTH, hidden) / hidden**0.5,
        "draft_head.fc1.bias": torch.randn(STEPS * WIDTH) * 0.2,
        "draft_head.conv.weight": torch.randn(WIDTH, WIDTH, 2 * REACH + 1) / (WIDTH * 3) ** 0.5,
        "draft_head.conv.bias": torch.randn(WIDTH) * 0.2,
        "draft_head.fc2.weight": fc2,
        "draft_head.fc2.bias": bias,
    }


def plain_draft(weights: dict[str, torch.Tensor], tokens: torch.Tensor) -> list[int]:
    """The draft of one line, step by step as its definition says; tokens [T, hidden]."""
    w = {name.removeprefix("draft_head."): value for name, value in weights.items()}
    h = F.gelu(tokens @ w["fc1.weight"].t() + w["fc1.bias"]).view(-1, w["conv.weight"].shape[0])
    reach = w["conv.weight"].shape[2] // 2
    mixed = F.conv1d(h.t()[None], w["conv.weight"], w["conv.bias"], padding=reach)[0].t()
    logits = (h + F.gelu(mixed)) @ w["fc2.weight"].t() + w["fc2.bias"]
    return [token for token, _ in itertools.groupby(logits.argmax(-1).tolist()) if token < 256]


def line(seed: int, columns: int) -> np.ndarray:
    """A grey picture of `columns` visual tokens."""
    return random_picture(np.random.default_rng(seed), 28, 28 * columns, grey=True)


def line_request(config: ModelConfig, name: str, pixels: np.ndarray, max_tokens: int) -> Request:
    """What the line reader asks: the picture between its marks, and no draft yet."""
    columns = pixels.shape[1] // 28
    image = [config.image_token_id] * columns
    return Request(
        request_id=name,
        prompt_token_ids=[config.vision_start_token_id, *image, config.vision_end_token_id],
        images=(as_input(pixels),),
        placeholders=(PlaceholderRange(offset=1, length=columns, grid=(1, 1, columns)),),
        sampling=SamplingParams(max_tokens=max_tokens),
    )
