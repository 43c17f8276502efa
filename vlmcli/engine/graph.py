"""Decode and verify steps through buckets of fixed size, each captured once and replayed.

A batch is written into the static inputs of its bucket. What is missing to the bucket's size is
padding: rows with slot −1, and sequences without a context, whose attention is zero. The rows of a
sequence are its last ones, so that a drafted sequence with few rows is padded in front. A graph
ends at the hidden states: the product with the vocabulary follows outside of it, for real rows
alone, and gives a tensor of its own. Prefill does not come here: its shapes are too many; pictures
have graphs of their own (`encoder_graph`), in the same memory.

Graphs hold addresses of the KV pool. They are captured twice: with a pool of nothing, before the
real one is made, to see which of them fit; then for good, in the memory that they have already.
"""

from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from vlmcli.engine.batch import BatchInput
from vlmcli.engine.buckets import Bucket, find_bucket
from vlmcli.engine.capture import Capturer, Step, capture_all
from vlmcli.engine.kv_cache import NULL_BLOCK, KVCache
from vlmcli.engine.models.decoder import StepInputs
from vlmcli.engine.models.registry import Model
from vlmcli.kernels import Ops


class StaticInputs:
    """Memory that all graphs read their batch from, as large as the largest bucket needs it.

    Args:
        num_rows: query rows of the largest bucket.
        num_seqs: sequences of the largest bucket.
        max_blocks: width of a block table.
        device: where it lives.
    """

    def __init__(self, num_rows: int, num_seqs: int, max_blocks: int, device: torch.device) -> None:
        def full(*shape: int, fill: int = 0, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.full(shape, fill, dtype=dtype, device=device)

        self.input_ids = full(num_rows)
        self.positions = full(3, num_rows)
        self.slot_mapping = full(num_rows, fill=-1)
        self.block_tables = full(num_seqs, max_blocks, fill=NULL_BLOCK, dtype=torch.int32)
        self.context_lens = full(num_seqs, dtype=torch.int32)

    def clear(self) -> None:
        """Make everything padding."""
        self.slot_mapping.fill_(-1)
        self.context_lens.zero_()

    def write(self, batch: BatchInput, bucket: Bucket) -> Tensor | None:
        """Take over a batch that the bucket holds; all else becomes padding.

        Returns:
            [T] int64, where each row of the batch stands now; None where that is in order.
        """
        num_seqs, num_rows = len(batch.context_lens), bucket.num_rows
        where = None
        if bucket.num_query == 1:
            places = np.arange(num_seqs)
        else:
            places = _right_aligned(batch.cu_seqlens_q, bucket.num_query)
            where = torch.from_numpy(places).to(self.input_ids.device, non_blocking=True)
        ids, slots = np.zeros(num_rows, np.int64), np.full(num_rows, -1, np.int64)
        positions, lens = np.zeros((3, num_rows), np.int64), np.zeros(bucket.num_seqs, np.int32)
        ids[places], slots[places] = batch.input_ids, batch.slot_mapping
        positions[:, places] = batch.positions
        lens[:num_seqs] = batch.context_lens
        self.input_ids[:num_rows].copy_(torch.from_numpy(ids))
        self.positions[:, :num_rows].copy_(torch.from_numpy(positions))
        self.slot_mapping[:num_rows].copy_(torch.from_numpy(slots))
        self.context_lens[: bucket.num_seqs].copy_(torch.from_numpy(lens))
        # Entries beyond a context are never followed, so those of earlier batches may stay.
        width = min(batch.block_tables.shape[1], self.block_tables.shape[1])
        tables = torch.from_numpy(np.ascontiguousarray(batch.block_tables[:, :width]))
        self.block_tables[:num_seqs, :width].copy_(tables)
        return where


def _right_aligned(cu_seqlens: np.ndarray, num_query: int) -> np.ndarray:
    """[T] place of each row where every sequence has `num_query` places and fills the last ones."""
    return np.concatenate(
        [
            np.arange((i + 1) * num_query - (end - start), (i + 1) * num_query)
            for i, (start, end) in enumerate(pairwise(cu_seqlens.tolist()))
        ]
    )


class GraphRunner:
    """Runs decode and verify steps bucket by bucket.

    Args:
        model: the loaded model.
        ops: its kernels.
        capturer: records steps.
        buckets: from the smallest to the largest.
        max_blocks: width of a block table at most, in blocks.
        device: where the model is.
    """

    def __init__(
        self,
        model: Model,
        ops: Ops,
        capturer: Capturer,
        buckets: tuple[Bucket, ...],
        max_blocks: int,
        device: torch.device,
    ) -> None:
        self.model, self.ops, self.capturer, self.buckets = model, ops, capturer, buckets
        self.inputs = StaticInputs(
            max((bucket.num_rows for bucket in buckets), default=0),
            max((bucket.num_seqs for bucket in buckets), default=0),
            max_blocks,
            device,
        )
        self._replays: dict[Bucket, Step] = {}

    def bucket_for(self, num_seqs: int, num_query: int = 1) -> Bucket | None:
        """The smallest bucket that holds the sequences, None where none does."""
        return find_bucket(self.buckets, num_seqs, num_query)

    def capture(self, cache: KVCache, max_bytes: int | None = None, *, again: bool = False) -> None:
        """Capture all buckets, largest first, and forget with a warning those that do not fit.

        Args:
            cache: the pool that the graphs will read and write.
            max_bytes: of all graphs together; None for as many as there are.
            again: whether the same buckets were captured before; then nothing is warmed up, and
                the graphs of before are kept until all new ones are there, so that these find
                their memory.
        """
        self.inputs.clear()
        steps = ((bucket, partial(self._forward, bucket, cache)) for bucket in self.buckets[::-1])
        replays = capture_all(self.capturer, steps, max_bytes, warm_up=not again)
        self._replays = replays
        self.buckets = tuple(bucket for bucket in self.buckets if bucket in replays)

    def takes(self, batch: BatchInput) -> bool:
        """Whether every row's logits are wanted, no row is an image's, and a bucket holds it."""
        if len(batch.embed_rows) or len(batch.logit_rows) != len(batch.input_ids):
            return False
        num_query = np.diff(batch.cu_seqlens_q)
        bucket = self.bucket_for(len(num_query), int(num_query.max(initial=0)))
        return bucket is not None and bool((num_query > 0).all())

    def run(self, batch: BatchInput) -> Tensor:
        """float32 logits [T, vocab] of a batch that `takes` accepts, a tensor of their own."""
        num_query = int(np.diff(batch.cu_seqlens_q).max())
        bucket = self.bucket_for(len(batch.context_lens), num_query)
        assert bucket is not None, f"no bucket holds {len(batch.context_lens)} of {num_query} rows"
        where = self.inputs.write(batch, bucket)
        hidden = self._replays[bucket]()
        if where is not None:
            return self.model.logits(hidden.index_select(0, where))
        return self.model.logits(hidden[: len(batch.context_lens)])

    def _forward(self, bucket: Bucket, cache: KVCache) -> Tensor:
        """Hidden states [rows, hidden] of what stands in the static inputs."""
        inputs, num_rows = self.inputs, bucket.num_rows
        embeds = self.model.embed(inputs.input_ids[:num_rows])
        plan = self.ops.plan_decode(
            inputs.block_tables[: bucket.num_seqs],
            inputs.context_lens[: bucket.num_seqs],
            cache.block_size,
            embeds,
            bucket.num_query,
        )
        step = StepInputs(
            embeds=embeds,
            positions=inputs.positions[:, :num_rows],
            slot_mapping=inputs.slot_mapping[:num_rows],
            plan=plan,
            rows=None,
        )
        return self.model(step, cache)
