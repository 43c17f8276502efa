"""The paged pool as integers: who owns which block, what may be shared, what is free.

One pool for image and text tokens, unless image blocks are stored in a format of their own: then
the last blocks of the pool are theirs, and theirs alone. Block 0 is the null block that padding
points at and is never handed out. A full prompt block can be found again by a hash chained over
everything before it: token ids, and for every image that touches it the image's whole digest, its
grid and its offset relative to the block. Token ids alone would make all images of one size equal.
Blocks of generated text are never shared. Knows neither tensors nor the model.
"""

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from itertools import chain

from vlmcli.engine.config import BlockKind
from vlmcli.engine.sequence import Sequence
from vlmcli.engine.vision_kv import VisionKVCache

NULL_BLOCK = 0
_KINDS: tuple[BlockKind, BlockKind] = ("vision", "text")


class Block:
    """One block of the pool: how often it is in use, what it holds, and the name of its content."""

    __slots__ = ("block_hash", "block_id", "kind", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.kind: BlockKind = "text"
        self.block_hash: bytes | None = None


class BlockManager:
    """Hands out blocks, shares equal prefixes, and keeps image prefixes for later.

    Args:
        num_blocks: size of the pool, the null block counted.
        block_size: tokens per block.
        cache: policy for blocks that nobody uses any more.
        quotas: blocks of each kind that may be resident, in use or retained; absent means all.
        num_vision_blocks: how many of the blocks, the last ones, are of another format and only for
            image tokens; 0 where any block is for both.
        enable_prefix_caching: whether equal prefixes share blocks.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        cache: VisionKVCache,
        quotas: Mapping[BlockKind, int] | None = None,
        num_vision_blocks: int = 0,
        enable_prefix_caching: bool = True,
    ) -> None:
        assert num_blocks >= 2 and block_size >= 1
        self.block_size = block_size
        self.num_usable_blocks = num_blocks - 1
        self.cache = cache
        self.enable_prefix_caching = enable_prefix_caching
        usable = self.num_usable_blocks
        own: dict[BlockKind, int] = dict.fromkeys(_KINDS, usable)
        if num_vision_blocks:
            own = {"vision": num_vision_blocks, "text": usable - num_vision_blocks}
        self.quotas = {kind: min(own[kind], (quotas or {}).get(kind, usable)) for kind in _KINDS}
        self._blocks = [Block(i) for i in range(num_blocks)]
        self._first_vision = num_blocks - num_vision_blocks
        text = list(range(self._first_vision - 1, NULL_BLOCK, -1))
        vision = list(range(num_blocks - 1, self._first_vision - 1, -1))
        self._free: dict[BlockKind, list[int]] = {
            "text": text,
            "vision": vision if num_vision_blocks else text,
        }
        """Blocks by the kind that they may be taken for; one list where that is the same."""
        self._num_used: dict[BlockKind, int] = {"vision": 0, "text": 0}
        self._block_of_hash: dict[bytes, int] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that hold nothing."""
        return sum(map(len, self._free_lists()))

    @property
    def num_blank_text_blocks(self) -> int:
        """Blocks that hold nothing and may be taken for text."""
        resident = self._num_used["text"] + self.cache.num_idle_of("text")
        return min(len(self._free["text"]), self.quotas["text"] - resident)

    @property
    def num_available_blocks(self) -> int:
        """Blocks that can be had: free, or retained and idle."""
        return self.num_free_blocks + self.cache.num_idle

    @property
    def num_used_blocks(self) -> int:
        """Blocks in use by a sequence."""
        return self._num_used["vision"] + self._num_used["text"]

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens`."""
        return -(-num_tokens // self.block_size)

    def kinds_of(self, sequence: Sequence, start: int, end: int) -> list[BlockKind]:
        """Kinds of the blocks `start` to `end` of a sequence, by what they are to hold.

        Computed once for the prompt and kept on the sequence.
        """
        kinds = sequence.block_kinds
        if not kinds:
            size = self.block_size
            kinds += [
                "vision" if self._num_image_tokens(sequence, i) == size else "text"
                for i in range(self.blocks_for(sequence.num_prompt_tokens))
            ]
        return kinds[start:end] + ["text"] * (end - max(start, len(kinds)))

    def num_shared_blocks(self, sequence: Sequence) -> int:
        """How many blocks at the beginning of its table others use as well."""
        table = sequence.block_table
        own = (i for i, block_id in enumerate(table) if self._blocks[block_id].ref_count == 1)
        return next(own, len(table))

    def fits_alone(self, sequence: Sequence) -> bool:
        """Whether the sequence could run to its last token with the whole pool to itself."""
        total = self.blocks_for(len(sequence.token_ids))
        vision = self.kinds_of(sequence, 0, self.blocks_for(sequence.num_prompt_tokens)).count(
            "vision"
        )
        return (
            total <= self.num_usable_blocks
            and vision <= self.quotas["vision"]
            and total - vision <= self.quotas["text"]
        )

    def match_prefix(self, sequence: Sequence) -> list[int]:
        """Ids of resident blocks that hold the sequence's first tokens, whole blocks only.

        At least one known token is left over, because its logits have to be computed. Changes
        nothing: the blocks may be gone later unless `allocate` takes them.
        """
        if not self.enable_prefix_caching:
            return []
        limit = min(sequence.num_prompt_tokens, sequence.num_tokens - 1) // self.block_size
        hits: list[int] = []
        for i in range(limit):
            block_id = self._block_of_hash.get(self._hash_of(sequence, i))
            if block_id is None:
                break
            hits.append(block_id)
        return hits

    def can_allocate(self, sequence: Sequence, hits: Seq[int], *, reserve: int = 0) -> bool:
        """Whether blocks for all known tokens can be had, leaving `reserve` blocks available."""
        total = self.blocks_for(sequence.num_tokens)
        kinds = self.kinds_of(sequence, len(hits), total)
        idle = [block_id for block_id in hits if self.cache.is_idle(block_id)]
        if len(kinds) + len(idle) + reserve > self.num_available_blocks:
            return False
        kinds += [self._blocks[block_id].kind for block_id in idle]
        wanted = {"vision": kinds.count("vision"), "text": kinds.count("text") + reserve}
        return all(self._num_used[kind] + wanted[kind] <= self.quotas[kind] for kind in _KINDS)

    def allocate(self, sequence: Sequence, hits: Seq[int]) -> None:
        """Give the sequence the hit blocks and new ones for the rest of its known tokens.

        Only after `can_allocate` with the same hits. Sets `num_computed_tokens` to the hit tokens.
        """
        assert not sequence.block_table
        for block_id in hits:
            self._share(block_id)
        kinds = self.kinds_of(sequence, len(hits), self.blocks_for(sequence.num_tokens))
        sequence.block_table = [*hits, *(self._take(kind) for kind in kinds)]
        sequence.num_registered_blocks = len(hits)
        sequence.num_computed_tokens = len(hits) * self.block_size
        if not sequence.num_preemptions:
            sequence.num_cached_tokens = sequence.num_computed_tokens

    def grow(self, sequence: Sequence, num_tokens: int, *, evict: bool = True) -> bool:
        """Extend the block table to hold `num_tokens`; False, and no change, where it cannot be.

        With `evict=False` only blocks that hold nothing are taken.
        """
        num_new = self.blocks_for(num_tokens) - len(sequence.block_table)
        if num_new <= 0:
            return True
        room = self.num_blank_text_blocks
        if evict:
            own = self.quotas["text"] - self._num_used["text"]
            room = min(own, self.num_available_blocks)
        if num_new > room:
            return False
        sequence.block_table += [self._take("text") for _ in range(num_new)]
        return True

    def trim(self, sequence: Sequence, num_tokens: int) -> None:
        """Shorten the block table to what `num_tokens` need: the rollback after rejected drafts."""
        keep = self.blocks_for(num_tokens)
        while len(sequence.block_table) > keep:
            self._drop(sequence.block_table.pop())

    def register(self, sequence: Sequence, num_tokens: int) -> None:
        """Make the full prompt blocks among the first `num_tokens` tokens findable.

        May be called when a step is scheduled: whoever is admitted to the same step may share them,
        since every layer writes keys and values before it reads them. A step that fails takes it
        back with `forget`.
        """
        if not self.enable_prefix_caching:
            return
        end = min(num_tokens, sequence.num_prompt_tokens) // self.block_size
        for i in range(sequence.num_registered_blocks, end):
            block = self._blocks[sequence.block_table[i]]
            name = self._hash_of(sequence, i)
            if name not in self._block_of_hash:
                self._block_of_hash[name] = block.block_id
                block.block_hash = name
        sequence.num_registered_blocks = max(sequence.num_registered_blocks, end)

    def forget(self, sequence: Sequence, num_tokens: int) -> None:
        """Undo `register` for blocks that hold more than the first `num_tokens` tokens."""
        start = num_tokens // self.block_size
        for i in range(start, sequence.num_registered_blocks):
            self._unregister(self._blocks[sequence.block_table[i]])
        sequence.num_registered_blocks = min(start, sequence.num_registered_blocks)

    def free(self, sequence: Sequence) -> None:
        """Take all blocks back; blocks of image prefixes are retained where the cache has room."""
        num_retained = sequence.image_ends[-1] // self.block_size if sequence.image_ends else 0
        group: list[tuple[int, BlockKind]] = []
        unpinned: list[int] = []
        for i in range(len(sequence.block_table) - 1, -1, -1):
            block = self._blocks[sequence.block_table[i]]
            block.ref_count -= 1
            if block.ref_count:
                continue
            self._num_used[block.kind] -= 1
            if block.block_id in self.cache:
                unpinned.append(block.block_id)
            elif i < num_retained and block.block_hash is not None:
                group.append((block.block_id, block.kind))
            else:
                self._release(block)
        sequence.block_table = []
        sequence.num_registered_blocks = 0
        self._retain(group)
        for block_id in unpinned:
            self.cache.unpin(block_id)

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Assert that free + used + retained blocks are the whole pool, each in one place only.

        Args:
            sequences: every sequence that may own blocks.
        """
        refs = [0] * len(self._blocks)
        for sequence in sequences:
            for block_id in sequence.block_table:
                refs[block_id] += 1
        assert refs[NULL_BLOCK] == 0
        assert [block.ref_count for block in self._blocks] == refs
        self.cache.check_integrity()
        free, idle = set(chain.from_iterable(self._free_lists())), self.cache.idle_ids()
        used = {block.block_id for block in self._blocks if block.ref_count}
        assert len(free) == self.num_free_blocks
        if self._first_vision < len(self._blocks):
            for i in used | idle:
                assert (self._blocks[i].kind == "vision") == (i >= self._first_vision)
            assert all(i >= self._first_vision for i in self._free["vision"])
        assert len(free) + len(used) + len(idle) == self.num_usable_blocks
        assert free | used | idle == set(range(1, len(self._blocks)))
        assert self.cache.pinned_ids() <= used
        for kind in _KINDS:
            num_used = sum(self._blocks[i].kind == kind for i in used)
            assert num_used == self._num_used[kind]
            assert num_used + self.cache.num_idle_of(kind) <= self.quotas[kind]
        named = {b.block_hash: b.block_id for b in self._blocks if b.block_hash is not None}
        assert named == self._block_of_hash
        assert not free & set(named.values()) and idle <= set(named.values())

    def _free_lists(self) -> list[list[int]]:
        text, vision = self._free["text"], self._free["vision"]
        return [text] if text is vision else [text, vision]

    def _take(self, kind: BlockKind) -> int:
        while self._num_used[kind] + self.cache.num_idle_of(kind) >= self.quotas[kind]:
            self._evict(kind)
        if not self._free[kind]:
            self._evict(None)
        block = self._blocks[self._free[kind].pop()]
        assert block.ref_count == 0 and block.block_hash is None
        block.ref_count = 1
        block.kind = kind
        self._num_used[kind] += 1
        return block.block_id

    def _share(self, block_id: int) -> None:
        block = self._blocks[block_id]
        if block.ref_count == 0:
            self.cache.pin(block_id)
            self._num_used[block.kind] += 1
        block.ref_count += 1

    def _drop(self, block_id: int) -> None:
        block = self._blocks[block_id]
        assert block.ref_count == 1 and block.block_hash is None, "only private blocks are trimmed"
        block.ref_count = 0
        self._num_used[block.kind] -= 1
        self._release(block)

    def _retain(self, group: Seq[tuple[int, BlockKind]]) -> None:
        evicted = self.cache.put(group) if group else []
        for block_id in [b for b, _ in group] if evicted is None else evicted:
            self._release(self._blocks[block_id])

    def _evict(self, kind: BlockKind | None) -> None:
        block_id = self.cache.evict(kind)
        assert block_id is not None, "no block left: the caller must ask first"
        self._release(self._blocks[block_id])

    def _release(self, block: Block) -> None:
        self._unregister(block)
        own: BlockKind = "vision" if block.block_id >= self._first_vision else "text"
        self._free[own].append(block.block_id)

    def _unregister(self, block: Block) -> None:
        if block.block_hash is not None:
            del self._block_of_hash[block.block_hash]
            block.block_hash = None

    def _num_image_tokens(self, sequence: Sequence, index: int) -> int:
        first = index * self.block_size
        last = first + self.block_size
        return sum(
            min(image.end, last) - max(image.offset, first)
            for image in sequence.request.placeholders[bisect_right(sequence.image_ends, first) :]
            if image.offset < last
        )

    def _hash_of(self, sequence: Sequence, index: int) -> bytes:
        """Name of the first `index + 1` blocks of the prompt, kept on the sequence.

        A SHA-256 digest. The stream that is hashed is unambiguous: a fixed-size head (parent, token
        ids, number of images), then fixed-size items.
        """
        hashes = sequence.block_hashes
        while len(hashes) <= index:
            first = len(hashes) * self.block_size
            last = first + self.block_size
            digest = hashlib.sha256(hashes[-1] if hashes else bytes(32))
            digest.update(sequence.token_ids[first:last].tobytes())
            request = sequence.request
            start = bisect_right(sequence.image_ends, first)
            end = start
            while end < len(request.images) and request.placeholders[end].offset < last:
                end += 1
            digest.update(struct.pack("<q", end - start))
            for image, place in zip(
                request.images[start:end], request.placeholders[start:end], strict=True
            ):
                grid = place.grid or (0, 0, 0)
                digest.update(image.mm_hash)
                digest.update(struct.pack("<5q", place.offset - first, place.length, *grid))
            hashes.append(digest.digest())
        return hashes[index]
