"""What goes into the engine and what comes out: requests, sampling parameters, outputs.

Plain frozen data, checked when made; numpy and nothing heavier. Pixels and token ids come in ready:
this module knows no tokenizer, no resizing and no files.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vlmcli.engine.geometry import Mosaic
from vlmcli.errors import PageError

FinishReason = Literal["stop", "length", "aborted"]
DIGEST_BYTES = 32


class RequestTooLargeError(PageError):
    """A request that no schedule can ever fit into the engine's pools; refused when it is added."""

    code = "too-large"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen and when a sequence ends.

    Args:
        max_tokens: generated tokens at most, the stop token counted.
        temperature: 0 takes the most likely token and ignores `top_p` and `seed`.
        top_p: smallest set of most likely tokens whose probabilities reach this sum is kept.
        seed: same seed, same tokens, whatever else is in the batch; None derives one from the
            engine's seed and the request's id.
        stop_token_ids: any of these ends the sequence; empty means those of the model.
        logprobs: whether the log-probability of each chosen token is returned.

    Raises:
        ValueError: a value outside its range.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    logprobs: bool = True

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if not self.temperature >= 0.0:
            raise ValueError(f"temperature must be 0 or more, not {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInput:
    """One picture for the vision encoder.

    Args:
        pixels: uint8, (H, W) grey or (H, W, 3) RGB, before normalisation.
        mm_hash: SHA-256 digest, 32 bytes, over decoded pixels, mode and size. Two images with equal
            digests are taken for the same image everywhere in the engine.
        mosaic: how the tokens of tiles that lie below each other in `pixels` become one picture;
            None where the encoder's tokens are the image's. The digest covers it.

    Raises:
        ValueError: the digest is not 32 bytes long.
    """

    pixels: npt.NDArray[np.uint8]
    mm_hash: bytes
    mosaic: Mosaic | None = None

    def __post_init__(self) -> None:
        if len(self.mm_hash) != DIGEST_BYTES:
            raise ValueError(f"mm_hash must be {DIGEST_BYTES} bytes, not {len(self.mm_hash)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderRange:
    """Where the tokens of one image stand in the prompt.

    Args:
        offset: index of its first token.
        length: number of its tokens.
        grid: (frames, rows, columns) of *merged* tokens, for M-RoPE; None for a family with plain
            1-D positions.

    Raises:
        ValueError: the grid does not have `length` cells, or a value is out of range.
    """

    offset: int
    length: int
    grid: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        if self.offset < 0 or self.length < 1:
            raise ValueError(f"bad placeholder: offset {self.offset}, length {self.length}")
        if self.grid is not None and int(np.prod(self.grid)) != self.length:
            raise ValueError(f"grid {self.grid} does not have {self.length} cells")

    @property
    def end(self) -> int:
        """Index behind its last token."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSource:
    """A guess at the answer that came with the request; it changes speed, never tokens.

    Args:
        name: stands in the statistics, for example `text-layer` or `near-duplicate`.
        token_ids: the guessed answer, without a stop token.
        weight: expected share of right tokens, 0 to 1; it decides how far ahead the first drafts
            reach, until the sequence's own acceptance is known.

    Raises:
        ValueError: the weight is outside [0, 1].
    """

    name: str
    token_ids: tuple[int, ...]
    weight: float = 0.9

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight <= 1.0:
            raise ValueError(f"weight must be in [0, 1], not {self.weight}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt with its images.

    Args:
        request_id: unique among the engine's unfinished requests.
        prompt_token_ids: ids with every image placeholder already expanded to its length.
        images: in prompt order, parallel to `placeholders`.
        placeholders: in prompt order, not overlapping.
        sampling: how to generate.
        drafts: guesses at the answer.
        rank: requests of a lower one are older than those of a higher one, whenever they came; what
            a page needs once more does not queue behind all pages after it.

    Raises:
        ValueError: an empty prompt, or placeholders that do not match the images or the prompt.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    images: tuple[ImageInput, ...] = ()
    placeholders: tuple[PlaceholderRange, ...] = ()
    drafts: tuple[DraftSource, ...] = ()
    rank: int = 0

    def __post_init__(self) -> None:
        if not self.prompt_token_ids:
            raise ValueError("a prompt needs at least one token")
        if len(self.images) != len(self.placeholders):
            raise ValueError(f"{len(self.images)} images but {len(self.placeholders)} placeholders")
        end = 0
        for placeholder in self.placeholders:
            if placeholder.offset < end:
                raise ValueError(f"placeholder at {placeholder.offset} overlaps or is out of order")
            end = placeholder.end
        if end > len(self.prompt_token_ids):
            raise ValueError(f"placeholder ends at {end}, behind the prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """A request's share of the engine's time in seconds; all shares add up to the steps."""

    encode: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """What a request has produced so far; `Engine.step` returns one per sequence that moved.

    `token_ids` and `text` are cumulative, the stop token is in `token_ids` and not in `text`.
    `logprobs` is parallel to `token_ids`: natural logarithms under the model's own distribution,
    empty where not asked for.

    `agreement` says by draft source how many output tokens it had a guess for and how many guesses
    were right; `num_drafted` and `num_accepted` are those of the best source. They depend on the
    sources and the output alone, so they are the same in every batch. `drafted` and `accepted`
    count the draft tokens that were really verified, which depends on what else was running.
    """

    request_id: str
    token_ids: tuple[int, ...]
    text: str
    finished: bool
    finish_reason: FinishReason | None
    logprobs: tuple[float, ...]
    num_prompt_tokens: int
    num_visual_tokens: int
    num_cached_tokens: int
    num_drafted: int
    num_accepted: int
    agreement: dict[str, tuple[int, int]]
    drafted: dict[str, int]
    accepted: dict[str, int]
    seconds: StageSeconds
