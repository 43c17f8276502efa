"""Sizes of steps that are worth a captured graph. Integers alone.

A bucket is a number of sequences, and of query rows for each: one row to decode, more to verify
drafts. A batch takes the smallest bucket that holds it and is padded to its size.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

DECODE_BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of sequences."""
VERIFY_WIDTHS = (8, 32)
"""Rows of a sequence, beside one, that drafts are padded to."""
MAX_ROWS = 256
"""Query rows of a verify bucket at most. Up to about there a GPU is bound by reading the weights,
so that padding costs next to nothing; beyond, starting the kernels is no longer what takes time."""
ENCODER_TOKENS, LEAST_ENCODER_TOKENS = 512, 64
"""Visual tokens of the largest and the smallest batch of pictures with a graph. A larger batch is
bound by its products."""


def segments_for(num_tokens: int) -> int:
    """Pictures, windows and the padding behind them at most, in a batch of so many tokens.

    Four tokens each; batches of more and smaller pictures run without a graph.
    """
    return num_tokens // 4 + 8


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """`num_query` rows for each of `num_seqs` sequences."""

    num_query: int
    num_seqs: int

    @property
    def num_rows(self) -> int:
        """Query rows in all."""
        return self.num_query * self.num_seqs

    def __str__(self) -> str:
        return f"{self.num_seqs} sequences of {self.num_query}"


def make_buckets(
    decode: Iterable[int], verify_widths: Iterable[int], max_num_seqs: int
) -> tuple[Bucket, ...]:
    """All buckets, from the smallest to the largest.

    Args:
        decode: numbers of sequences with a row each, ascending.
        verify_widths: further numbers of rows, taken with those numbers of sequences with which
            they stay within `MAX_ROWS`.
        max_num_seqs: sequences of a batch at most; larger buckets than it needs are left out.
    """
    sizes = list(decode)
    sizes = sizes[: bisect_left(sizes, max_num_seqs) + 1]
    wide = (Bucket(width, size) for width in verify_widths for size in sizes)
    kept = {*(Bucket(1, size) for size in sizes), *(b for b in wide if b.num_rows <= MAX_ROWS)}
    return tuple(sorted(kept, key=lambda bucket: (bucket.num_rows, bucket)))


def find_bucket(buckets: Iterable[Bucket], num_seqs: int, num_query: int) -> Bucket | None:
    """The bucket with the fewest rows that holds so many sequences of so many rows; None if none.

    Args:
        buckets: from the smallest to the largest.
        num_seqs: sequences of the batch.
        num_query: rows of the one that has most.
    """
    return next((b for b in buckets if b.num_seqs >= num_seqs and b.num_query >= num_query), None)


def encoder_buckets(max_tokens: int, step: int | None, unit: int = 1) -> tuple[int, ...]:
    """Visual tokens of batches of pictures that are worth a graph, ascending.

    Args:
        max_tokens: of the largest; 0 for none.
        step: between them; None for powers of two from `LEAST_ENCODER_TOKENS` on.
        unit: tokens of a tile, where every picture is one or several; buckets are whole tiles then,
            and there is one of a single tile whatever its tokens.
    """
    if max_tokens < 1:
        return ()
    sizes = range(step, max_tokens + 1, step) if step else _doubled(max_tokens)
    return tuple(sorted({max(1, size // unit) * unit for size in (*sizes, max_tokens)}))


def _doubled(limit: int) -> Iterator[int]:
    size = LEAST_ENCODER_TOKENS
    while size <= limit:
        yield size
        size *= 2
