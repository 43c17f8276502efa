"""The result store's SQLite file: where it is, how it is opened, what happens when it fails.

No failure of a cache may fail a job. Every fault is sorted into four kinds: busy (try later), full
or read-only (stop writing), damaged (move the file aside and begin anew), anything else (stop using
the store); each but the first is told once through `on_warning`. Knows nothing of what is stored.
"""

import contextlib
import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from vlmcli.paths import cache_directory

Warn = Callable[[str], None]
Fault = Literal["busy", "full", "damaged", "unusable"]
Result = TypeVar("Result")

BUSY_SECONDS = 5.0
_FAULTS: Mapping[int, Fault] = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "full",
    sqlite3.SQLITE_IOERR: "full",
    sqlite3.SQLITE_PERM: "full",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
}
_PRIMARY_CODE = 0xFF
_PRAGMAS = (
    "PRAGMA auto_vacuum = INCREMENTAL",
    "PRAGMA journal_mode = WAL",
    # A power cut may lose the last transactions but cannot damage the file; a kill loses nothing.
    "PRAGMA synchronous = NORMAL",
    "PRAGMA journal_size_limit = 16777216",
    "PRAGMA foreign_keys = ON",
)


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where results are: in the cache's folder."""
    return cache_directory(environ) / "results"


class Database:
    """One connection to one file, with the faults of files handled.

    Args:
        path: the file; its directory is made, private to the user (0700), if missing.
        schema: statements that create whatever is missing.
        on_warning: is told, once a kind, what went wrong.
    """

    def __init__(self, path: Path, schema: str, on_warning: Warn) -> None:
        self.path = path
        self._schema = schema
        self._on_warning = on_warning
        self._told: set[str] = set()
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._may_write = True
        self._open(may_recover=True)

    @property
    def is_open(self) -> bool:
        """Whether the file can be used at all."""
        return self._connection is not None

    @property
    def is_writable(self) -> bool:
        """Whether it is worth trying to write."""
        return self.is_open and self._may_write

    def attempt(self, work: Callable[[sqlite3.Connection], Result], default: Result) -> Result:
        """The result of `work`, or `default` where the file does not allow it."""
        if self._connection is None:
            return default
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            self._handle(error)
            return default

    def change(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """The result of `work` in one transaction, or None: nothing was changed."""
        if not self.is_writable:
            return None

        def transaction(connection: sqlite3.Connection) -> Result:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            return result

        return self.attempt(transaction, None)

    def warn(self, kind: str, message: str) -> None:
        """Tell the user, once a kind."""
        if kind not in self._told:
            self._told.add(kind)
            self._on_warning(message)

    def close(self) -> None:
        """Close the connection; may be called twice."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _handle(self, error: sqlite3.Error) -> None:
        fault = _fault(error)
        if fault == "full":
            self._may_write = False
            self.warn("full", f"results are not kept: {error} ({self.path})")
        elif fault == "damaged":
            self.recover(str(error))
        elif fault == "unusable":
            self.close()
            self.warn("unusable", f"the result store cannot be used: {error} ({self.path})")

    def _open(self, *, may_recover: bool) -> None:
        try:
            _private_directory(self.path.parent)
            with _locked(self.path.parent):
                self._connect()
        except OSError as error:
            self.warn("unusable", f"the result store cannot be used: {error}")
        except sqlite3.Error as error:
            self.close()
            if may_recover and _fault(error) == "damaged":
                self.recover(str(error))
            elif _fault(error) == "full":
                self._open_for_reading(error)
            else:
                self.warn("unusable", f"the result store cannot be used: {error} ({self.path})")

    def _connect(self) -> None:
        self._inode = _inode(self.path)
        self._connection = connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None
        )
        for statement in _PRAGMAS:
            connection.execute(statement)
        connection.executescript(self._schema)
        self._inode = _inode(self.path)

    def _open_for_reading(self, error: sqlite3.Error) -> None:
        self._may_write = False
        self.warn("full", f"results are not kept: {error} ({self.path})")
        try:
            uri = self.path.absolute().as_uri()
            self._connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        except sqlite3.Error:
            self._connection = None

    @property
    def damaged_path(self) -> Path:
        """Where a damaged file goes."""
        return self.path.with_name(self.path.name + ".damaged")

    def recover(self, cause: str) -> None:
        """Move a damaged file aside, unless another process has done so already, and start anew."""
        self.close()
        aside = self.damaged_path
        try:
            with _locked(self.path.parent):
                if _inode(self.path) == self._inode:
                    self.path.replace(aside)
                    for suffix in ("-wal", "-shm"):
                        self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
                    self.warn("damaged", f"the result store was damaged ({cause}), now {aside}")
        except OSError as problem:
            self.warn("unusable", f"the result store is damaged and cannot be moved: {problem}")
            return
        self._open(may_recover=False)


def _inode(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


def _fault(error: sqlite3.Error) -> Fault:
    code = getattr(error, "sqlite_errorcode", None)
    return "unusable" if code is None else _FAULTS.get(code & _PRIMARY_CODE, "unusable")


def _private_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{directory} is not a directory of this user")
    if status.st_mode & 0o077:
        directory.chmod(0o700)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, so that two processes never create or move the file at once."""
    try:
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        # A read-only directory: nobody can create or move anything in it.
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
