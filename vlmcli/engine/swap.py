"""KV of preempted sequences in host memory: whether to keep it, how much, and what is to be copied.

A preempted sequence is either computed again or its blocks are copied out and, when it has blocks
again, copied back; whichever costs less, as long as there is room. Blocks that others use as well
are not copied: they are found again by their hashes, or else the sequence is computed again.
Integers alone: the model runner copies, before it computes the step that the transfers came with.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vlmcli.engine.block_manager import BlockManager
from vlmcli.engine.config import BlockKind, TextConfig
from vlmcli.engine.sequence import Sequence
from vlmcli.engine.transfers import Transfer, Transfers

FLOPS_PER_BYTE = {"cpu": 8, "cuda": 2000}
"""What the device computes while a byte is copied, by device type; estimates: a core of 40 GFLOP/s
beside copies of 5 GB/s, and 50 TFLOP/s beside a bus of 25 GB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapCost:
    """The two prices in floating-point operations.

    Args:
        per_token: operations of one token in the decoder's matrices.
        per_pair: operations of attention for a token and one that it sees.
        per_byte: operations that take as long as copying a byte, one way.
    """

    per_token: int
    per_pair: int
    per_byte: int

    @classmethod
    def of(cls, text: TextConfig, device: str) -> "SwapCost":
        """The prices for a decoder on a device: 2 operations per weight, 4 per key and query."""
        heads = text.num_heads * text.head_dim
        attention = text.hidden_size * (2 * heads + 2 * text.num_kv_heads * text.head_dim)
        layer = attention + 3 * text.hidden_size * text.intermediate_size
        return cls(
            per_token=2 * text.num_layers * layer,
            per_pair=4 * text.num_layers * heads,
            per_byte=FLOPS_PER_BYTE.get(device.partition(":")[0], FLOPS_PER_BYTE["cpu"]),
        )

    def favours_copying(self, start: int, end: int, num_bytes: int) -> bool:
        """Whether copying out and back beats computing tokens `start` to `end` again."""
        pairs = (end * (end + 1) - start * (start + 1)) // 2
        again = (end - start) * self.per_token + pairs * self.per_pair
        return 2 * num_bytes * self.per_byte < again


class SwapSpace:
    """Host memory for preempted sequences, with a hard cap in bytes.

    Args:
        max_bytes: cap; with 0 every preempted sequence is computed again.
        cost: the prices.
        blocks: the pool.
        block_bytes: of a block by kind.
    """

    def __init__(
        self,
        max_bytes: int,
        cost: SwapCost,
        blocks: BlockManager,
        block_bytes: Mapping[BlockKind, int],
    ) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.num_out = 0
        self.num_back = 0
        self._cost = cost
        self._blocks = blocks
        self._block_bytes = dict(block_bytes)
        self._held: dict[str, int] = {}
        self._dropped: list[str] = []
        self._out: list[Transfer] = []
        self._back: list[Transfer] = []

    def save(self, sequence: Sequence) -> None:
        """Take note of what a sequence has computed, right before its blocks are freed."""
        assert sequence.request_id not in self._held
        size = self._blocks.block_size
        end = sequence.num_computed_tokens
        first = self._blocks.num_shared_blocks(sequence)
        count = self._blocks.blocks_for(end)
        kinds = self._blocks.kinds_of(sequence, first, count)
        num_bytes = sum(self._block_bytes[kind] for kind in kinds)
        if not kinds or self.num_bytes + num_bytes > self.max_bytes:
            return
        if not self._cost.favours_copying(first * size, end, num_bytes):
            return
        ids = tuple(sequence.block_table[first:count])
        self._out.append(Transfer(sequence.request_id, ids, start=first))
        self._held[sequence.request_id] = num_bytes
        self.num_bytes += num_bytes
        self.num_out += 1
        sequence.saved = (first, end)

    def num_tokens(self, sequence: Sequence, num_hits: int) -> int:
        """Tokens that need no computing if the sequence gets blocks now, the first as hits."""
        if sequence.saved is not None and num_hits >= sequence.saved[0]:
            return max(num_hits * self._blocks.block_size, sequence.saved[1])
        return num_hits * self._blocks.block_size

    def restore(self, sequence: Sequence, num_hits: int) -> None:
        """The sequence has got its blocks: what was saved is copied into those that are no hits."""
        if sequence.saved is None:
            return
        first, end = sequence.saved
        count = self._blocks.blocks_for(end)
        if not first <= num_hits < count:
            self.drop(sequence)
            return
        ids = tuple(sequence.block_table[num_hits:count])
        self._back.append(
            Transfer(sequence.request_id, ids, start=num_hits, first=num_hits - first)
        )
        sequence.num_computed_tokens = max(sequence.num_computed_tokens, end)
        self.num_back += 1
        self._release(sequence)

    def drop(self, sequence: Sequence) -> None:
        """Forget what was saved of a sequence, if anything was."""
        if sequence.saved is None:
            return
        name = sequence.request_id
        self._release(sequence)
        if any(transfer.request_id == name for transfer in self._out):
            self._out = [transfer for transfer in self._out if transfer.request_id != name]
        else:
            self._dropped.append(name)

    def take(self) -> Transfers:
        """Everything that is to be copied before the next decoder step; asked for once."""
        out = Transfers(tuple(self._dropped), tuple(self._out), tuple(self._back))
        self._dropped, self._out, self._back = [], [], []
        return out

    def undo(self, transfers: Transfers, sequences: Iterable[Sequence]) -> dict[str, int]:
        """The step that the transfers came with failed, so nobody knows which were done.

        Returns:
            Where, as a block of its table, each sequence begins to be without its content.
        """
        names = {transfer.request_id for transfer in transfers.out}
        for sequence in sequences:
            if sequence.request_id in names:
                self.drop(sequence)
        self._dropped += [*transfers.dropped, *(one.request_id for one in transfers.back)]
        return {transfer.request_id: transfer.start for transfer in transfers.back}

    def check_integrity(self, sequences: Mapping[str, Sequence]) -> None:
        """Assert that what is held is what sequences without blocks have saved, within the cap."""
        assert self.num_bytes == sum(self._held.values()) <= self.max_bytes
        saved = {name for name, one in sequences.items() if one.saved is not None}
        assert saved == set(self._held)
        assert not any(sequences[name].block_table for name in saved)

    def _release(self, sequence: Sequence) -> None:
        self.num_bytes -= self._held.pop(sequence.request_id)
        sequence.saved = None
