"""The other side of benchmarks of page-reading models: `transformers` answers with generate.

Its stock attention and cache, its own image processor. Several prompts are one batch, padded on the
left as transformers wants it; the batch runs until its longest answer is done.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vlmcli.bench.peer import pad_left

Pixels = npt.NDArray[np.uint8]


class PagePeer:
    """A checkpoint of any native family in transformers.

    Args:
        path: checkpoint directory.
        image_token_id: what stands in prompts for a visual token.
        device: where it runs.
        dtype: of weights and activations.
    """

    def __init__(
        self, path: Path, image_token_id: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        from transformers import AutoImageProcessor, AutoModelForImageTextToText
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._image_token_id, self._device, self._dtype = image_token_id, device, dtype
        self._processor = AutoImageProcessor.from_pretrained(path, backend="pil")
        model = AutoModelForImageTextToText.from_pretrained(path, dtype=dtype)
        self._model = model.to(device).eval()
        # Answers are as long as they are asked to be: no token ends one.
        self._model.generation_config.eos_token_id = None
        self._model.generation_config.pad_token_id = 0

    @property
    def num_parameters(self) -> int:
        """Of the whole model."""
        return sum(one.numel() for one in self._model.parameters())

    @torch.inference_mode()
    def answer(
        self, prompts: Sequence[Sequence[int]], pictures: Sequence[Pixels], num_tokens: int
    ) -> list[tuple[int, ...]]:
        """Exactly so many tokens for each prompt, chosen greedily, as one batch.

        Args:
            prompts: token ids, with as many image tokens as the picture has visual ones.
            pictures: of each prompt one, uint8 (H, W, 3) RGB.
            num_tokens: of every answer.
        """
        ids, mask = pad_left(prompts, 0)
        inputs = self._pixels(pictures)
        if "image_grid_thw" in inputs:
            inputs["mm_token_type_ids"] = (ids == self._image_token_id).long()
        out: Tensor = self._model.generate(
            **{name: value.to(self._device) for name, value in inputs.items()},
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            do_sample=False,
            max_new_tokens=num_tokens,
        )
        return [tuple(row) for row in out[:, ids.shape[1] :].tolist()]

    def _pixels(self, pictures: Sequence[Pixels]) -> dict[str, Tensor]:
        """What the image processor makes of one picture a prompt, by the names of the model."""
        images = [[picture] for picture in pictures]
        return {
            name: value.to(self._dtype) if value.is_floating_point() else value
            for name, value in self._processor(images=images, return_tensors="pt").items()
            if isinstance(value, Tensor)
        }
