"""The vision-KV cache: which blocks of finished image prefixes stay in the pool, and for how long.

A policy over block ids, without the blocks: it decides, the block manager acts. Least recently used
goes first, a block in use is pinned, and the bytes held, pinned or idle, never exceed the cap. What
does not fit beside the pinned blocks is not kept and evicts nothing, so that one huge page cannot
empty the cache. Given up: a retained tail whose head was evicted stays, unreachable, until its
turn.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from vlmcli.engine.config import BlockKind


class VisionKVCache:
    """LRU over block ids with a hard byte cap.

    Args:
        max_bytes: cap over all blocks held; 0 keeps nothing.
        block_bytes: bytes of one block by kind.
    """

    def __init__(self, max_bytes: int, block_bytes: Mapping[BlockKind, int]) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.num_evicted = 0
        self._block_bytes = dict(block_bytes)
        self._idle: OrderedDict[int, BlockKind] = OrderedDict()
        self._pinned: dict[int, BlockKind] = {}
        self._num_idle: dict[BlockKind, int] = {"vision": 0, "text": 0}

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._idle or block_id in self._pinned

    @property
    def num_idle(self) -> int:
        """Blocks that may be evicted now."""
        return len(self._idle)

    def num_idle_of(self, kind: BlockKind) -> int:
        """Blocks of one kind that may be evicted now."""
        return self._num_idle[kind]

    def is_idle(self, block_id: int) -> bool:
        """Whether the block is held and nobody uses it."""
        return block_id in self._idle

    def put(self, blocks: Sequence[tuple[int, BlockKind]]) -> list[int] | None:
        """Keep a group of blocks that has just fallen out of use.

        Args:
            blocks: ids and kinds, none of them held yet; the last one is evicted last, so the tail
                of a chain comes first.

        Returns:
            Ids evicted to make room, or None where the group does not fit and nothing changed.
        """
        needed = sum(self._block_bytes[kind] for _, kind in blocks)
        if needed > self.max_bytes - self._bytes_of(self._pinned):
            return None
        evicted = []
        while self.num_bytes + needed > self.max_bytes:
            block_id = self.evict()
            assert block_id is not None
            evicted.append(block_id)
        for block_id, kind in blocks:
            assert block_id not in self
            self._insert(block_id, kind)
            self.num_bytes += self._block_bytes[kind]
        return evicted

    def pin(self, block_id: int) -> None:
        """A held block has come into use."""
        kind = self._idle.pop(block_id)
        self._num_idle[kind] -= 1
        self._pinned[block_id] = kind

    def unpin(self, block_id: int) -> None:
        """A pinned block has fallen out of use; it becomes the most recent."""
        self._insert(block_id, self._pinned.pop(block_id))

    def evict(self, kind: BlockKind | None = None) -> int | None:
        """Give up the least recently used idle block, of one kind if asked, and return its id."""
        candidates = self._idle.items()
        block_id = next((b for b, k in candidates if kind is None or k == kind), None)
        if block_id is not None:
            found = self._idle.pop(block_id)
            self._num_idle[found] -= 1
            self.num_bytes -= self._block_bytes[found]
            self.num_evicted += 1
        return block_id

    def check_integrity(self) -> None:
        """Assert that the counters agree with the entries and the cap holds."""
        assert not self._idle.keys() & self._pinned.keys()
        assert self.num_bytes == self._bytes_of(self._idle) + self._bytes_of(self._pinned)
        assert self.num_bytes <= self.max_bytes
        for kind, count in self._num_idle.items():
            assert count == sum(k == kind for k in self._idle.values())

    def pinned_ids(self) -> set[int]:
        """Ids of held blocks that are in use."""
        return set(self._pinned)

    def idle_ids(self) -> set[int]:
        """Ids of held blocks that are not in use."""
        return set(self._idle)

    def _insert(self, block_id: int, kind: BlockKind) -> None:
        self._idle[block_id] = kind
        self._num_idle[kind] += 1

    def _bytes_of(self, blocks: Mapping[int, BlockKind]) -> int:
        return sum(self._block_bytes[kind] for kind in blocks.values())
