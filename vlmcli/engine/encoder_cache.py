"""Image embeddings by content: encoded once, shared by every request that shows the same image.

Entries that a request still needs are pinned; the others stay, least recently used out first, as
long as there is room. Pinned and idle bytes together never exceed the cap. An item larger than the
cap is kept beside it, one such item at a time, only while it is needed, and evicts nothing. Items
that are being encoded have their room already. Holds opaque values with a size, so it knows no
tensors; encoding is its caller's business, who does not begin a batch while another is expected, so
that nothing is ever encoded twice at once.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Entry(Generic[T]):
    """One encoded image: its embedding, bytes, and the requests that still need it."""

    value: T
    num_bytes: int
    owners: set[str] = field(default_factory=set)


class EncoderCache(Generic[T]):
    """Byte-capped LRU of embeddings, keyed by image digest, reference-counted by request id.

    Args:
        max_bytes: cap over everything held, items larger than the cap apart.
        retain: whether entries stay when nobody needs them; without it the cap only bounds what is
            in flight.
    """

    def __init__(self, max_bytes: int, *, retain: bool = True) -> None:
        self.max_bytes = max_bytes
        self.retain = retain
        self.num_bytes = 0
        self.num_pinned_bytes = 0
        self.num_hits = 0
        self.num_misses = 0
        self._pinned: dict[bytes, Entry[T]] = {}
        self._idle: OrderedDict[bytes, Entry[T]] = OrderedDict()
        self._oversize: dict[bytes, Entry[T]] = {}
        self._expected: dict[bytes, int] = {}
        """Bytes of items that are being encoded; 0 for one that is larger than the cap."""

    def __contains__(self, mm_hash: bytes) -> bool:
        return mm_hash in self._pinned or mm_hash in self._idle or mm_hash in self._oversize

    def has_room(self, num_bytes: int, *, planned: int = 0) -> bool:
        """Whether an item can be taken in now, `planned` bytes of others being on their way."""
        if num_bytes > self.max_bytes:
            return not self._oversize and not self._expected and not planned
        taken = self.num_pinned_bytes + self._num_expected_bytes + planned
        return taken + num_bytes <= self.max_bytes

    def make_room(self, num_bytes: int) -> None:
        """Evict idle entries until `num_bytes` more fit, before they are computed."""
        if num_bytes <= self.max_bytes:
            most = self.max_bytes - self._num_expected_bytes - num_bytes
            while self._idle and self.num_bytes > most:
                _, entry = self._idle.popitem(last=False)
                self.num_bytes -= entry.num_bytes

    @property
    def is_expecting(self) -> bool:
        """Whether anything is being encoded."""
        return bool(self._expected)

    def expect(self, mm_hash: bytes, num_bytes: int) -> None:
        """Keep room for an item until it is put in or given up; only after `make_room`."""
        assert mm_hash not in self and mm_hash not in self._expected
        self._expected[mm_hash] = num_bytes if num_bytes <= self.max_bytes else 0

    def give_up(self, mm_hash: bytes) -> None:
        """An item that was expected will not come."""
        del self._expected[mm_hash]

    def drop_idle(self) -> None:
        """Evict everything that nobody needs."""
        self.num_bytes = self.num_pinned_bytes
        self._idle.clear()

    def put(self, mm_hash: bytes, value: T, num_bytes: int, owners: Iterable[str]) -> None:
        """Take in a new item for the requests that need it; only after `has_room` or `expect`."""
        assert mm_hash not in self
        self._expected.pop(mm_hash, None)
        entry = Entry(value, num_bytes, set(owners))
        assert entry.owners, "nobody asked for this image"
        self.num_misses += 1
        if num_bytes > self.max_bytes:
            self._oversize[mm_hash] = entry
            return
        self.make_room(num_bytes)
        self._pinned[mm_hash] = entry
        self.num_bytes += num_bytes
        self.num_pinned_bytes += num_bytes

    def get(self, mm_hash: bytes) -> T:
        """The embedding of an image that some request has pinned."""
        entry = self._pinned.get(mm_hash) or self._oversize[mm_hash]
        return entry.value

    def peek(self, mm_hash: bytes) -> T | None:
        """The embedding if it is here, pinned or not; its age does not change."""
        entry = self._pinned.get(mm_hash) or self._idle.get(mm_hash) or self._oversize.get(mm_hash)
        return entry.value if entry else None

    def pin(self, mm_hash: bytes, owner: str) -> None:
        """Keep a present item until the owner lets go; pinning twice is pinning once."""
        entry = self._idle.pop(mm_hash, None)
        if entry is not None:
            self._pinned[mm_hash] = entry
            self.num_pinned_bytes += entry.num_bytes
        else:
            entry = self._pinned.get(mm_hash) or self._oversize[mm_hash]
        if owner not in entry.owners:
            self.num_hits += 1
            entry.owners.add(owner)

    def unpin(self, mm_hash: bytes, owner: str) -> None:
        """The owner needs the item no longer; unknown items and owners are ignored."""
        entry = self._pinned.get(mm_hash) or self._oversize.get(mm_hash)
        if entry is None or owner not in entry.owners:
            return
        entry.owners.remove(owner)
        if entry.owners:
            return
        if mm_hash in self._oversize:
            del self._oversize[mm_hash]
            return
        del self._pinned[mm_hash]
        self.num_pinned_bytes -= entry.num_bytes
        if self.retain:
            self._idle[mm_hash] = entry
        else:
            self.num_bytes -= entry.num_bytes

    def owners(self) -> set[str]:
        """Requests that have pinned anything."""
        entries = [*self._pinned.values(), *self._oversize.values()]
        return set().union(*(entry.owners for entry in entries))

    @property
    def _num_expected_bytes(self) -> int:
        return sum(self._expected.values())

    def check_integrity(self) -> None:
        """Assert that counters agree with entries, the cap holds, and pins have owners."""
        pinned = sum(entry.num_bytes for entry in self._pinned.values())
        idle = sum(entry.num_bytes for entry in self._idle.values())
        assert self.num_pinned_bytes == pinned
        assert self.num_bytes == pinned + idle <= self.max_bytes - self._num_expected_bytes
        assert all(entry.owners for entry in self._pinned.values())
        assert all(not entry.owners for entry in self._idle.values())
        assert len(self._oversize) <= 1
        assert all(entry.owners for entry in self._oversize.values())
