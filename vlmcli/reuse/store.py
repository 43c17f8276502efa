"""Finished pages on disk, across runs and processes: what was read once is not read again.

A result belongs to a page's exact pixels and to everything that could change its text; both digests
are kept whole. Similar pages are only nominated here (by place, by dhash). Results wait in memory
and are written in batches, so that a page costs well under a millisecond. Never raises for the
file's sake: see `database`. Gave up: keeping what a killed run had not written; its journal has it.
"""

import contextlib
import time
from pathlib import Path
from sqlite3 import Connection

import numpy as np
from numpy.typing import NDArray

from vlmcli.results import PageRecord
from vlmcli.reuse import upkeep
from vlmcli.reuse.database import Database, Warn, default_directory
from vlmcli.reuse.entries import (
    Place,
    StoredPage,
    pack_record,
    pack_sketch,
    unpack_record,
    unpack_sketch,
)
from vlmcli.reuse.fingerprint import PageFingerprint, Sketch
from vlmcli.reuse.upkeep import StoreCheck, StoreInfo

DEFAULT_MAX_BYTES = 512 << 20
FILE_NAME = "results-1.sqlite"
"""The number is the version of the tables: another layout is another file."""

_BATCH_ENTRIES = 64
_BATCH_BYTES = 4 << 20
_BATCH_SECONDS = 2.0
_BATCH_HITS = 1024
_MAX_WAITING_BYTES = 16 << 20
_ROW_OVERHEAD = 400
"""Bytes that SQLite spends on a row, its keys and its indexes."""
_MAX_LOOKS = 100_000
_DHASH_BYTES = 32


class _Waiting:
    """A result that is not on disk yet."""

    __slots__ = ("blob", "jpeg", "nbytes", "page", "place")

    def __init__(self, page: StoredPage, place: Place | None) -> None:
        self.page = page
        self.place = place
        self.blob = pack_record(page.digest, page.recipe, page.record)
        self.jpeg = pack_sketch(page.sketch) if page.sketch else b""
        self.nbytes = len(self.blob) + len(self.jpeg) + _ROW_OVERHEAD


class ResultStore:
    """The store, for one thread. Open it in the process that writes, not before a fork.

    Args:
        directory: where the file is; by default `default_directory()`.
        max_bytes: cap on what is kept; the least recently used goes first, sketches before texts.
        on_warning: is told, once a kind, why results cannot be kept or were lost.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        on_warning: Warn = lambda message: None,
    ) -> None:
        self.max_bytes = max_bytes
        self.path = (directory or default_directory()) / FILE_NAME
        self._database = Database(self.path, upkeep.SCHEMA, on_warning)
        self._waiting: dict[tuple[bytes, bytes], _Waiting] = {}
        self._waiting_bytes = 0
        self._waiting_since = 0.0
        self._hits: list[tuple[int, Place | None]] = []
        self._looks: tuple[NDArray[np.int64], NDArray[np.uint64]] | None = None

    def __enter__(self) -> "ResultStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- looking up ------------------------------------------------------------------------------

    def get(self, digest: bytes, recipe: bytes, place: Place | None = None) -> PageRecord | None:
        """The result for exactly these pixels and this recipe; they now also stand at `place`."""
        waiting = self._waiting.get((digest, recipe))
        if waiting is not None:
            return waiting.page.record
        found = self._select("digest = ? AND recipe = ?", (digest, recipe))
        if found is None:
            return None
        entry, page = found
        self._hits.append((entry, place))
        if len(self._hits) >= _BATCH_HITS:
            self.flush()
        return page.record

    def knows(self, digest: bytes) -> bool:
        """Whether there is a result for these pixels, by whatever recipe."""
        query = "SELECT 1 FROM pages WHERE digest = ? LIMIT 1"
        row = self._database.attempt(lambda db: db.execute(query, (digest,)).fetchone(), None)
        return row is not None

    def at(self, place: Place) -> StoredPage | None:
        """What was last read at this place, whatever was there, by whatever recipe: a draft."""
        where = "id = (SELECT entry FROM places WHERE document = ? AND page = ?)"
        found = self._select(where, place.key)
        return found[1] if found else None

    def nearest(
        self, dhash256: bytes, recipe: bytes | None = None, *, max_distance: int, limit: int
    ) -> list[StoredPage]:
        """Pages of earlier runs that look alike, the most alike first; at most `limit` of them.

        With a recipe: those that were read by it and have a sketch to compare; else any.
        """
        entries, looks = self._load_looks()
        bits = np.bitwise_count(looks ^ np.frombuffer(dhash256, np.uint64)).sum(1, dtype=np.int64)
        order = np.argsort(bits, kind="stable")[:limit]
        close = [int(entries[row]) for row in order if bits[row] <= max_distance]
        found = [self._select("id = ?", (entry,), recipe) for entry in close]
        return [pair[1] for pair in found if pair is not None]

    def _select(
        self, where: str, values: tuple[object, ...], compared: bytes | None = None
    ) -> tuple[int, StoredPage] | None:
        """One row; with `compared` only if its recipe is that one and its sketch is there."""
        query = f"SELECT id, digest, recipe, dhash, record FROM pages WHERE {where}"
        row = self._database.attempt(lambda db: db.execute(query, values).fetchone(), None)
        if row is None:
            return None
        entry, digest, recipe, dhash, blob = row
        record = unpack_record(digest, recipe, blob)
        if record is None:
            self._database.warn("entry", f"dropped a damaged entry of {self.path}")
            self._database.change(lambda db: upkeep.delete_entries(db, [entry], []))
            return None
        sketch = self._sketch(entry) if recipe == compared else None
        if compared is not None and sketch is None:
            return None
        return entry, StoredPage(
            digest=digest,
            recipe=recipe,
            record=record,
            dhash256=dhash,
            sketch=sketch,
        )

    def _sketch(self, entry: int) -> Sketch | None:
        query = "SELECT jpeg, is_colour FROM sketches WHERE entry = ?"
        row = self._database.attempt(lambda db: db.execute(query, (entry,)).fetchone(), None)
        return unpack_sketch(row[0], is_colour=bool(row[1])) if row else None

    def _load_looks(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Ids and dhashes of the pages used last, read once; later pages of this run are recent."""
        if self._looks is None:
            query = "SELECT id, dhash FROM pages WHERE dhash IS NOT NULL ORDER BY used DESC LIMIT ?"
            nothing: list[tuple[int, bytes]] = []
            rows = self._database.attempt(
                lambda db: db.execute(query, (_MAX_LOOKS,)).fetchall(), nothing
            )
            rows = [row for row in rows if len(row[1]) == _DHASH_BYTES]
            joined = b"".join(row[1] for row in rows)
            entries = np.array([row[0] for row in rows], dtype=np.int64)
            self._looks = entries, np.frombuffer(joined, np.uint64).reshape(-1, 4)
        return self._looks

    # --- keeping ---------------------------------------------------------------------------------

    def put(
        self, page: PageFingerprint, recipe: bytes, record: PageRecord, place: Place | None = None
    ) -> None:
        """Keep the result of a page that was read. Failed pages do not belong here."""
        assert not record.is_failed, "a failed page is no result"
        if not self._database.is_writable:
            return
        stored = StoredPage(
            digest=page.digest,
            recipe=recipe,
            record=record,
            dhash256=page.dhash256 if page.is_distinctive else None,
            sketch=page.sketch,
        )
        waiting = _Waiting(stored, place)
        if waiting.nbytes > self.max_bytes:
            return
        if not self._waiting:
            self._waiting_since = time.monotonic()
        replaced = self._waiting.pop((page.digest, recipe), None)
        self._waiting_bytes += waiting.nbytes - (replaced.nbytes if replaced else 0)
        self._waiting[page.digest, recipe] = waiting
        if (
            len(self._waiting) >= _BATCH_ENTRIES
            or self._waiting_bytes >= _BATCH_BYTES
            or time.monotonic() - self._waiting_since >= _BATCH_SECONDS
        ):
            self.flush()

    def flush(self) -> None:
        """Write what waits. While another process holds the file, it keeps waiting, to a limit."""
        if not self._waiting and not self._hits:
            return
        num_evicted = self._database.change(self._write)
        if (
            num_evicted is not None
            or not self._database.is_writable
            or self._waiting_bytes > _MAX_WAITING_BYTES
        ):
            self._waiting.clear()
            self._waiting_bytes = 0
            self._hits.clear()
        if num_evicted:
            vacuum = "PRAGMA incremental_vacuum"
            self._database.attempt(lambda db: db.execute(vacuum).fetchall(), [])
        self._waiting_since = time.monotonic()

    def close(self) -> None:
        """Write what waits and close the file."""
        self.flush()
        self._database.close()

    def _write(self, db: Connection) -> int:
        now = time.time()
        for entry, place in self._hits:
            db.execute("UPDATE pages SET used = ? WHERE id = ?", (now, entry))
            if place is not None:
                # Selected, since another process may have evicted the entry since it was found.
                db.execute(
                    "INSERT OR REPLACE INTO places SELECT ?, ?, id FROM pages WHERE id = ?",
                    (*place.key, entry),
                )
        for waiting in self._waiting.values():
            _insert(db, waiting, now)
        return upkeep.evict(db, self.max_bytes)

    # --- for `vlmcli cache` ----------------------------------------------------------------------

    def info(self) -> StoreInfo:
        """Counts and sizes."""
        self.flush()
        nothing = StoreInfo(path=self.path, max_bytes=self.max_bytes)
        return self._database.attempt(
            lambda db: upkeep.inspect(db, self.path, self.max_bytes), nothing
        )

    def clear(self) -> int:
        """Delete every result, and files that were moved aside; how many results there were."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._hits.clear()
        self._looks = None
        num_gone = self._database.change(lambda db: db.execute("DELETE FROM pages").rowcount)
        self._database.attempt(upkeep.shrink, False)
        with contextlib.suppress(OSError):
            self._database.damaged_path.unlink(missing_ok=True)
        return num_gone or 0

    def verify(self) -> StoreCheck:
        """Check every entry and the file; drop what is damaged."""
        self.flush()
        is_sound = self._database.attempt(upkeep.is_file_sound, False)
        if not is_sound:
            self._database.recover("its structure is damaged")
            return StoreCheck(num_checked=0, num_dropped=0, is_sound=False)
        nothing: tuple[int, list[int], list[int]] = (0, [], [])
        num_checked, records, sketches = self._database.attempt(upkeep.damaged_entries, nothing)
        if records or sketches:
            self._database.change(lambda db: upkeep.delete_entries(db, records, sketches))
        num_dropped = len(records) + len(sketches)
        return StoreCheck(
            num_checked=num_checked, num_dropped=num_dropped, is_sound=not num_dropped
        )


def _insert(db: Connection, waiting: _Waiting, now: float) -> None:
    page = waiting.page
    (entry,) = db.execute(
        "INSERT INTO pages (digest, recipe, dhash, model, used, size, record)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (digest, recipe) DO UPDATE SET"
        " used = excluded.used, size = excluded.size, record = excluded.record RETURNING id",
        (
            page.digest,
            page.recipe,
            page.dhash256,
            (page.record.model or "").encode("utf-8", "replace"),
            now,
            len(waiting.blob) + _ROW_OVERHEAD,
            waiting.blob,
        ),
    ).fetchone()
    if waiting.place is not None:
        db.execute("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", (*waiting.place.key, entry))
    if page.sketch is not None:
        db.execute(
            "INSERT OR REPLACE INTO sketches VALUES (?, ?, ?, ?)",
            (entry, len(waiting.jpeg) + _ROW_OVERHEAD, page.sketch.is_colour, waiting.jpeg),
        )
