"""Pictures in bands: some strips of a TIFF at a time, or a decoded picture cut into rows.

Pillow decodes all of a frame or nothing, so strips are handed to it as small TIFFs of their own.
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlmcli.documents import image_modes
from vlmcli.documents.image_depths import DEEP_MODES

if TYPE_CHECKING:
    from PIL.Image import Image

BAND_BYTES = 4 << 20
"""Of a band, decoded; a strip that is larger is a band of its own."""
_WORK_BYTES = 12
"""Bytes a pixel of a band: decoded, flattened, as the PDF has it, and its strips."""
_STRIPPED = {1, 2, 3, 4, 5, 7, 8, 32773, 32946}
"""Compressions whose strips know nothing of each other: all of TIFF 6.0 but old JPEG."""
_NONE = 1
_TAGS = (258, 259, 262, 266, 277, 284, 292, 293, 317, 320, 338, 339, 347, 530, 531, 532)
"""What a strip has to be told of its picture; how that lies is the page's matter."""
_BYTES_TAG = 347
_RATIO_TAG = 532
_SHORT, _LONG, _RATIONAL, _UNDEFINED = 3, 4, 5, 7


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a picture's strips lie: (offset, bytes) of each, and the rows that each has."""

    width: int
    height: int
    rows: int
    strips: tuple[tuple[int, int], ...]

    @property
    def together(self) -> int:
        """Strips that make a band."""
        return max(1, BAND_BYTES // (self.rows * self.width * _WORK_BYTES))

    def held_bytes(self, image: "Image") -> int:
        """Bytes that a band takes, at the most."""
        rows = min(self.height, self.rows * self.together)
        return max(BAND_BYTES, rows * self.width * _WORK_BYTES)


def layout(image: "Image") -> Layout | None:
    """The strips of a TIFF frame; None where it has none that can be decoded alone."""
    if image.format != "TIFF" or image.mode in ("I", "F"):
        return None
    tags: Any = image.tag_v2  # type: ignore[attr-defined]
    offsets, counts = tags.get(273, ()), tags.get(279, ())
    width, height = int(tags.get(256, 0)), int(tags.get(257, 0))
    if not (width and height) or tags.get(284, 1) != 1 or tags.get(259, 1) not in _STRIPPED:
        return None
    rows = max(1, min(int(tags.get(278, height)), height))
    if len(offsets) != len(counts) or len(offsets) != -(-height // rows):
        return None
    found = Layout(width, height, rows, tuple(zip(offsets, counts, strict=True)))
    return _by_rows(found, tags) if tags.get(259, 1) == _NONE else found


def _by_rows(found: Layout, tags: Any) -> Layout:
    """Uncompressed strips cut smaller: some programs put a whole picture into one."""
    bits = tags.get(258, (1,))
    row = -(-found.width * sum(bits[:1] * int(tags.get(277, 1))) // 8)
    whole = [min(found.rows, found.height - at) for at in range(0, found.height, found.rows)]
    is_plain = all(
        count == rows * row for (_, count), rows in zip(found.strips, whole, strict=True)
    )
    if not is_plain or len(found.strips) != 1:
        return found
    (start, _) = found.strips[0]
    rows = max(1, min(found.height, BAND_BYTES // (found.width * _WORK_BYTES)))
    starts = range(0, found.height, rows)
    pieces = ((start + at * row, min(rows, found.height - at) * row) for at in starts)
    return Layout(found.width, found.height, rows, tuple(pieces))


def shown_mode(image: "Image") -> str:
    """The mode in which a picture is shown in as few bits as it needs: `1`, `L` or `RGB`."""
    if image.mode == "1" and not image.has_transparency_data:
        return "1"
    grey = image.mode in ("1", "L", "LA", "La") or image.mode in DEEP_MODES
    return "L" if grey else "RGB"


def cut(image: "Image") -> Iterator["Image"]:
    """A decoded picture in bands, flattened."""
    tones = image_modes.tones_of(image)
    rows = max(1, BAND_BYTES // (image.width * _WORK_BYTES))
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        yield _flattened(band, image, tones)


def bands(image: "Image", path: Path, found: Layout) -> Iterator["Image"]:
    """A TIFF frame of strips in bands, flattened and as it is stored: not turned.

    They are decoded twice where all of them say what is black, or what shows.
    """
    parts = partial(_decoded, image, path, found)
    tones = image_modes.tones_of(image, parts)
    for band in parts():
        yield _flattened(band, image, tones)


def _flattened(band: "Image", image: "Image", tones: image_modes.Tones) -> "Image":
    """A decoded band as a viewer shows it, in as few bits as it needs."""
    mode = shown_mode(image)
    return band if mode == "1" else image_modes.flatten(band, tones, grey=mode == "L")


def _decoded(image: "Image", path: Path, found: Layout) -> Iterator["Image"]:
    from PIL import Image as pillow

    tags: Any = image.tag_v2  # type: ignore[attr-defined]
    step = found.together
    with path.open("rb") as stream:
        for first in range(0, len(found.strips), step):
            top = first * found.rows
            height = min(step * found.rows, found.height - top)
            pieces = []
            for offset, count in found.strips[first : first + step]:
                stream.seek(offset)
                pieces.append(stream.read(count))
            small = io.BytesIO(_tiff(tags, found.width, height, found.rows, pieces))
            del pieces
            with pillow.open(small, formats=("TIFF",)) as band:
                band.load()
                yield band


def _tiff(tags: Any, width: int, height: int, rows: int, pieces: list[bytes]) -> bytes:
    """A TIFF of some strips, told what they have to be told."""
    order = "<" if bytes(tags.prefix) == b"II" else ">"
    entries = {tag: _values(tag, tags[tag]) for tag in _TAGS if tag in tags}
    entries |= {256: [width], 257: [height], 278: [rows]}
    entries |= {273: [0] * len(pieces), 279: [len(piece) for piece in pieces]}
    end = 8 + 2 + 12 * len(entries) + 4
    sizes = {tag: len(_value(order, tag, values)) for tag, values in entries.items()}
    start = end + sum(size + size % 2 for size in sizes.values() if size > 4)
    for index, piece in enumerate(pieces):
        entries[273][index] = start
        start += len(piece)
    head = bytes(tags.prefix) + struct.pack(f"{order}HIH", 42, 8, len(entries))
    extra = b""
    for tag in sorted(entries):
        value = _value(order, tag, entries[tag])
        kind, count = _kind(tag), len(entries[tag])
        if len(value) > 4:
            place = struct.pack(f"{order}I", end + len(extra))
            extra += value + b"\0" * (len(value) % 2)
            value = place
        head += struct.pack(f"{order}HHI", tag, kind, count) + value.ljust(4, b"\0")
    return b"".join([head, bytes(4), extra, *pieces])


def _values(tag: int, value: Any) -> list[Any]:
    if tag == _BYTES_TAG:
        return list(value if isinstance(value, bytes) else value[0])
    return list(value) if isinstance(value, tuple) else [value]


def _kind(tag: int) -> int:
    if tag == _RATIO_TAG:
        return _RATIONAL
    if tag == _BYTES_TAG:
        return _UNDEFINED
    return _LONG if tag in (256, 257, 273, 278, 279, 292, 293) else _SHORT


def _value(order: str, tag: int, values: list[Any]) -> bytes:
    if tag == _BYTES_TAG:
        return bytes(values)
    if tag == _RATIO_TAG:
        pairs = (part for value in values for part in (round(float(value) * 1000), 1000))
        return struct.pack(f"{order}{2 * len(values)}I", *pairs)
    return struct.pack(f"{order}{len(values)}{'I' if _kind(tag) == _LONG else 'H'}", *values)
