"""An exported nano folder is a Qwen2-VL checkpoint: transformers computes the same logits."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

RECIPE = Path(__file__).parents[2] / "recipes" / "nano"
SMALL = {"vision_depth": 2, "depth": 2, "intermediate": 128}


def test_transformers_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Qwen2VLForConditionalGeneration

    monkeypatch.syspath_prepend(RECIPE)
    for name in ("model", "export"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    nano, export = importlib.import_module("model"), importlib.import_module("export")
    torch.manual_seed(0)
    ours = nano.Nano(nano.NanoConfig(**SMALL)).eval()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, 0, 0.08)
    export.export(ours, tmp_path, torch.float32)
    theirs = Qwen2VLForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32).eval()

    pixels = torch.randn(1, 28, 28 * 3)
    draft = nano.pad_draft(b"Tbe quick", ours.config.draft_length)
    line = list(b"The quick")
    prompt = [nano.VISION_START, *[nano.IMAGE] * 3, nano.VISION_END, *draft]
    patches = pixels.view(1, 4, 7, 3, 4, 7).permute(0, 3, 1, 4, 2, 5).reshape(48, 1, 1, 7, 7)
    ids = torch.tensor([prompt + line])
    with torch.no_grad():
        tokens, _ = ours.visual(pixels)
        mine = ours.decode(tokens, torch.tensor([[*draft, *line]]))
        other = theirs(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=patches.expand(-1, 3, 2, -1, -1).reshape(48, -1),
            image_grid_thw=torch.tensor([[1, 4, 12]]),
            mm_token_type_ids=(ids == nano.IMAGE).int(),
        ).logits[:, 5:]
    assert mine.shape == other.shape
    assert torch.allclose(mine, other, atol=1e-4, rtol=1e-4)
    for name in ("model", "export"):
        sys.modules.pop(name, None)


def test_tokens_are_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RECIPE)
    for name in ("model", "export"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    tokenizer = importlib.import_module("export").build_tokenizer()
    text = "Größe: 5 € – «très» naïve\n"
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text
    assert tokenizer.token_to_id("<|draft_end|>") == 262
    for name in ("model", "export"):
        sys.modules.pop(name, None)
