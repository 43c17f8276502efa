"""The journal: every finished page of a job, on disk as soon as it is finished, in any order.

One header line that says what the job is, then one line a page record, each written whole by one
system call. A line that a crash cut short is ignored and dropped. Of an earlier run's records it
keeps an index in memory and reads them back from the file when asked for; of this run's nothing, so
that a job may have any number of pages. Gives up the last moments before a power
failure (it syncs at most every `SYNC_SECONDS`); a killed process loses nothing that was appended.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from vlmcli.errors import OutputError
from vlmcli.options import OcrOptions
from vlmcli.outputs import lock
from vlmcli.outputs.base import encode
from vlmcli.outputs.files import translated
from vlmcli.results import PageRecord
from vlmcli.version import SCHEMA_VERSION

SYNC_SECONDS = 0.2

_MAGIC = "vlmcli"
_CHUNK = 1 << 20
RESULT_OPTIONS = (
    "question",
    "engine",
    "task",
    "answer_schema",
    "pages",
    "dpi",
    "max_pixels",
    "frame_interval",
    "device",
    "dtype",
    "kv_dtype",
    "vision_kv_dtype",
    "quantize",
    "text_layer",
    "reuse",
    "max_tokens",
    "strict",
    "server_prompt",
    "server_image",
)
"""Options that can change what a page says. Others (jobs, drafts, patience) may differ on resuming,
as they must: a page that timed out wants another try with more time."""

Key = tuple[str, int]
"""A page: document's name as in the records, page number from 1."""


def job_fingerprint(
    options: OcrOptions, sources: Sequence[tuple[str, Path]], *, model: str | None
) -> dict[str, str]:
    """What decides a job's records, by name: what must be equal for a journal to be resumed.

    Documents are recognised by name, size and time of change; standard input by its content.

    Args:
        options: the job's options.
        sources: name and path of every document, in the job's order.
        model: name and revision of the model, or None where the job needs none.
    """
    digest = hashlib.sha256()
    for name, path in sources:
        digest.update(encode(f"{name!r} {_mark(name, path)}\n"))
    names = {field.name for field in fields(OcrOptions)}
    assert names.issuperset(RESULT_OPTIONS)
    wanted = {"--" + name.replace("_", "-"): str(getattr(options, name)) for name in RESULT_OPTIONS}
    return {"model": str(model), "input documents": digest.hexdigest()[:32], **wanted}


def _mark(name: str, path: Path) -> str:
    """What tells a document's versions apart; a document that is not there has a mark as well."""
    try:
        if name == "-":
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        info = path.stat()
    except OSError:
        return "unreadable"
    return f"{info.st_size} {info.st_mtime_ns}"


class _DoneRecords(Mapping[Key, PageRecord]):
    """The finished pages of earlier runs, read from the journal's file one at a time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._places: dict[Key, tuple[int, int]] = {}
        self._names: dict[str, str] = {}

    def __getitem__(self, key: Key) -> PageRecord:
        offset, length = self._places[key]
        return PageRecord.from_dict(json.loads(os.pread(self._fd, length, offset)))

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[Key]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def note(self, record: PageRecord, offset: int, length: int) -> None:
        """Remember where a record stands. The last one of a page counts."""
        name = self._names.setdefault(record.document, record.document)
        self._places[name, record.page] = (offset, length)


class Journal:
    """An open journal, locked against other processes. Made by `open`; not thread-safe."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._end = 0
        self._has_own_records = False
        self._synced = time.monotonic()
        self._done = _DoneRecords(fd)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        fingerprint: Mapping[str, str],
        resume: bool,
        overwrite: bool = False,
    ) -> "Journal":
        """Open the journal at `path`, creating it and its directory where missing.

        Args:
            path: the file; `OutputPlan.journal_path`.
            fingerprint: what the job is; see `job_fingerprint`.
            resume: take over the records of an earlier run of the same job.
            overwrite: start over where there is nothing that can be resumed.

        Raises:
            OutputError: another process holds the journal; it belongs to a different job; the file
                is no journal; or it cannot be written.
        """
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = _open_locked(path)
        journal = cls(path, fd)
        try:
            with translated(path):
                if resume:
                    journal._load(dict(fingerprint), overwrite)
                if not journal._end:
                    journal._start(dict(fingerprint))
        except BaseException:
            if not os.fstat(fd).st_size:
                path.unlink(missing_ok=True)
            os.close(fd)
            raise
        return journal

    @property
    def done(self) -> Mapping[Key, PageRecord]:
        """The pages that earlier runs have finished, by (document, page).

        Each look-up reads the record from disk. Usable until the journal is closed.
        """
        return self._done

    def append(self, record: PageRecord) -> None:
        """Note a finished page. When this returns, killing the process cannot lose it.

        Raises:
            OutputError: the journal cannot be written.
        """
        line = encode(record.to_json() + "\n")
        with translated(self._path):
            self._write(line)
            self._has_own_records = True
            if time.monotonic() - self._synced >= SYNC_SECONDS:
                self.flush()

    def flush(self) -> None:
        """Force everything to the disk itself."""
        with translated(self._path):
            os.fsync(self._fd)
            self._synced = time.monotonic()

    def close(self) -> None:
        """Leave the journal for a later run; without records there is nothing to leave.

        Never raises, may be called again.
        """
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.fsync(self._fd)
            if not self._done and not self._has_own_records:
                self._path.unlink(missing_ok=True)
            self._release()

    def remove(self) -> None:
        """The job is complete and its outputs are published: nothing to resume any more."""
        assert self._fd >= 0
        with translated(self._path):
            self._path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        os.close(self._fd)
        self._fd = -1

    def _start(self, fingerprint: dict[str, str]) -> None:
        os.ftruncate(self._fd, 0)
        header = {"journal": _MAGIC, "schema": SCHEMA_VERSION, "fingerprint": fingerprint}
        self._write(encode(json.dumps(header) + "\n"))

    def _write(self, line: bytes) -> None:
        """Append a whole line or nothing."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        self._end = os.fstat(self._fd).st_size

    def _load(self, fingerprint: dict[str, str], overwrite: bool) -> None:
        """Index the records of an earlier run and drop what stands behind the last good line.

        Leaves the journal empty where there is no header yet, or one that may be overwritten.
        """
        lines = _lines(self._fd)
        first = next(lines, None)
        if first is None:
            return
        reason, remedy = _objection(first[1], fingerprint, self._path)
        if reason:
            if not overwrite:
                raise OutputError(reason, remedy=remedy)
            return
        self._end = len(first[1])
        for offset, line in lines:
            record = _decode(line)
            if record is None:
                break
            self._done.note(record, offset, len(line))
            self._end = offset + len(line)
        os.ftruncate(self._fd, self._end)


def _open_locked(path: Path) -> int:
    """The file's descriptor with the lock on it, sure to be the file that has the name now."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            lock.take(fd, path)
        except (OutputError, OSError):
            os.close(fd)
            raise
        # Its last owner may have removed the file between our opening and our locking it.
        if os.path.exists(path) and os.path.samestat(os.fstat(fd), os.stat(path)):  # noqa: PTH110, PTH116
            return fd
        os.close(fd)


def _objection(line: bytes, fingerprint: dict[str, str], path: Path) -> tuple[str, str]:
    """Why the journal with this header cannot be resumed, and what to do; empty where it can."""
    try:
        header: Any = json.loads(line)
        is_ours = header["journal"] == _MAGIC and isinstance(header["fingerprint"], dict)
    except (ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        return f"not a journal of vlmcli: {path}", "move the file away, or add --overwrite"
    if header.get("schema") != SCHEMA_VERSION:
        return f"{path} was written by another version of vlmcli", "add --overwrite to start over"
    theirs = header["fingerprint"]
    names = dict.fromkeys((*fingerprint, *theirs))
    changed = [name for name in names if theirs.get(name) != fingerprint.get(name)]
    if not changed:
        return "", ""
    return (
        f"cannot resume, the job is not the same: {', '.join(changed)} changed",
        "repeat the first command with --resume, or add --overwrite to start over",
    )


def _decode(line: bytes) -> PageRecord | None:
    """A record line, or None for anything else: what a power failure may leave."""
    try:
        return PageRecord.from_dict(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _lines(fd: int) -> Iterator[tuple[int, bytes]]:
    """The whole lines of a file with their offsets, without a last one that lacks its line feed."""
    offset = 0
    rest = b""
    while chunk := os.pread(fd, _CHUNK, offset + len(rest)):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield offset, line + b"\n"
            offset += len(line) + 1
