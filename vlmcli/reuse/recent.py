"""The pages of this job that later ones may be like: bounded in bytes, oldest dropped first.

A page is here from the moment it is to be read, so that a copy of it waits instead of being read a
second time. Only pages that were really read can be compared with: were a page that took another's
text a candidate in turn, small differences could add up from page to page. Sketches are a hundred
times as large as the rest, so they have a share of their own and go first.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from vlmcli.results import PageRecord, ReuseOrigin
from vlmcli.reuse.entries import Place
from vlmcli.reuse.fingerprint import PageFingerprint, hamming

DEFAULT_MAX_BYTES = 32 << 20
"""Twenty A4 pages with sketches at 200 dpi: memory must stay flat in the number of pages."""
_OVERHEAD = 1000
"""Bytes of the objects that hold a page here."""
_SKETCH_SHARE = 0.75
"""Part of the cap that sketches may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRef:
    """A page about which a decision is wanted.

    `key` is the caller's own handle; `place` is None for pages without a lasting one (stdin).
    """

    key: Hashable
    document: str
    page: int
    place: Place | None
    fingerprint: PageFingerprint


@dataclass(slots=True, kw_only=True)
class RecentPage:
    """A page that is being read (`record` is None) or was read."""

    page: PageRef
    number: int
    """The order in which pages came, whatever the order in which they are finished."""
    record: PageRecord | None = None
    is_read: bool = True
    """False for a page that took over another's text."""

    @property
    def origin(self) -> ReuseOrigin:
        """How records name it."""
        return ReuseOrigin(document=self.page.document, page=self.page.page)

    @property
    def sketch_bytes(self) -> int:
        """Bytes of its sketch; 0 without one."""
        sketch = self.page.fingerprint.sketch
        return sketch.nbytes if sketch else 0

    @property
    def nbytes(self) -> int:
        """Bytes that it counts for."""
        record = self.record
        text = 0 if record is None else 4 * len(record.text) + 300 * len(record.lines)
        lines = record.lines if record is not None else ()
        places = sum(line.strip.nbytes for line in lines if line.strip is not None)
        return self.page.fingerprint.nbytes + _OVERHEAD + text + places


class RecentPages:
    """Pages by exact digest and by likeness. Pages still being read are never dropped.

    Args:
        max_bytes: cap on what is kept of finished pages.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._sketch_bytes = 0
        self._num_begun = 0
        self._finished: OrderedDict[bytes, RecentPage] = OrderedDict()
        self._sketched: OrderedDict[bytes, None] = OrderedDict()
        """Finished pages that have a sketch, oldest first."""
        self._reading: dict[bytes, RecentPage] = {}

    def __len__(self) -> int:
        return len(self._finished) + len(self._reading)

    def get(self, digest: bytes) -> RecentPage | None:
        """The page with exactly these pixels."""
        found = self._finished.get(digest)
        if found is not None:
            self._finished.move_to_end(digest)
        return found or self._reading.get(digest)

    def begin(self, page: PageRef) -> None:
        """A page is going to be read."""
        assert page.fingerprint.digest not in self._reading, "a page is read twice at once"
        self._num_begun += 1
        self._reading[page.fingerprint.digest] = RecentPage(page=page, number=self._num_begun)

    def finish(self, page: PageRef, record: PageRecord) -> None:
        """A page was read; a failed one is forgotten."""
        begun = self._reading.pop(page.fingerprint.digest)
        if not record.is_failed:
            self._keep(replace(begun, record=record))

    def note(self, page: PageRef, record: PageRecord) -> None:
        """A page was proven equal to another: its copies are known, none is compared with it."""
        bare = replace(page, fingerprint=replace(page.fingerprint, sketch=None))
        self._num_begun += 1
        self._keep(RecentPage(page=bare, number=self._num_begun, record=record, is_read=False))

    def limit(self, max_bytes: int) -> None:
        """From now on so many bytes at the most."""
        self.max_bytes = max_bytes
        self._trim()

    def _keep(self, done: RecentPage) -> None:
        digest = done.page.fingerprint.digest
        self._drop(digest)
        self._finished[digest] = done
        self.nbytes += done.nbytes
        if done.sketch_bytes:
            self._sketched[digest] = None
            self._sketch_bytes += done.sketch_bytes
        self._trim()

    def _drop(self, digest: bytes) -> None:
        dropped = self._finished.pop(digest, None)
        if dropped is not None:
            self.nbytes -= dropped.nbytes
            self._sketch_bytes -= dropped.sketch_bytes
            self._sketched.pop(digest, None)

    def _trim(self) -> None:
        while self._sketch_bytes > _SKETCH_SHARE * self.max_bytes:
            digest, _ = self._sketched.popitem(last=False)
            whole = self._finished[digest]
            bare = replace(whole.page.fingerprint, sketch=None)
            self._finished[digest] = replace(whole, page=replace(whole.page, fingerprint=bare))
            self.nbytes -= whole.sketch_bytes
            self._sketch_bytes -= whole.sketch_bytes
        while self.nbytes > self.max_bytes:
            self._drop(next(iter(self._finished)))

    def nearest(
        self, page: PageFingerprint, max_distance: int, limit: int, *, with_sketch: bool = False
    ) -> list[RecentPage]:
        """The pages whose 256-bit dhash is near, nearest first; none for a page that is blank."""
        if not page.is_distinctive:
            return []
        ranked = [
            (hamming(other.page.fingerprint.dhash256, page.dhash256), -other.number, other)
            for other in self._all()
            if other.is_read
            and other.page.fingerprint.is_distinctive
            and (other.sketch_bytes or not with_sketch)
        ]
        ranked.sort(key=lambda entry: entry[:2])
        return [other for distance, _, other in ranked[:limit] if distance <= max_distance]

    def _all(self) -> Iterator[RecentPage]:
        yield from self._finished.values()
        yield from self._reading.values()
