"""What one step does: the scheduler's decision as data, for the batch builder and the engine."""

from dataclasses import dataclass

from vlmcli.engine.drafts import NO_DRAFT, Draft
from vlmcli.engine.request import ImageInput
from vlmcli.engine.sequence import Sequence
from vlmcli.engine.transfers import NO_TRANSFERS, Transfers


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """One image to encode and the ids of the requests that wait for it."""

    image: ImageInput
    num_tokens: int
    owners: tuple[str, ...]


@dataclass(slots=True)
class ScheduledSequence:
    """A sequence's share of a decoder batch.

    Known tokens `start` to `start + num_tokens`, then the draft. Logits are wanted, for the last
    known token and every drafted one, where all known tokens are computed by this step
    (`wants_logits`).
    """

    sequence: Sequence
    start: int
    num_tokens: int
    draft: Draft = NO_DRAFT

    @property
    def num_query_tokens(self) -> int:
        """Rows of the batch."""
        return self.num_tokens + len(self.draft.token_ids)

    @property
    def wants_logits(self) -> bool:
        """Whether this step can produce a new token."""
        return self.start + self.num_tokens == self.sequence.num_tokens


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step: images to encode, or a decoder batch, never both.

    Neither, where everything waits for images that are being encoded.
    """

    encode: tuple[EncodeJob, ...] = ()
    batch: tuple[ScheduledSequence, ...] = ()
    transfers: Transfers = NO_TRANSFERS
    """Copies between pool and host memory that come before the batch."""
