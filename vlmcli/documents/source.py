"""Any input to documents: files, folders and stdin, told apart by content, never by suffix.

`iter_sources` walks the inputs lazily and raises for nothing that one input did wrong: a missing or
broken file is a `Source` like any other, and `open_document` says what ails it, so that the rest of
the job goes on. Refuses everything but PDF, PNG, JPEG, WebP, GIF and TIFF.
"""

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from vlmcli.documents.base import (
    Document,
    PageHandle,
    Picture,
    PixelSize,
    RenderSpec,
    Source,
    TextLayer,
)
from vlmcli.errors import InputError, UsageError

__all__ = [
    "Document",
    "PageHandle",
    "Picture",
    "PixelSize",
    "RenderSpec",
    "Source",
    "Spool",
    "TextLayer",
    "iter_sources",
    "open_document",
    "stdin_spool",
]

STDIN = "-"

_HEAD = 1024
"""Bytes looked at: a PDF's header may stand anywhere in them (PDF 1.7, appendix H, note 13)."""

_SUFFIXES = {".pdf", ".png", ".jpg", ".jpeg", ".webp", ".gif", ".tif", ".tiff"}
_READS = "vlmcli reads PDF, PNG, JPEG, WebP, GIF and TIFF"

_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a ZIP archive or Office file"),
    (b"\xd0\xcf\x11\xe0", "an old Office file"),
    (b"%!PS", "a PostScript file"),
    (b"AT&TFORM", "a DjVu file"),
    (b"BM", "a BMP image"),
    (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 image"),
    (b"\xff\x0a", "a JPEG XL image"),
    (b"{\\rtf", "an RTF file"),
    (b"\x1f\x8b", "a gzip archive"),
)


class Spool:
    """A private folder for inputs that are no files: made on first use, removed at the end."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._count = 0

    def store(self, stream: BinaryIO) -> Path:
        """Copy `stream` to a file that only this user can read, a piece at a time."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="vlmcli-"))
        self._count += 1
        path = self._folder / f"input-{self._count}"
        with path.open("wb") as file:
            shutil.copyfileobj(stream, file)
        return path

    def remove(self) -> None:
        """Delete the folder and what is in it."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


@contextmanager
def stdin_spool() -> Iterator[Spool]:
    """A spool for `iter_sources`, emptied when the job is over."""
    spool = Spool()
    try:
        yield spool
    finally:
        spool.remove()


def iter_sources(inputs: Sequence[str], spool: Spool | None = None) -> Iterator[Source]:
    """The documents that `inputs` name, in order, found as they are asked for.

    Folders are walked recursively in natural order (`p2` before `p10`); hidden files are skipped,
    and so are files that neither are documents by content nor claim to be by suffix. `-` is stdin;
    it and pipes are copied to `spool`, which must outlive the sources.

    Raises:
        UsageError: `-` is named twice.
    """
    if list(inputs).count(STDIN) > 1:
        raise UsageError("stdin (-) is named twice", remedy="name it once")
    for name in inputs:
        path = Path(name)
        if name == STDIN:
            assert spool is not None, "stdin needs a spool"
            yield Source(path=spool.store(sys.stdin.buffer), name=STDIN)
        elif path.is_dir():
            yield from _walk(path)
        elif spool is not None and path.is_fifo():
            with path.open("rb") as stream:
                yield Source(path=spool.store(stream), name=_shown(path))
        else:
            yield Source(path=path, name=_shown(Path(name)))


def open_document(source: Source, *, password: str | None = None, strict: bool = False) -> Document:
    """Open a document by its content.

    Raises:
        InputError: missing, empty, unreadable, not a document, damaged, or without pages; with
            `strict`, also what could only be read after repair.
        EncryptedError: a password is needed, or the given one is wrong.
    """
    head = _read_head(source)
    kind = _kind(head)
    if kind == "pdf":
        from vlmcli.documents.pdf import open_pdf

        return open_pdf(source, password=password, strict=strict)
    if kind == "image":
        from vlmcli.documents.images import open_image

        return open_image(source, strict=strict)
    raise InputError(
        f"{source.name}: not a document: {_describe(head)}", remedy=_READS, code="not-a-document"
    )


def _read_head(source: Source) -> bytes:
    """The first bytes of a regular file.

    Raises:
        InputError: there is no such file, it cannot be read, or it is empty.
    """
    try:
        mode = source.path.stat().st_mode
        if stat.S_ISDIR(mode):
            next(source.path.iterdir(), None)
            raise InputError(f"{source.name}: no documents in this folder", code="missing")
        if not stat.S_ISREG(mode):
            raise InputError(f"{source.name}: neither a file nor a folder", code="not-a-document")
        with source.path.open("rb") as file:
            head = file.read(_HEAD)
    except FileNotFoundError as error:
        raise InputError(f"{source.name}: no such file", code="missing") from error
    except OSError as error:
        cause = error.strerror or str(error)
        raise InputError(f"{source.name}: cannot be read: {cause}", code="unreadable") from error
    except ValueError as error:
        raise InputError(f"{source.name!r}: not a file name", code="missing") from error
    if not head:
        raise InputError(f"{source.name}: the file is empty", code="empty")
    return head


def _kind(head: bytes) -> Literal["pdf", "image"] | None:
    if _is_image(head):
        return "image"
    return "pdf" if b"%PDF-" in head else None


def _is_image(head: bytes) -> bool:
    return head.startswith(
        (
            b"\x89PNG\r\n\x1a\n",
            b"\xff\xd8\xff",
            b"GIF87a",
            b"GIF89a",
            b"II*\x00",
            b"MM\x00*",
            b"II+\x00",
            b"MM\x00+",
        )
    ) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def _describe(head: bytes) -> str:
    """What a file is instead, for people."""
    for magic, words in _OTHERS:
        if head.startswith(magic):
            return f"it is {words}"
    if head[4:8] == b"ftyp":
        return "it is a video, HEIC or AVIF file"
    if re.match(rb"\s*(<!doctype html|<html|<head|<body)", head, re.IGNORECASE):
        return "it is an HTML page"
    if b"\x00" not in head:
        try:
            # A multi-byte character may be cut at the end of what was read.
            head.decode("utf-8", "strict" if len(head) < _HEAD else "ignore")
        except UnicodeDecodeError:
            return "its content is of no known kind"
        return "it is a text file"
    return "its content is of no known kind"


def _walk(folder: Path) -> Iterator[Source]:
    """Documents below `folder`; the folder itself where there are none or it cannot be listed."""
    found = False
    for path in _files(folder):
        if path.is_dir() or path.suffix.lower() in _SUFFIXES or _begins_like_a_document(path):
            found = True
            yield Source(path=path, name=_shown(path))
    if not found:
        yield Source(path=folder, name=_shown(folder))


def _files(folder: Path) -> Iterator[Path]:
    """Files below `folder` in natural order; a folder that cannot be listed is yielded."""
    try:
        entries = sorted(folder.iterdir(), key=lambda path: _natural(path.name))
    except OSError:
        yield folder
        return
    for path in entries:
        if path.name.startswith("."):
            continue
        # Linked folders could lead back to where the walk came from.
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif path.is_file():
            yield path


def _begins_like_a_document(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _kind(file.read(_HEAD)) is not None
    except OSError:
        return False


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sort key: digits count as numbers, letters in any case; the name itself breaks ties."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name.casefold())
    # Numbers sort before words; as padded text they need no limit on their length.
    return [
        (0, f"{len(part.lstrip('0')):06d}{part.lstrip('0')}") if part[0].isdecimal() else (1, part)
        for part in parts
    ], name


def _shown(path: Path) -> str:
    """A path as records show it: valid Unicode, whatever bytes the name has."""
    return os.fsencode(path).decode("utf-8", "replace")
