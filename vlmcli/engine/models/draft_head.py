"""The draft head: what an image's visual tokens say of its text before the decoder has a word.

Two kinds. A slot head gives every visual token a fixed number of ordered guesses. A CTC head cuts
every token into steps, lets neighbouring steps see each other, and merges what they say: Graves et
al. 2006, "Connectionist Temporal Classification". Guesses are bytes; every other id is dropped.
What is done with a draft is the engine's business. Given up: a beam, since the decoder reads the
picture again anyway.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlmcli.engine.config import DraftHeadConfig
from vlmcli.engine.correction import Steps, split_steps
from vlmcli.engine.layers import Layer, Linear, parameter
from vlmcli.errors import ModelError

_NUM_BYTES = 256
"""Guesses from this id up are no bytes: "nothing here" and special tokens."""


class SlotHead(Linear):
    """One projection: `num_slots` guesses per visual token, in reading order."""

    def __init__(self, hidden_size: int, vocab_size: int, num_slots: int) -> None:
        super().__init__(hidden_size, num_slots * vocab_size)
        self.num_slots = num_slots

    def guess(self, embeds: Tensor, lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """The bytes of each image.

        Args:
            embeds: [N, hidden], the tokens of all images one behind the other.
            lengths: tokens of each image, at least one; their sum is N.
        """
        logits = self(embeds).view(len(embeds) * self.num_slots, -1)
        ids = logits.argmax(dim=-1).cpu().numpy()
        counts = np.asarray(lengths) * self.num_slots
        return _split(ids, ids < _NUM_BYTES, counts)


class StepConv(Layer):
    """A convolution over steps, [L, width] to [L − 2 · reach, width]."""

    def __init__(self, width: int, reach: int) -> None:
        super().__init__()
        self.weight = parameter(width, width, 2 * reach + 1)
        self.bias = parameter(width)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, without padding."""
        return F.conv1d(x.t().unsqueeze(0), self.weight, self.bias)[0].t()


class CtcHead(nn.Module):
    """fc2(h + gelu(conv(h))) for h = gelu(fc1(token)), one row per step; then CTC's best path."""

    def __init__(self, hidden_size: int, vocab_size: int, config: DraftHeadConfig) -> None:
        super().__init__()
        self.steps, self.width, self.reach = config.steps, config.width, config.reach
        self.fc1 = Linear(hidden_size, config.steps * config.width)
        self.conv = StepConv(config.width, config.reach)
        self.fc2 = Linear(config.width, vocab_size)

    def guess(self, embeds: Tensor, lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """The bytes of each image; arguments as in `SlotHead.guess`."""
        counts = np.asarray(lengths) * self.steps
        return self._best_path(self._logits(embeds, counts), counts)

    def read(self, embeds: Tensor, lengths: Sequence[int]) -> list[tuple[tuple[int, ...], Steps]]:
        """The bytes of each image, and what the head says at each of its steps."""
        counts = np.asarray(lengths) * self.steps
        logits = self._logits(embeds, counts)
        steps = split_steps(logits, counts.tolist())
        return list(zip(self._best_path(logits, counts), steps, strict=True))

    def _best_path(self, logits: Tensor, counts: npt.NDArray[np.int64]) -> list[tuple[int, ...]]:
        ids = logits.argmax(dim=-1).cpu().numpy()
        is_new = np.ones(len(ids), dtype=np.bool_)
        is_new[1:] = ids[1:] != ids[:-1]
        is_new[np.cumsum(counts) - counts] = True
        return _split(ids, is_new & (ids < _NUM_BYTES), counts)

    def _logits(self, embeds: Tensor, counts: npt.NDArray[np.int64]) -> Tensor:
        """[N, hidden] to [N · steps, vocab]; images are kept apart by `reach` rows of zeros."""
        hidden = self.fc1.activated(embeds, "gelu").view(-1, self.width)
        place = np.arange(len(hidden)) + self.reach * np.repeat(np.arange(len(counts)), counts)
        places = torch.from_numpy(place).to(embeds.device)
        spread = hidden.new_zeros(len(hidden) + self.reach * (len(counts) + 1), self.width)
        spread.index_copy_(0, places + self.reach, hidden)
        mixed = F.gelu(self.conv(spread).index_select(0, places))
        logits: Tensor = self.fc2(hidden.add_(mixed))
        return logits


DraftHead = SlotHead | CtcHead


def parse_draft_head(raw: Mapping[str, Any]) -> DraftHeadConfig | None:
    """The `draft_head` of a config.json; None where it has none.

    Raises:
        ModelError: its type is unknown, a key is missing, or a value is out of range.
    """
    found = raw.get("draft_head")
    if found is None:
        return None
    try:
        if found["type"] != "ctc":
            raise ModelError(f"draft head {found['type']!r} is not supported")
        config = DraftHeadConfig(
            steps=int(found["steps"]),
            width=int(found["width"]),
            reach=int(found["reach"]),
            prompt_length=int(found["prompt_length"]) if found.get("in_prompt", True) else 0,
            pad_token_id=int(found["pad_token_id"]),
            draft_end_token_id=int(found["draft_end_token_id"]),
        )
        is_blank_dropped = int(found["blank_token_id"]) >= _NUM_BYTES
    except KeyError as error:
        raise ModelError(f"draft_head in config.json lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise ModelError(f"draft_head in config.json has a bad value: {error}") from error
    is_bad = min(config.steps, config.width) < 1 or min(config.reach, config.prompt_length) < 0
    if is_bad or not is_blank_dropped:
        raise ModelError(f"draft_head in config.json has a value out of range: {found}")
    return config


def _split(
    ids: npt.NDArray[np.int64], keep: npt.NDArray[np.bool_], counts: npt.NDArray[np.int64]
) -> list[tuple[int, ...]]:
    """The kept ids of each image, whose `counts` ids lie one behind the other."""
    ends = np.cumsum(keep)[np.cumsum(counts) - 1].tolist()
    kept = ids[keep].tolist()
    return [tuple(kept[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
