"""The other side of the GPU benchmark: `transformers` answers the same requests with generate.

One batch, its stock attention and cache. Requests must have prompts of one length, so that it need
not pad.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from vlmcli.bench.peer import pixel_values
from vlmcli.engine.config import ModelConfig
from vlmcli.engine.request import Request


class PagePeer:
    """A checkpoint of a Qwen family in transformers.

    Args:
        path: checkpoint directory.
        config: the same, as the engine reads it.
        device: where it runs.
        dtype: of weights and activations.
    """

    def __init__(
        self, path: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype
    ) -> None:
        from transformers import AutoModelForImageTextToText

        self._config, self._device, self._dtype = config, device, dtype
        model = AutoModelForImageTextToText.from_pretrained(path, dtype=dtype)
        self._model = model.to(device).eval()

    @torch.inference_mode()
    def answer(self, requests: Sequence[Request], num_tokens: int) -> list[tuple[int, ...]]:
        """Exactly so many tokens for each request, chosen greedily, as one batch."""
        ids = torch.tensor([request.prompt_token_ids for request in requests])
        out: Tensor = self._model.generate(
            **self._pixels(requests),
            input_ids=ids.to(self._device),
            attention_mask=torch.ones_like(ids).to(self._device),
            mm_token_type_ids=(ids == self._config.image_token_id).long().to(self._device),
            do_sample=False,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
        )
        return [tuple(row) for row in out[:, ids.shape[1] :].tolist()]

    def _pixels(self, requests: Sequence[Request]) -> dict[str, Tensor]:
        images = [image.pixels for one in requests for image in one.images]
        values, grids = pixel_values(images, self._config.processor)
        return {
            "pixel_values": values.to(self._device, self._dtype),
            "image_grid_thw": grids.to(self._device),
        }
