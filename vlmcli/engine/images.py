"""Images as the engine knows them: embeddings while they are needed, drafts for longer.

A draft, what the draft head says of an image, is some dozens of bytes where an embedding is some
dozens of kilobytes. Remembering it apart means that where the draft is part of the prompt, an image
whose keys and values are still in the pool can be asked about again without a second encoding, and
that the same image gives the same prompt whoever was encoded beside it.
"""

from collections import OrderedDict
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.encoder_cache import EncoderCache
from vlmcli.engine.interfaces import Pending, Runner
from vlmcli.engine.step import EncodeJob

_MAX_DRAFTS = 16_384
"""Drafts remembered, some three hundred bytes each; far more than one encoder batch has images."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """What the encoder cache holds: [tokens, hidden], and the draft head's guess, an id a byte."""

    embeds: torch.Tensor
    draft: bytes


class ImageStore:
    """Encodes images and keeps what came out.

    Args:
        runner: the model.
        config: the cap on embeddings, whether they outlive their requests, and whether the draft
            head is run; where the draft is part of the prompt, it is run anyway.
    """

    def __init__(self, runner: Runner, config: EngineConfig) -> None:
        self.embeddings: EncoderCache[Encoded] = EncoderCache(
            config.encoder_cache_bytes, retain=config.enable_encoder_cache
        )
        self._runner = runner
        is_asked = config.enable_drafts and config.draft_head
        self._has_drafts = is_asked or runner.model_config.num_draft_tokens > 0
        self._drafts: OrderedDict[bytes, bytes] = OrderedDict()

    def start(self, jobs: Seq[EncodeJob]) -> Pending:
        """Begin to encode new images."""
        return self._runner.encode_ahead([job.image for job in jobs])

    def finish(self, jobs: Seq[EncodeJob], pending: Pending) -> list[Encoded]:
        """Embeddings and drafts of what was begun; the scheduler puts them into the cache.

        Raises:
            ValueError: an image has another number of visual tokens than its placeholder.
        """
        embeds = pending.wait()
        drafts: Seq[Seq[int]] = [()] * len(jobs)
        if self._has_drafts:
            drafts = self._runner.draft(embeds)
        return [
            self._keep(job, tensor, bytes(draft))
            for job, tensor, draft in zip(jobs, embeds, drafts, strict=True)
        ]

    def embedding(self, mm_hash: bytes) -> torch.Tensor:
        """The [tokens, hidden] of an image that some request has pinned."""
        return self.embeddings.get(mm_hash).embeds

    def draft_of(self, mm_hash: bytes) -> bytes | None:
        """What the draft head says of an image; None where that is not known or forgotten."""
        draft = self._drafts.get(mm_hash)
        if draft is None:
            encoded = self.embeddings.peek(mm_hash)
            return encoded.draft if encoded else None
        return draft

    def _keep(self, job: EncodeJob, embeds: torch.Tensor, draft: bytes) -> Encoded:
        if len(embeds) != job.num_tokens:
            raise ValueError(
                f"image has {len(embeds)} visual tokens, its placeholder {job.num_tokens}"
            )
        draft = self._drafts.setdefault(job.image.mm_hash, draft)
        self._drafts.move_to_end(job.image.mm_hash)
        if len(self._drafts) > _MAX_DRAFTS:
            self._drafts.popitem(last=False)
        is_view = embeds.untyped_storage().nbytes() > embeds.nbytes
        return Encoded(embeds.clone() if is_view else embeds, draft)
