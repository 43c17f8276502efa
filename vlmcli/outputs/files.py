"""Where bytes go: a file published whole, a file that grows line by line, or a stream.

Three ways to write with one face. Every failure of the system becomes an `OutputError` that names
the file; a reader that has closed its end of a pipe becomes `ReaderGoneError`, which is no error to
the user. Knows bytes and paths, no records.
"""

import contextlib
import errno
import hashlib
import io
import os
import select
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from vlmcli.errors import OutputError, ReaderGoneError

_CHUNK = 1 << 20
_REMEDIES = {
    errno.ENOSPC: "free some space, then run the same command with --resume",
    errno.EDQUOT: "free some of your quota, then run the same command with --resume",
    errno.EACCES: "choose another place with -o, or change the permissions",
    errno.EPERM: "choose another place with -o, or change the permissions",
    errno.EROFS: "choose another place with -o: the file system is read-only",
    errno.ENAMETOOLONG: "choose a shorter name with -o",
    errno.EEXIST: "something else created it meanwhile; add --overwrite to replace it",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_STREAM_REMEDIES = dict.fromkeys(_FULL, "choose another place with -o")
"""A stream cannot be resumed."""
_ONCE_REMEDIES = _REMEDIES | dict.fromkeys(_FULL, "free some space, then run the command again")
"""Nor can what is no output of a job with a journal."""


def remedies_for(option: str, remedies: Mapping[int, str] = _ONCE_REMEDIES) -> Mapping[int, str]:
    """The remedies for a file that another option names than `-o`."""
    return {number: text.replace("with -o", f"with {option}") for number, text in remedies.items()}


class OutputFile(Protocol):
    """Takes bytes, then is published or discarded, once. Nothing happens before the first call."""

    def write(self, data: bytes) -> None:
        """Append `data`."""

    def publish(self) -> None:
        """Make the file whole and durable under its name."""

    def discard(self) -> None:
        """Let go of what was not published. Never raises."""


@contextlib.contextmanager
def translated(
    path: str | os.PathLike[str], remedies: Mapping[int, str] = _REMEDIES
) -> Iterator[None]:
    """Turn the system's errors on `path` into `OutputError`s."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = remedies.get(error.errno or 0, "")
        raise OutputError(f"cannot write {os.fspath(path)}: {reason}", remedy=remedy) from error


class AtomicFile:
    """A file that appears under its name only when it is whole: written beside, synced, renamed.

    The temporary name is a function of the target's, so that what a killed job leaves behind is
    replaced by the next one instead of piling up. A replaced file keeps its permissions, a new one
    gets those that the umask leaves; a symbolic link stays and its target is replaced.

    Args:
        path: the file.
        resumable: whether a job writes it that `--resume` goes on with.
        option: that which names the file, for messages.
    """

    def __init__(self, path: Path, *, resumable: bool = True, option: str = "-o") -> None:
        self._path = path
        self._remedies = remedies_for(option, _REMEDIES if resumable else _ONCE_REMEDIES)
        self._target = Path(os.path.realpath(path))
        digest = hashlib.sha256(os.fsencode(self._target.name)).hexdigest()[:16]
        self._temporary = self._target.with_name(f".vlmcli-{digest}.part")
        self._stream: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        """Append to the temporary file."""
        with translated(self._path, self._remedies):
            self._open().write(data)

    def publish(self) -> None:
        """Sync and rename."""
        with translated(self._path, self._remedies):
            stream = self._open()
            stream.flush()
            _keep_permissions(stream.fileno(), self._target)
            os.fsync(stream.fileno())
            stream.close()
            self._temporary.replace(self._target)
            sync_directory(self._target.parent)

    def discard(self) -> None:
        """Remove the temporary file."""
        if self._stream is not None:
            # Closing flushes; where the disk is full that fails, and the bytes are unwanted anyway.
            with contextlib.suppress(OSError):
                self._stream.close()
            with contextlib.suppress(OSError):
                self._temporary.unlink(missing_ok=True)

    def _open(self) -> BinaryIO:
        if self._stream is None:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._temporary.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            self._stream = os.fdopen(os.open(self._temporary, flags, 0o666), "wb")
        return self._stream


class GrowingFile:
    """A file that grows under its own name by whole lines, one system call each.

    What is there already stays as long as it equals what is written: a resumed job walks over the
    lines that the killed one left and appends behind them, so the file never gets shorter than it
    must. Without `resume` an existing file is replaced (not emptied: others may have it open).

    Args:
        path: the file.
        resume: go on with the file's contents.
        overwrite: replace an existing file.
    """

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self._path = path
        self._target = Path(os.path.realpath(path))
        self._resume = resume
        self._overwrite = overwrite
        self._fd: int | None = None
        self._position = 0
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append one or more whole lines."""
        with translated(self._path):
            fd = self._open()
            if self._position < self._size:
                if os.pread(fd, len(data), self._position) == data:
                    self._position += len(data)
                    return
                self._cut(fd)
            self._append(fd, data)

    def publish(self) -> None:
        """Drop what an earlier run left behind the last line, and sync."""
        with translated(self._path):
            fd = self._open()
            self._cut(fd)
            os.fsync(fd)
            sync_directory(self._target.parent)
            self._close()

    def discard(self) -> None:
        """Keep the lines: they are whole, and `--resume` goes on behind them."""
        self._close()

    def _append(self, fd: int, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError:
            self._cut(fd)
            raise
        self._position += len(data)
        self._size = self._position

    def _cut(self, fd: int) -> None:
        os.ftruncate(fd, self._position)
        self._size = self._position

    def _open(self) -> int:
        if self._fd is None:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            if self._overwrite and not self._resume:
                self._target.unlink(missing_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._fd = os.open(self._target, flags if self._resume else flags | os.O_EXCL, 0o666)
            self._size = end_of_lines(self._fd)
            os.ftruncate(self._fd, self._size)
        return self._fd

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class StreamFile:
    """Standard output, a pipe or a device: bytes leave at once and cannot be taken back.

    Args:
        stream: where to write; or None to open `path` at the first write (a named pipe waits there
            for its reader).
        path: the stream's name in messages.
        option: that which names it, for messages.
    """

    def __init__(
        self, stream: BinaryIO | io.RawIOBase | None, path: str, *, option: str = "-o"
    ) -> None:
        self._stream = stream
        self._is_ours = stream is None
        self._path = path
        self._remedies = remedies_for(option, _STREAM_REMEDIES)

    def write(self, data: bytes) -> None:
        """Write and flush."""
        with translated(self._path, self._remedies), _quiet_reader():
            if self._stream is None:
                self._stream = open(self._path, "wb", buffering=0)  # noqa: SIM115, PTH123
            rest = memoryview(data)
            while rest:
                written = self._stream.write(rest)
                if written is None:  # a non-blocking pipe that is full
                    select.select([], [self._stream], [])
                else:
                    rest = rest[written:]
            self._stream.flush()

    def publish(self) -> None:
        """Close what was opened here."""
        self.write(b"")
        self.discard()

    def discard(self) -> None:
        """Close what was opened here."""
        if self._is_ours and self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
            self._stream = None


@contextlib.contextmanager
def _quiet_reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGoneError from error


def _keep_permissions(fd: int, replaced: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(fd, replaced.stat().st_mode & 0o777)


def end_of_lines(fd: int) -> int:
    """Offset behind the last line feed of a regular file: where a line may be appended."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _CHUNK)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def sync_directory(path: Path) -> None:
    """Make a rename durable. File systems that cannot do that are left alone."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
