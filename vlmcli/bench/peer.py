"""The other side of the engine benchmark: `transformers` reads the same crops with generate."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vlmcli.engine.loader import read_model_config
from vlmcli.engine.preprocess import as_channels, normalise, pack
from vlmcli.engine.tokenizer import load_tokenizer

Pixels = npt.NDArray[np.uint8]
_BYTES_PER_COLUMN = 8


class TransformersPeer:
    """A Qwen2-VL checkpoint in transformers, fp32 on the CPU, its stock attention and generate."""

    def __init__(self, path: Path, *, threads: int) -> None:
        from transformers import Qwen2VLForConditionalGeneration

        torch.set_num_threads(threads)
        self._config = read_model_config(path)
        self._tokenizer = load_tokenizer(path)
        self._model = Qwen2VLForConditionalGeneration.from_pretrained(
            path, dtype=torch.float32
        ).eval()

    @torch.inference_mode()
    def read(self, crops: Sequence[Pixels]) -> list[str]:
        """Texts of line crops, read as one batch padded on the left."""
        processor = self._config.processor
        patches, grids = pack([as_channels(crop, 3) for crop in crops], processor)
        values = normalise(patches, processor)
        # Two equal frames, as the processor of transformers makes of a picture.
        area = processor.geometry.patch_size**2
        values = np.repeat(values.reshape(len(values), 3, 1, area), 2, axis=2)
        prompts = [self._prompt(crop) for crop in crops]
        ids, mask = _pad_left(prompts, self._config.eos_token_ids[0])
        columns = max(crop.shape[1] for crop in crops) // self._column
        out = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            pixel_values=torch.from_numpy(values.reshape(len(values), -1)),
            image_grid_thw=torch.tensor(grids),
            mm_token_type_ids=(ids == self._config.image_token_id).long(),
            do_sample=False,
            max_new_tokens=_BYTES_PER_COLUMN * columns + 16,
        )
        stops = set(self._config.eos_token_ids)
        return [self._text(row[ids.shape[1] :].tolist(), stops) for row in out]

    @property
    def _column(self) -> int:
        vision = self._config.vision
        return vision.patch_size * vision.merge_size

    def _prompt(self, crop: Pixels) -> list[int]:
        config = self._config
        images = [config.image_token_id] * (crop.shape[1] // self._column)
        return [config.vision_start_token_id, *images, config.vision_end_token_id]

    def _text(self, ids: list[int], stops: set[int]) -> str:
        end = next((index for index, token in enumerate(ids) if token in stops), len(ids))
        return self._tokenizer.decode(ids[:end])


def _pad_left(prompts: Sequence[Sequence[int]], fill: int) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, both int64 [B, longest]."""
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), fill)
    mask = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids, mask
