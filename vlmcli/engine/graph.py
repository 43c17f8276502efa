"""Decode steps through buckets of fixed size: captured CUDA graphs, or the same path run eagerly.

A decode batch (one query row per sequence) is padded with sequences that have no context: their
slots are −1, their tables point to the null block, their outputs are dropped. On CUDA every bucket
is captured once, largest first, into one memory pool. On the CPU nothing is captured, and the same
padded path runs eagerly, so that tests walk it. Prefill and verification of drafts do not come
here: their shapes are too many.
"""

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vlmcli.engine.kv_cache import NULL_BLOCK, KVCache
from vlmcli.engine.models.decoder import StepInputs
from vlmcli.engine.models.registry import Model
from vlmcli.kernels import Ops

_log = logging.getLogger(__name__)
_WARM_UPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeInputs:
    """One decode step on the device: S sequences, one row each."""

    input_ids: Tensor
    """[S] int64."""
    positions: Tensor
    """[3, S] int64."""
    slot_mapping: Tensor
    """[S] int64."""
    block_tables: Tensor
    """[S, width] int32."""
    context_lens: Tensor
    """[S] int32; 0 for padding."""

    @classmethod
    def padding(cls, size: int, width: int, device: torch.device) -> "DecodeInputs":
        """A batch of `size` sequences without context."""
        return cls(
            input_ids=torch.zeros(size, dtype=torch.int64, device=device),
            positions=torch.zeros(3, size, dtype=torch.int64, device=device),
            slot_mapping=torch.full((size,), -1, dtype=torch.int64, device=device),
            block_tables=torch.full((size, width), NULL_BLOCK, dtype=torch.int32, device=device),
            context_lens=torch.zeros(size, dtype=torch.int32, device=device),
        )

    def write(self, other: "DecodeInputs") -> None:
        """Take over a batch that is no larger; whatever is left over becomes padding."""
        size, width = other.block_tables.shape
        self.input_ids[:size].copy_(other.input_ids)
        self.positions[:, :size].copy_(other.positions)
        self.slot_mapping[:size].copy_(other.slot_mapping)
        self.slot_mapping[size:].fill_(-1)
        self.block_tables[:size, :width].copy_(other.block_tables)
        self.block_tables[:size, width:].fill_(NULL_BLOCK)
        self.block_tables[size:].fill_(NULL_BLOCK)
        self.context_lens[:size].copy_(other.context_lens)
        self.context_lens[size:].zero_()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Captured:
    graph: Any
    inputs: DecodeInputs
    logits: Tensor


class GraphRunner:
    """Runs decode steps bucket by bucket.

    Args:
        model: the loaded model.
        ops: its kernels.
        cache: the KV pool that captured graphs will read and write.
        buckets: batch sizes, ascending.
        max_blocks: width of a block table at most, in blocks.
    """

    def __init__(
        self, model: Model, ops: Ops, cache: KVCache, buckets: tuple[int, ...], max_blocks: int
    ) -> None:
        self.model, self.ops, self.cache = model, ops, cache
        self.buckets, self.max_blocks = buckets, max_blocks
        self.device = cache.keys.device
        self._captured: dict[int, _Captured] = {}

    def bucket_for(self, num_seqs: int) -> int | None:
        """The smallest bucket that holds `num_seqs` sequences, None where none does."""
        return next((size for size in self.buckets if size >= num_seqs), None)

    def capture(self) -> tuple[int, ...]:
        """Capture all buckets, largest first; drop with a warning those that do not fit.

        Returns:
            The captured sizes; none on the CPU.
        """
        if self.device.type != "cuda":
            return ()
        pool = None
        for size in reversed(self.buckets):
            try:
                self._captured[size] = self._capture(size, pool)
            except torch.cuda.OutOfMemoryError:
                _log.warning(
                    "no memory for the decode graph of %d sequences; it runs eagerly", size
                )
                torch.cuda.empty_cache()
                continue
            pool = self._captured[size].graph.pool()
        return tuple(sorted(self._captured))

    def run(self, batch: DecodeInputs) -> Tensor:
        """float32 logits [S, vocab] of a decode batch that fits a bucket; never aliased."""
        num_seqs, width = batch.block_tables.shape
        size = self.bucket_for(num_seqs)
        assert size is not None, f"no bucket for {num_seqs} sequences"
        captured = self._captured.get(size)
        if captured is not None:
            captured.inputs.write(batch)
            captured.graph.replay()
            return captured.logits[:num_seqs].clone()
        if size != num_seqs:
            padded = DecodeInputs.padding(size, width, self.device)
            padded.write(batch)
            batch = padded
        return self._forward(batch)[:num_seqs]

    def _forward(self, batch: DecodeInputs) -> Tensor:
        embeds = self.model.embed(batch.input_ids)
        plan = self.ops.plan_decode(
            batch.block_tables, batch.context_lens, self.cache.block_size, embeds
        )
        step = StepInputs(
            embeds=embeds,
            positions=batch.positions,
            slot_mapping=batch.slot_mapping,
            plan=plan,
            rows=None,
        )
        return self.model.logits(self.model(step, self.cache))

    def _capture(self, size: int, pool: Any) -> _Captured:
        inputs = DecodeInputs.padding(size, self.max_blocks, self.device)
        stream: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            # Lazy library and kernel set-up must happen outside of a capture.
            for _ in range(_WARM_UPS):
                self._forward(inputs)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = self._forward(inputs)
        return _Captured(graph=graph, inputs=inputs, logits=logits)
