"""Does an image file end where its own structure says? Looks at markers and lengths, decodes
nothing.

A file that ends early may still decode (some scanners leave out the end marker), so this only
raises the suspicion that `images` then tests by decoding. Knows no Pillow.
"""

import os
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

from vlmcli.documents.video_checks import boxes_end

_JPEG_START_OF_SCAN = 0xDA
_JPEG_END = b"\xff\xd9"
_JPEG_BARE = {0x01, *range(0xD0, 0xD9)}
"""Markers without a length."""

_READ = 1 << 16


def ends_early(stream: BinaryIO, kind: str, claimed_end: int = 0) -> bool:
    """Whether the file of Pillow format name `kind` is cut off, by its own structure.

    Args:
        stream: the file, seekable.
        kind: `PNG`, `JPEG`, `MPO`, `WEBP`, `GIF`, `TIFF`, `BMP`, `JPEG2000`,
            `AVIF` or `HEIF`.
        claimed_end: for TIFF, which may keep its parts anywhere: where the last of them ends.
    """
    stream.seek(0, os.SEEK_END)
    size = stream.tell()
    stream.seek(0)
    if kind == "PNG":
        return not _png_reaches_end(stream, size)
    if kind in ("JPEG", "MPO"):
        return not _jpeg_reaches_end(stream)
    if kind == "WEBP":
        header = stream.read(8)
        return len(header) < 8 or struct.unpack("<I", header[4:])[0] + 8 > size
    if kind == "GIF":
        return not _gif_reaches_end(stream)
    if kind == "BMP":
        header = stream.read(6)
        return len(header) < 6 or struct.unpack("<I", header[2:])[0] > size
    if kind in ("AVIF", "HEIF"):
        return boxes_end(stream, size) > size
    if kind == "JPEG2000":
        # No code word of the picture's data is beyond FF8F, so that the marker stands at the end.
        return not _contains(stream, _JPEG_END)
    return claimed_end > size


def claimed_end(tags: Mapping[int, Any]) -> int:
    """The place behind the last strip or tile of a TIFF frame, 0 where its tags do not say."""
    for offsets, counts in ((273, 279), (324, 325)):
        pieces = zip(tags.get(offsets, ()), tags.get(counts, ()), strict=False)
        if end := max((offset + count for offset, count in pieces), default=0):
            return int(end)
    return 0


def _png_reaches_end(stream: BinaryIO, size: int) -> bool:
    stream.seek(8)
    while len(header := stream.read(8)) == 8:
        length, name = struct.unpack(">I4s", header)
        if name == b"IEND":
            return True
        if stream.tell() + length + 4 > size:
            return False
        stream.seek(length + 4, os.SEEK_CUR)
    return False


def _jpeg_reaches_end(stream: BinaryIO) -> bool:
    """Walk the segments to the first scan, then look for an end marker behind it."""
    stream.seek(2)
    while True:
        byte = stream.read(1)
        if byte == b"":
            return False
        if byte != b"\xff":
            continue
        marker = stream.read(1)
        while marker == b"\xff":
            marker = stream.read(1)
        if marker == b"":
            return False
        if marker[0] in _JPEG_BARE or marker == b"\x00":
            continue
        if marker == _JPEG_END[1:]:
            return True
        length = stream.read(2)
        if len(length) < 2:
            return False
        if marker[0] == _JPEG_START_OF_SCAN:
            return _contains(stream, _JPEG_END)
        stream.seek(max(0, struct.unpack(">H", length)[0] - 2), os.SEEK_CUR)


def _gif_reaches_end(stream: BinaryIO) -> bool:
    """Walk the blocks to the trailer (GIF89a, sections 15 to 27)."""
    head = stream.read(13)
    if len(head) < 13:
        return False
    _skip_colours(stream, head[10])
    while True:
        kind = stream.read(1)
        if kind == b"\x3b":
            return True
        if kind == b"\x21":
            stream.read(1)
        elif kind == b"\x2c":
            descriptor = stream.read(9)
            if len(descriptor) < 9:
                return False
            _skip_colours(stream, descriptor[8])
            stream.read(1)
        else:
            return False
        while length := stream.read(1):
            if length == b"\x00":
                break
            stream.seek(length[0], os.SEEK_CUR)


def _skip_colours(stream: BinaryIO, flags: int) -> None:
    if flags & 0x80:
        stream.seek(3 << ((flags & 7) + 1), os.SEEK_CUR)


def _contains(stream: BinaryIO, wanted: bytes) -> bool:
    tail = b""
    while piece := stream.read(_READ):
        if wanted in tail + piece:
            return True
        tail = piece[-(len(wanted) - 1) :]
    return False
