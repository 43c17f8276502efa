"""Images as the engine knows them: embeddings while they are needed, drafts for longer.

A draft, what the draft head says of an image, is one or two kilobytes with its steps where an
embedding is some dozens. Remembering it apart means that where the draft is part of the prompt, an
image whose keys and values are still in the pool can be asked about again without a second
encoding, and that the same image gives the same prompt whoever was encoded beside it.
"""

from collections import OrderedDict
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.correction import Steps, Weighed, respelled, weighed
from vlmcli.engine.encoder_cache import EncoderCache
from vlmcli.engine.interfaces import Pending, Runner
from vlmcli.engine.request import ImageInput
from vlmcli.engine.step import EncodeJob

_MAX_DRAFTS = 4096
"""Drafts remembered, some 2 KiB each; far more than there are images in work at once."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """What the encoder cache holds: [tokens, hidden], and what the draft head says of it."""

    embeds: torch.Tensor
    draft: "Drafted"


@dataclass(frozen=True, slots=True)
class Drafted:
    """The draft head's guess, an id a byte, and a CTC head's steps behind it."""

    text: bytes
    steps: Steps | None


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
        self._corrects = runner.model_config.num_draft_tokens > 0
        self._has_drafts = is_asked or self._corrects
        self._drafts: OrderedDict[bytes, Drafted] = OrderedDict()

    def start(self, jobs: Seq[EncodeJob]) -> Pending:
        """Begin to encode new images."""
        return self._runner.encode_ahead([job.image for job in jobs])

    def finish(self, jobs: Seq[EncodeJob], pending: Pending) -> list[Encoded]:
        """Embeddings and drafts of what was begun; the scheduler puts them into the cache.

        Raises:
            ValueError: an image has another number of visual tokens than its placeholder.
        """
        embeds = pending.wait()
        drafts = [Drafted(b"", None)] * len(jobs)
        if self._has_drafts:
            drafts = self._read(embeds)
        return [
            self._keep(job, tensor, draft)
            for job, tensor, draft in zip(jobs, embeds, drafts, strict=True)
        ]

    def embedding(self, mm_hash: bytes) -> torch.Tensor:
        """The [tokens, hidden] of an image that some request has pinned."""
        return self.embeddings.get(mm_hash).embeds

    def draft_of(self, mm_hash: bytes) -> bytes | None:
        """What the draft head says of an image; None where that is not known or forgotten."""
        drafted = self._drafted(mm_hash)
        return drafted.text if drafted else None

    def look(self, images: Seq[ImageInput]) -> list[Drafted]:
        """What the draft head says of pictures that no request shows; nothing of it is kept."""
        return self._read(self._runner.encode_ahead(images).wait())

    def weighed(self, text: str, mm_hash: bytes, looks: Seq[Drafted] = ()) -> Weighed | None:
        """What was read of an image, weighed against the draft in its prompt, or the last look's.

        Args:
            text: as it was read.
            mm_hash: of the image.
            looks: `look` at the same line in other pictures.

        Returns:
            None where there is no such draft, or it is forgotten.
        """
        views = self._views(mm_hash, looks)
        if not views:
            return None
        draft = views[-1][0].decode(errors="replace").strip()
        return weighed(text, draft, [steps for _, steps in views])

    def respelled(
        self, text: str, changes: Seq[tuple[int, int, str]], mm_hash: bytes, looks: Seq[Drafted]
    ) -> Weighed | None:
        """What was read of an image, with the changes of `correction.respelled`; else as above."""
        views = self._views(mm_hash, looks)
        return respelled(text, changes, [steps for _, steps in views]) if views else None

    def _views(self, mm_hash: bytes, looks: Seq[Drafted]) -> list[tuple[bytes, Steps]]:
        """Draft and steps of an image and of further looks; none unless all have them."""
        views = [self._drafted(mm_hash) if self._corrects else None, *looks]
        known = [(v.text, v.steps) for v in views if v is not None and v.steps is not None]
        return known if len(known) == len(views) else []

    def _read(self, embeds: Seq[torch.Tensor]) -> list[Drafted]:
        return [Drafted(bytes(ids), steps) for ids, steps in self._runner.read_draft(embeds)]

    def _drafted(self, mm_hash: bytes) -> Drafted | None:
        encoded = self.embeddings.peek(mm_hash)
        return self._drafts.get(mm_hash) or (encoded.draft if encoded else None)

    def _keep(self, job: EncodeJob, embeds: torch.Tensor, draft: Drafted) -> Encoded:
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
