"""Any input to documents: files, folders and stdin, told apart by content, never by suffix.

`iter_sources` walks the inputs lazily and raises for nothing that one input did wrong: a missing or
broken file is a `Source` like any other, and `open_document` says what ails it, so that the rest of
the job goes on. Refuses everything but PDF, PNG, JPEG, JPEG 2000, WebP, GIF, TIFF, BMP, AVIF, HEIC,
and videos in MP4, QuickTime, Matroska, WebM and AVI.
"""

import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, Self

from vlmcli.documents import heif
from vlmcli.documents.base import (
    Document,
    PageHandle,
    Picture,
    PixelSize,
    RenderSpec,
    Source,
    TextLayer,
)
from vlmcli.documents.video_checks import video_kind
from vlmcli.errors import InputError, UsageError
from vlmcli.options import DEFAULT_FRAME_INTERVAL
from vlmcli.paths import mode_of, name_of

__all__ = [
    "Document",
    "PageHandle",
    "Picture",
    "PixelSize",
    "RenderSpec",
    "Source",
    "Sources",
    "TextLayer",
    "iter_sources",
    "open_document",
]

STDIN = "-"

Kind = Literal["pdf", "image", "video"]
_HEAD = 1024
"""Bytes looked at: a PDF's header may stand anywhere in them (PDF 1.7, appendix H, note 13)."""

_SUFFIXES = {
    *(".pdf", ".png", ".jpg", ".jpeg", ".webp", ".gif", ".tif", ".tiff"),
    *(".bmp", ".jp2", ".j2k", ".jpx"),
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi"),
}
_READS = (
    "vlmcli reads PDF, PNG, JPEG, JPEG 2000, WebP, GIF, TIFF, BMP, AVIF, HEIC, "
    "MP4, MKV, WebM and AVI"
)
_JPEG_2000 = (b"\x00\x00\x00\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")
"""As a file with boxes, and bare."""
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
"""Sizes in bytes of the headers that BMP files had over the years."""

_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a ZIP archive or Office file"),
    (b"\xd0\xcf\x11\xe0", "an old Office file"),
    (b"%!PS", "a PostScript file"),
    (b"AT&TFORM", "a DjVu file"),
    (b"\xff\x0a", "a JPEG XL image"),
    (b"{\\rtf", "an RTF file"),
    (b"\x1f\x8b", "a gzip archive"),
)


_ARTICLES = {"AVIF": "an AVIF", "HEIC": "a HEIC"}

_HTML, _TEXT = _TEXTS = ("it is an HTML page", "it is a text file")


class Sources(Iterator[Source]):
    """The documents that inputs name, found as they are asked for.

    Inputs that are no files (stdin, pipes) are copied to a private folder, which `close` removes:
    close it when the job is over, not when the iteration is.

    Args:
        inputs: as the user named them.
        on_left_out: is told once, after the last document, if files in folders were left out that
            may be documents.
    """

    def __init__(
        self, inputs: Sequence[str], on_left_out: Callable[[str], None] = lambda text: None
    ) -> None:
        self._left_out = _LeftOut()
        self._on_left_out = on_left_out
        self._spool: tempfile.TemporaryDirectory[str] | None = None
        self._found = self._find(inputs)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Source:
        return next(self._found)

    def close(self) -> None:
        """Delete what was copied; closing twice is fine."""
        self._found.close()
        if self._spool is not None:
            self._spool.cleanup()
            self._spool = None

    def _find(self, inputs: Sequence[str]) -> Generator[Source]:
        for number, name in enumerate(inputs):
            path = Path(name)
            if name == STDIN:
                yield Source(path=self._copy(_stdin(), number), name=STDIN)
            elif stat.S_ISDIR(mode := mode_of(path)):
                yield from _walk(path, self._left_out)
            elif stat.S_ISFIFO(mode):
                with path.open("rb") as stream:
                    yield Source(path=self._copy(stream, number), name=name_of(name))
            else:
                yield Source(path=path, name=name_of(name))
        if self._left_out.count:
            self._on_left_out(str(self._left_out))

    def _copy(self, stream: BinaryIO, number: int) -> Path:
        """`stream` in a file that only this user can read, copied a piece at a time."""
        if self._spool is None:
            self._spool = tempfile.TemporaryDirectory(prefix="vlmcli-", ignore_cleanup_errors=True)
        path = Path(self._spool.name) / f"input-{number}"
        try:
            with path.open("wb") as file:
                shutil.copyfileobj(stream, file)
        except OSError as error:
            raise InputError(
                f"stdin cannot be copied to {self._spool.name}: {error.strerror}",
                remedy="set TMPDIR to a folder with room",
            ) from error
        return path


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("stdin (-) is closed", code="missing")
    return sys.stdin.buffer


def iter_sources(
    inputs: Sequence[str], *, on_left_out: Callable[[str], None] = lambda text: None
) -> Sources:
    """The documents that `inputs` name, in order, found as they are asked for.

    Folders are walked recursively in natural order (`p2` before `p10`); hidden files are skipped,
    and so are files that neither are documents by content nor claim to be by suffix. `-` is stdin.

    Args:
        inputs: as the user named them.
        on_left_out: is told once, after the last document, how many files in folders were skipped
            that are neither hidden nor text.

    Raises:
        UsageError: `-` is named twice.
    """
    if list(inputs).count(STDIN) > 1:
        raise UsageError("stdin (-) is named twice", remedy="name it once")
    return Sources(inputs, on_left_out)


def open_document(
    source: Source,
    *,
    password: str | None = None,
    strict: bool = False,
    frame_interval: float = DEFAULT_FRAME_INTERVAL,
) -> Document:
    """Open a document by its content.

    Args:
        source: the file.
        password: opens encrypted PDFs.
        strict: whether damaged files are refused.
        frame_interval: seconds between the frames of a video that are pages.

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
    container = video_kind(head)
    if container is not None:
        from vlmcli.documents.video import open_video

        return open_video(source, container, strict=strict, frame_interval=frame_interval)
    still = heif.kind_of_head(head)
    raise InputError(
        f"{source.name}: not a document: {_describe(head)}",
        remedy=_READS if still is None else heif.remedy(still),
        code="not-a-document",
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


def kind_of(path: Path) -> Kind | None:
    """What a file is by its first bytes; None if it is no document.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return _kind(file.read(_HEAD))


def _kind(head: bytes) -> Kind | None:
    still = heif.kind_of_head(head)
    if _is_image(head) or (still is not None and heif.is_readable(still)):
        return "image"
    if video_kind(head) is not None:
        return "video"
    return "pdf" if b"%PDF-" in head else None


def _is_image(head: bytes) -> bool:
    return (
        head.startswith(
            (
                b"\x89PNG\r\n\x1a\n",
                b"\xff\xd8\xff",
                b"GIF87a",
                b"GIF89a",
                b"II*\x00",
                b"MM\x00*",
                b"II+\x00",
                b"MM\x00+",
                *_JPEG_2000,
            )
        )
        or (
            (head[:4] == b"RIFF" and head[8:12] == b"WEBP")
            # Two letters alone begin many a text: the size of one of the known headers follows.
            or (head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADERS)
        )
    )


def _describe(head: bytes) -> str:
    """What a file is instead, for people."""
    for magic, words in _OTHERS:
        if head.startswith(magic):
            return f"it is {words}"
    if (still := heif.kind_of_head(head)) is not None:
        return f"it is {_ARTICLES[still]} image, and nothing is installed that decodes these"
    if re.match(rb"\s*(<!doctype html|<html|<head|<body)", head, re.IGNORECASE):
        return _HTML
    return _TEXT if _is_text(head) else "its content is of no known kind"


def _is_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # The last character may be cut where the reading stopped.
        return error.start > _HEAD - 4
    return b"\x00" not in head


class _LeftOut:
    """Files in folders that were skipped though somebody may want them read: no texts."""

    def __init__(self) -> None:
        self.count = 0
        self._first = ""

    def add(self, path: Path, head: bytes) -> None:
        """A file that is no document, by its first bytes."""
        what = _describe(head)
        if head and what not in _TEXTS:
            self.count += 1
            still = heif.kind_of_head(head)
            what = what if still is None else f"{what}: {heif.remedy(still)}"
            self._first = self._first or f"{name_of(path)} ({what})"

    def __str__(self) -> str:
        if self.count == 1:
            return f"left out a file of a kind that vlmcli does not read: {self._first}"
        return (
            f"left out {self.count} files of kinds that vlmcli does not read, "
            f"the first of them {self._first}"
        )


def _walk(folder: Path, left_out: _LeftOut) -> Iterator[Source]:
    """Documents below `folder`; the folder itself where there are none or it cannot be listed."""
    found, known = False, _SUFFIXES | heif.suffixes()
    for path in _files(folder):
        if path.is_dir() or path.suffix.lower() in known or _is_document(path, left_out):
            found = True
            yield Source(path=path, name=name_of(path))
    if not found:
        yield Source(path=folder, name=name_of(folder))


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
        elif path.is_file() or (path.is_symlink() and not path.exists()):
            # A link that leads nowhere is a document that is missing, if it is named like one.
            yield path


def _is_document(path: Path, left_out: _LeftOut) -> bool:
    """Whether a file begins like a document; it is left out if not."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    if _kind(head) is not None:
        return True
    left_out.add(path, head)
    return False


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sort key: digits count as numbers, letters in any case; the name itself breaks ties."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name.casefold())
    # Numbers sort before words; as padded text they need no limit on their length.
    return [
        (0, f"{len(part.lstrip('0')):06d}{part.lstrip('0')}") if part[0].isdecimal() else (1, part)
        for part in parts
    ], name
