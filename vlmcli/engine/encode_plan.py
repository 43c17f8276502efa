"""Which images make up an encoder batch: each once, within a budget of tokens and the cache's room.

Takes the images in the order in which they are wanted and stops at the first that does not fit, so
that nobody is overtaken. Integers alone.
"""

from collections.abc import Iterator
from typing import Any

from vlmcli.engine.encoder_cache import EncoderCache
from vlmcli.engine.request import ImageInput
from vlmcli.engine.sequence import Sequence
from vlmcli.engine.step import EncodeJob


def plan_encode(
    wanted: Iterator[tuple[Sequence, ImageInput, int]],
    embeddings: EncoderCache[Any],
    max_tokens: int,
    token_bytes: int,
) -> tuple[EncodeJob, ...]:
    """The next batch, for which room in the cache is kept until it is there or given up.

    Args:
        wanted: who wants which image, and its visual tokens.
        embeddings: the encoder cache.
        max_tokens: visual tokens of a batch; a larger image is a batch of its own.
        token_bytes: bytes of one visual token's embedding.
    """
    owners: dict[bytes, list[str]] = {}
    jobs: list[tuple[ImageInput, int]] = []
    num_tokens = 0
    for sequence, image, length in wanted:
        if image.mm_hash in owners:
            owners[image.mm_hash].append(sequence.request_id)
            continue
        if jobs and num_tokens + length > max_tokens:
            break
        if not embeddings.has_room(length * token_bytes, planned=num_tokens * token_bytes):
            break
        jobs.append((image, length))
        owners[image.mm_hash] = [sequence.request_id]
        num_tokens += length
    embeddings.make_room(num_tokens * token_bytes)
    for image, length in jobs:
        embeddings.expect(image.mm_hash, length * token_bytes)
    return tuple(EncodeJob(image, length, tuple(owners[image.mm_hash])) for image, length in jobs)
