"""Does a video file end where its own structure says? Looks at boxes and lengths, decodes nothing.

Knows MP4 and QuickTime, Matroska and WebM, and AVI. A file of unknown length (a recording that was
streamed) is not called cut.
"""

import os
from pathlib import Path
from typing import BinaryIO, Literal

from vlmcli.documents.heif import kind_of_head

VideoKind = Literal["mp4", "matroska", "avi"]

_EBML = b"\x1a\x45\xdf\xa3"
_SEGMENT = b"\x18\x53\x80\x67"
_MP4_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
_MOST_BOXES = 10_000


def video_kind(head: bytes) -> VideoKind | None:
    """The container that a file is, by its first bytes; None if it is no video."""
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    if head.startswith(_EBML):
        return "matroska"
    if head[4:8] in _MP4_BOXES and kind_of_head(head) is None:
        return "mp4"
    return None


def ends_early(path: Path, kind: VideoKind) -> bool:
    """Whether the file is shorter than it says."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        if kind == "mp4":
            return boxes_end(stream, size) > size
        if kind == "avi":
            # Larger AVI files go on in further RIFF chunks: the first one's length is a least one.
            return 8 + int.from_bytes(stream.read(8)[4:], "little") > size
        return _matroska_end(stream) > size


def boxes_end(stream: BinaryIO, size: int) -> int:
    """Where the last box at the top says that it ends (ISO/IEC 14496-12, 4.2).

    Args:
        stream: the file, seekable.
        size: of the file, in bytes.
    """
    end = 0
    for _ in range(_MOST_BOXES):
        stream.seek(end)
        head = stream.read(16)
        if len(head) < 8:
            return end if not head else size + 1
        length = int.from_bytes(head[:4], "big")
        if length == 1 and len(head) == 16:
            length = int.from_bytes(head[8:], "big")
        if length < 8:
            return size
        end += length
        if end >= size:
            return end
    return size


def _matroska_end(stream: BinaryIO) -> int:
    """Where the segment says that it ends; 0 where it does not say (RFC 8794, 6 and 17)."""
    stream.seek(len(_EBML))
    header = _vint(stream)
    if header is None:
        return 0
    stream.seek(header, os.SEEK_CUR)
    if stream.read(4) != _SEGMENT:
        return 0
    length = _vint(stream)
    return 0 if length is None else stream.tell() + length


def _vint(stream: BinaryIO) -> int | None:
    """A length of variable size; None where it is unknown or there is none."""
    first = stream.read(1)
    if not first or not first[0]:
        return None
    more = 8 - first[0].bit_length()
    data = bytes([first[0] ^ (0x80 >> more)]) + stream.read(more)
    value = int.from_bytes(data, "big")
    return None if value == (1 << 7 * len(data)) - 1 else value
