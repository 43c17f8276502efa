"""A request on its way through the engine: tokens, progress, blocks.

State and arithmetic only; who moves it from queue to queue is the scheduler's business. Token ids
and positions stay in arrays of full size from the start, so that building a batch is slicing. A
prompt may be open: its last tokens, the draft of its images, are known once these are encoded.
"""

from enum import Enum

import numpy as np
import numpy.typing as npt

from vlmcli.engine.config import BlockKind
from vlmcli.engine.drafts import Drafter
from vlmcli.engine.request import FinishReason, Request


class SequenceStatus(Enum):
    """Which of the scheduler's queues a sequence is in."""

    ENCODING = "encoding"
    """Its next image has no embedding yet."""
    PREFILLING = "prefilling"
    """Known tokens are waiting to be computed, and the next image among them is at hand."""
    DECODING = "decoding"
    """One known token is waiting to be computed: the newest."""
    FINISHED = "finished"


class Sequence:
    """The mutable state of one request.

    Args:
        request: what was asked.
        arrival: rank and running number; a smaller one is older and wins every contest for memory.
        positions: int64 [3, prompt tokens] rotary positions of the prompt, open tokens included.
        position_delta: a generated token at index `i` has position `i + position_delta`.
        stop_token_ids: ids that end the sequence.
        seed: of its random numbers, used at temperatures above 0.
        drafter: its draft sources, or None where drafting is off.
        num_open_tokens: tokens that will stand behind the request's own in the prompt, once
            `complete` is told them; 0 where the request holds all of it.
    """

    __slots__ = (
        "arrival",
        "block_hashes",
        "block_kinds",
        "block_table",
        "drafter",
        "finish_reason",
        "image_drafts",
        "image_ends",
        "logprobs",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_open_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_registered_blocks",
        "num_tokens",
        "num_visual_tokens",
        "position_delta",
        "positions",
        "request",
        "request_id",
        "saved",
        "seconds",
        "seed",
        "status",
        "stop_token_ids",
        "token_ids",
    )

    def __init__(
        self,
        request: Request,
        *,
        arrival: tuple[int, int],
        positions: npt.NDArray[np.int64],
        position_delta: int,
        stop_token_ids: frozenset[int] = frozenset(),
        seed: int = 0,
        drafter: Drafter | None = None,
        num_open_tokens: int = 0,
    ) -> None:
        num_given = len(request.prompt_token_ids)
        num_prompt_tokens = num_given + num_open_tokens
        assert positions.shape == (3, num_prompt_tokens)
        self.request = request
        self.request_id = request.request_id
        self.arrival = arrival
        self.status = SequenceStatus.PREFILLING
        self.finish_reason: FinishReason | None = None
        self.num_prompt_tokens = num_prompt_tokens
        self.num_open_tokens = num_open_tokens
        self.num_tokens = num_prompt_tokens
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0
        self.num_preemptions = 0
        self.token_ids = np.empty(num_prompt_tokens + request.sampling.max_tokens, dtype=np.int64)
        self.token_ids[:num_given] = request.prompt_token_ids
        self.positions = positions
        self.position_delta = position_delta
        self.block_table: list[int] = []
        self.block_hashes: list[bytes] = []
        self.block_kinds: list[BlockKind] = []
        self.num_registered_blocks = 0
        self.image_ends = [placeholder.end for placeholder in request.placeholders]
        self.image_drafts: list[bytes | None] = [None] * len(request.images)
        """While the prompt is open: what the draft head says of each image, as far as known."""
        self.num_visual_tokens = sum(placeholder.length for placeholder in request.placeholders)
        self.logprobs: list[float] = []
        self.stop_token_ids = stop_token_ids
        self.seed = seed
        self.drafter = drafter
        self.saved: tuple[int, int] | None = None
        """After preemption: first block and end of the tokens whose KV is kept in host memory."""
        self.seconds = [0.0, 0.0, 0.0]

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def num_remaining_tokens(self) -> int:
        """Tokens that may still be generated."""
        return len(self.token_ids) - self.num_tokens

    @property
    def output_token_ids(self) -> npt.NDArray[np.int64]:
        """A view of the generated tokens."""
        return self.token_ids[self.num_prompt_tokens : self.num_tokens]

    @property
    def is_open(self) -> bool:
        """Whether the prompt still lacks the draft of its images."""
        return self.num_open_tokens > 0

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be generated."""
        return self.status is SequenceStatus.FINISHED

    def complete(self, token_ids: list[int]) -> None:
        """Write the last `num_open_tokens` tokens of an open prompt."""
        assert len(token_ids) == self.num_open_tokens and not self.num_computed_tokens
        first = self.num_prompt_tokens - self.num_open_tokens
        self.token_ids[first : self.num_prompt_tokens] = token_ids
        self.num_open_tokens = 0

    def append(self, token_ids: list[int], logprobs: list[float]) -> None:
        """Take newly generated tokens; `logprobs` is empty or parallel."""
        end = self.num_tokens + len(token_ids)
        self.token_ids[self.num_tokens : end] = token_ids
        self.num_tokens = end
        self.logprobs += logprobs

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request_id!r}, {self.status.value}, "
            f"{self.num_computed_tokens}/{self.num_tokens} tokens, {len(self.block_table)} blocks)"
        )
