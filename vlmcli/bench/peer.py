"""The other side of the engine benchmark: `transformers` reads the same crops with generate.

It knows no draft heads. Where the draft is part of the prompt, our runner computes it once, before
the clock starts: transformers gets that work for nothing.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vlmcli.engine.config import EngineConfig, ProcessorConfig
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.preprocess import as_channels, normalise, pack
from vlmcli.engine.request import ImageInput
from vlmcli.engine.tokenizer import load_tokenizer
from vlmcli.readers.crops import column_width, crop_digest

Pixels = npt.NDArray[np.uint8]
_BYTES_PER_COLUMN = 8


class TransformersPeer:
    """A Qwen2-VL checkpoint in transformers, fp32 on the CPU, its stock attention and generate."""

    def __init__(self, path: Path, *, threads: int) -> None:
        from transformers import Qwen2VLForConditionalGeneration

        self._runner = ModelRunner.from_checkpoint(path, EngineConfig(num_threads=threads))
        self._config = self._runner.model_config
        self._tokenizer = load_tokenizer(path)
        self._model = Qwen2VLForConditionalGeneration.from_pretrained(
            path, dtype=torch.float32
        ).eval()

    def prompts(self, crops: Sequence[Pixels]) -> list[list[int]]:
        """The prompt of each crop, completed by its draft where the model wants it so."""
        config = self._config
        prompts = []
        for crop in crops:
            images = [config.image_token_id] * self._columns(crop)
            prompt = [config.vision_start_token_id, *images, config.vision_end_token_id]
            head = config.draft_head
            if head is not None and head.prompt_length:
                image = ImageInput(pixels=crop, mm_hash=crop_digest(crop))
                (draft,) = self._runner.draft(self._runner.encode([image]))
                prompt += head.in_prompt(draft)
            prompts.append(prompt)
        return prompts

    @torch.inference_mode()
    def read(self, crops: Sequence[Pixels], prompts: Sequence[list[int]]) -> list[str]:
        """Texts of line crops, read as one batch padded on the left; prompts from `prompts`."""
        values, grids = pixel_values(crops, self._config.processor)
        ids, mask = pad_left(prompts, self._config.eos_token_ids[0])
        limits = [_BYTES_PER_COLUMN * self._columns(crop) + 16 for crop in crops]
        out = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            pixel_values=values,
            image_grid_thw=grids,
            mm_token_type_ids=(ids == self._config.image_token_id).long(),
            do_sample=False,
            max_new_tokens=max(limits),
        )
        stops = set(self._config.eos_token_ids)
        rows = out[:, ids.shape[1] :].tolist()
        return [self._text(row[:limit], stops) for row, limit in zip(rows, limits, strict=True)]

    def _columns(self, crop: Pixels) -> int:
        return int(crop.shape[1]) // column_width(self._config)

    def _text(self, ids: list[int], stops: set[int]) -> str:
        end = next((index for index, token in enumerate(ids) if token in stops), len(ids))
        return self._tokenizer.decode(ids[:end])


def pixel_values(images: Sequence[Pixels], processor: ProcessorConfig) -> tuple[Tensor, Tensor]:
    """Patches [N, values] float32 and grids [images, 3] as the processor of transformers has them.

    Args:
        images: uint8, all (H, W) grey or all (H, W, 3) RGB, in the sizes that are encoded.
        processor: of a Qwen-VL family, whose patches have two frames.
    """
    patches, grids = pack([as_channels(image, 3) for image in images], processor)
    values = normalise(patches, processor)
    # Two equal frames, as that processor makes of a picture.
    area = processor.geometry.patch_size**2
    values = np.repeat(values.reshape(len(values), 3, 1, area), 2, axis=2)
    return torch.from_numpy(values.reshape(len(values), -1)), torch.tensor(grids)


def pad_left(prompts: Sequence[Sequence[int]], fill: int) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, both int64 [B, longest]."""
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), fill)
    mask = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids, mask
