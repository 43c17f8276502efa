"""The result store's tables and what keeps them small and sound: eviction, inspection, clearing.

Functions over an open connection; the caller has begun the transaction and handles faults.
"""

from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection

from vlmcli.reuse.entries import unpack_record, unpack_sketch

SCHEMA = """
CREATE TABLE IF NOT EXISTS pages (
  id INTEGER PRIMARY KEY, digest BLOB NOT NULL, recipe BLOB NOT NULL, dhash BLOB,
  model BLOB NOT NULL, used REAL NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL,
  UNIQUE (digest, recipe));
CREATE INDEX IF NOT EXISTS pages_used ON pages (used, size);
CREATE INDEX IF NOT EXISTS pages_look ON pages (used, dhash) WHERE dhash IS NOT NULL;
CREATE TABLE IF NOT EXISTS places (
  document BLOB NOT NULL, page INTEGER NOT NULL, entry INTEGER NOT NULL
  REFERENCES pages (id) ON DELETE CASCADE, PRIMARY KEY (document, page)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS places_entry ON places (entry);
CREATE TABLE IF NOT EXISTS sketches (
  entry INTEGER PRIMARY KEY REFERENCES pages (id) ON DELETE CASCADE,
  size INTEGER NOT NULL, is_colour INTEGER NOT NULL, jpeg BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS sketches_size ON sketches (entry, size);
"""
_SKETCH_SHARE = 0.5
"""Part of the cap that sketches may take: a sketch is a hundred times as large as a text."""
_KEEP_SHARE = 0.95
"""What is left of a full store after eviction, so that not every batch evicts."""
_PAGE_BYTES = "SELECT TOTAL(size) FROM pages"
_SKETCH_BYTES = "SELECT TOTAL(size) FROM sketches"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """What the store holds. Sizes in bytes, times in seconds since 1970."""

    path: Path
    is_usable: bool = False
    max_bytes: int = 0
    num_pages: int = 0
    num_sketches: int = 0
    num_bytes: int = 0
    file_bytes: int = 0
    oldest_use: float | None = None
    newest_use: float | None = None
    pages_by_model: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """What `verify` found: entries looked at, and those that were damaged and are gone now."""

    num_checked: int
    num_dropped: int
    is_sound: bool
    """Whether nothing was damaged, neither entries nor the file itself."""


def evict(db: Connection, max_bytes: int) -> int:
    """Delete what was used longest ago, sketches first, until the store fits; number of rows."""
    num_gone = 0
    cap = int(max_bytes * _SKETCH_SHARE)
    sketches = int(db.execute(_SKETCH_BYTES).fetchone()[0])
    if sketches > cap:
        query = "SELECT entry, s.size FROM sketches s JOIN pages ON id = entry ORDER BY used"
        oldest = _oldest(db, query, sketches - int(cap * _KEEP_SHARE))
        db.executemany("DELETE FROM sketches WHERE entry = ?", oldest)
        num_gone += len(oldest)
    total = sum(int(db.execute(query).fetchone()[0]) for query in (_PAGE_BYTES, _SKETCH_BYTES))
    if total > max_bytes:
        query = (
            "SELECT id, p.size + IFNULL(s.size, 0) FROM pages p "
            "LEFT JOIN sketches s ON entry = id ORDER BY used"
        )
        oldest = _oldest(db, query, total - int(max_bytes * _KEEP_SHARE))
        db.executemany("DELETE FROM pages WHERE id = ?", oldest)
        num_gone += len(oldest)
    return num_gone


def _oldest(db: Connection, query: str, num_bytes: int) -> list[tuple[int]]:
    """As many of the query's first rows (id, size) as amount to `num_bytes`."""
    picked: list[tuple[int]] = []
    cursor = db.execute(query)
    while num_bytes > 0 and (row := cursor.fetchone()) is not None:
        picked.append((row[0],))
        num_bytes -= row[1]
    cursor.close()
    return picked


def inspect(db: Connection, path: Path, max_bytes: int) -> StoreInfo:
    """Counts and sizes."""
    num_pages, page_bytes, oldest, newest = db.execute(
        "SELECT COUNT(*), TOTAL(size), MIN(used), MAX(used) FROM pages"
    ).fetchone()
    num_sketches, sketch_bytes = db.execute("SELECT COUNT(*), TOTAL(size) FROM sketches").fetchone()
    by_model = db.execute(
        "SELECT model, COUNT(*) FROM pages GROUP BY model ORDER BY 2 DESC, 1"
    ).fetchall()
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
    return StoreInfo(
        path=path,
        is_usable=True,
        max_bytes=max_bytes,
        num_pages=num_pages,
        num_sketches=num_sketches,
        num_bytes=int(page_bytes + sketch_bytes),
        file_bytes=sum(file.stat().st_size for file in files if file.exists()),
        oldest_use=oldest,
        newest_use=newest,
        pages_by_model=tuple((model.decode(), count) for model, count in by_model),
    )


def damaged_entries(db: Connection) -> tuple[int, list[int], list[int]]:
    """How many pages there are, and the ids of damaged records and of damaged sketches."""
    records: list[int] = []
    num_checked = 0
    for entry, digest, recipe, blob in db.execute("SELECT id, digest, recipe, record FROM pages"):
        num_checked += 1
        if unpack_record(digest, recipe, blob) is None:
            records.append(entry)
    sketches = [
        entry
        for entry, is_colour, blob in db.execute("SELECT entry, is_colour, jpeg FROM sketches")
        if unpack_sketch(blob, is_colour=bool(is_colour)) is None
    ]
    return num_checked, records, sketches


def delete_entries(db: Connection, records: list[int], sketches: list[int]) -> bool:
    """Delete pages (with their sketches) and sketches by id."""
    db.executemany("DELETE FROM pages WHERE id = ?", [(entry,) for entry in records])
    db.executemany("DELETE FROM sketches WHERE entry = ?", [(entry,) for entry in sketches])
    return True


def is_file_sound(db: Connection) -> bool:
    """SQLite's own check of the file's structure."""
    return bool(db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")


def shrink(db: Connection) -> bool:
    """Give the room of deleted rows back to the file system."""
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return True
