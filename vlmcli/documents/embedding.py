"""Picture files as a PDF stores them: a file's own compressed bytes, else packed anew in bands.

JPEG, PNG and one-strip Group 4 are copied a piece at a time and never decoded. A TIFF of strips is
decoded some strips at a time; only what exists in full while it is decoded (WebP, GIF, BMP, AVIF,
HEIC, JPEG 2000, transparent or interlaced PNG, tiles) is held in full, and `Copying` says so before
anything is decoded.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vlmcli.documents import image_modes, strips
from vlmcli.documents.base import Copying, RenderSpec
from vlmcli.errors import PageError

if TYPE_CHECKING:
    from PIL.Image import Image

PIECE = 1 << 20
"""Most bytes that are read at a time."""
_ORIENTATION = 274
_PNG_SIGNATURE = 8
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1}
"""Numbers a pixel by the colour types without alpha: grey, RGB, palette."""
_MIRRORED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))
_WHOLE_BYTES = {"1": 1, "L": 1, "P": 1}
_SEVERAL_BYTES = 12
"""libwebp's canvases, and those of animations: the frame, the one before, and what is shown."""
_PROGRESSIVE_BYTES = 8
"""Coefficients of a progressive JPEG in four inks, two bytes each."""

_MOST_BYTES = RenderSpec(dpi=72, max_pixels=0).max_decoded_bytes

Pieces = Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """An image as a PDF stores it.

    `colours` is a colour space in PDF's own words, `parms` what else its dictionary has. `pieces`
    gives the stream's bytes, and raises where they turn out to be damaged.
    """

    width: int
    height: int
    orientation: int
    bits: int
    colours: str
    filter: str
    parms: str
    pieces: Pieces


def copying_of(image: "Image", path: Path) -> Copying:
    """What copying an opened, not yet decoded frame into a PDF takes."""
    if _kept(image, path) is not None:
        return Copying(held_bytes=PIECE, decoded_bytes=0)
    found = strips.layout(image)
    if found is not None:
        return Copying(held_bytes=found.held_bytes(image), decoded_bytes=0)
    each = _WHOLE_BYTES.get(image.mode, 4)
    if image.format == "WEBP" or getattr(image, "n_frames", 1) > 1:
        each = max(each, _SEVERAL_BYTES)
    if image.format in ("JPEG2000", "BMP", "AVIF", "HEIF"):
        # Coefficients, run lengths, or planes, as a whole beside the picture.
        each = max(each, image_modes.decoded_bytes(image) // max(1, image.width * image.height))
    if image.info.get("progressive"):
        each += _PROGRESSIVE_BYTES
    scale = _reduction(image)
    return Copying(
        held_bytes=image.width * image.height * each // scale**2 + strips.BAND_BYTES,
        decoded_bytes=image_modes.decoded_bytes(image) // scale**2,
    )


def draft(image: "Image", path: Path) -> None:
    """Have a JPEG that must be decoded, and is too large for that, decoded at a half or less."""
    scale = 1 if image.format != "JPEG" or _kept(image, path) is not None else _reduction(image)
    if scale > 1:
        image.draft(None, (image.width // scale, image.height // scale))


def _reduction(image: "Image") -> int:
    """By how much a picture is reduced while it is decoded: JPEG decoders can, up to 8."""
    scale = 1
    if image.format == "JPEG":
        while scale < 8 and image_modes.decoded_bytes(image) > _MOST_BYTES * scale**2:
            scale *= 2
    return scale


def encode(image: "Image", path: Path, orientation: int) -> Encoded:
    """How a PDF stores an opened, not yet decoded frame; decodes where that cannot be helped.

    Args:
        image: the frame.
        path: of its file.
        orientation: how it lies, where that is not a TIFF's own tag.

    Raises:
        Whatever Pillow raises on damaged files.
    """
    kept = _kept(image, path)
    if kept is not None:
        return kept(orientation)
    found = strips.layout(image)
    if found is not None:
        # Once, for its mode: what the strips unfold to is the same for all of them.
        lies = int(image.tag_v2.get(_ORIENTATION, 1))  # type: ignore[attr-defined]
        bands = partial(strips.bands, image, path, found)
        size = found.width, found.height
    else:
        lies, bands = orientation, partial(strips.cut, image)
        # A TIFF is turned as it is decoded, and has another size then.
        image.load()
        size = image.size
    mode = strips.shown_mode(image)
    return Encoded(
        width=size[0],
        height=size[1],
        orientation=lies,
        bits=1 if mode == "1" else 8,
        colours="/DeviceRGB" if mode == "RGB" else "/DeviceGray",
        filter="FlateDecode",
        parms="",
        pieces=partial(_packed, bands, size),
    )


def _packed(bands: Callable[[], Iterator["Image"]], size: tuple[int, int]) -> Iterator[bytes]:
    packer, rows = zlib.compressobj(), 0
    for band in bands():
        rows += band.height
        yield packer.compress(band.tobytes())
    if rows != size[1]:
        raise PageError(f"the picture has {rows} rows instead of {size[1]}")
    yield packer.flush()


def _kept(image: "Image", path: Path) -> Callable[[int], Encoded] | None:
    """How to copy the file's own bytes; None where they have to be packed anew."""
    if image.format in ("JPEG", "MPO") and image.mode in ("L", "RGB"):
        length = _first_length(image, path)
        return None if length is None else partial(_jpeg, image.mode, image.size, path, length)
    if image.format == "PNG" and getattr(image, "n_frames", 1) == 1:
        return _png(path)
    return _fax(image, path) if image.format == "TIFF" else None


def _first_length(image: "Image", path: Path) -> int | None:
    """Bytes of the first picture of a JPEG: cameras put previews and gain maps behind it."""
    size = path.stat().st_size
    if image.format == "JPEG":
        return size
    try:
        length = int(image.mpinfo[0xB002][0]["Size"])  # type: ignore[attr-defined]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None
    return length if 0 < length <= size else None


def _jpeg(mode: str, size: tuple[int, int], path: Path, length: int, orientation: int) -> Encoded:
    return Encoded(
        width=size[0],
        height=size[1],
        orientation=orientation,
        bits=8,
        colours="/DeviceGray" if mode == "L" else "/DeviceRGB",
        filter="DCTDecode",
        parms="",
        pieces=partial(_range, path, 0, length),
    )


def _range(path: Path, start: int, length: int) -> Iterator[bytes]:
    with path.open("rb") as stream:
        stream.seek(start)
        yield from _read(stream, length)


def _read(stream: BinaryIO, length: int) -> Iterator[bytes]:
    while length > 0:
        piece = stream.read(min(PIECE, length))
        if not piece:
            raise PageError("the picture ends early")
        length -= len(piece)
        yield piece


def _chunks(stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Name and length of each chunk of a PNG, the stream standing at its data."""
    stream.seek(_PNG_SIGNATURE)
    while len(header := stream.read(8)) == 8:
        length, name = struct.unpack(">I4s", header)
        start = stream.tell()
        yield name, length
        stream.seek(start + length + 4)


def _png(path: Path) -> Callable[[int], Encoded] | None:
    """A PNG whose rows a PDF can take as they are: neither transparent nor interlaced."""
    head, palette = b"", b""
    with path.open("rb") as stream:
        for name, length in _chunks(stream):
            if name == b"IHDR":
                head = stream.read(13)
            elif name == b"PLTE":
                palette = stream.read(min(length, 768))
            elif name == b"tRNS":
                return None
            elif name == b"IDAT":
                break
    if len(head) < 13:
        return None
    width, height, bits, kind, *_, interlaced = struct.unpack(">IIBBBBB", head)
    channels = _PNG_CHANNELS.get(kind)
    if channels is None or interlaced or (kind == 3 and not palette):
        return None
    colours = {0: "/DeviceGray", 2: "/DeviceRGB"}.get(kind) or (
        f"[/Indexed /DeviceRGB {len(palette) // 3 - 1} <{palette.hex()}>]"
    )
    row = 1 + -(-width * channels * bits // 8)
    return lambda orientation: Encoded(
        width=width,
        height=height,
        orientation=orientation,
        bits=bits,
        colours=colours,
        filter="FlateDecode",
        parms=f"/DecodeParms <</Predictor 15 /Colors {channels} /BitsPerComponent {bits} "
        f"/Columns {width}>>",
        pieces=partial(_png_rows, path, row * height),
    )


def _png_rows(path: Path, expected: int) -> Iterator[bytes]:
    """The compressed rows; unpacked on the way, a piece at a time, to see that they are sound."""
    unpacker, size = zlib.decompressobj(), 0
    with path.open("rb") as stream:
        for name, length in _chunks(stream):
            if name != b"IDAT":
                continue
            for piece in _read(stream, length):
                rest = piece
                while rest and not unpacker.eof:
                    size += len(unpacker.decompress(rest, PIECE))
                    rest = unpacker.unconsumed_tail
                yield piece
    if size < expected:
        raise PageError("the picture ends early")


def _fax(image: "Image", path: Path) -> Callable[[int], Encoded] | None:
    """A Group 4 TIFF of one strip, which a PDF takes as it is."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    offsets, counts = tags.get(273, ()), tags.get(279, ())
    is_plain = tags.get(259) == 4 and image.mode == "1" and tags.get(262, 0) in (0, 1)
    if not is_plain or len(offsets) != 1 or len(counts) != 1:
        return None
    # Compressed bits are kept as scanners send them: in some files the lowest one comes first.
    turned = tags.get(266, 1) == 2
    width, height = int(tags[256]), int(tags[257])
    black = "true" if tags.get(262, 0) else "false"
    return lambda _: Encoded(
        width=width,
        height=height,
        orientation=int(tags.get(_ORIENTATION, 1)),
        bits=1,
        colours="/DeviceGray",
        filter="CCITTFaxDecode",
        parms=f"/DecodeParms <</K -1 /Columns {width} /Rows {height} /BlackIs1 {black}>>",
        pieces=partial(_fax_pieces, path, int(offsets[0]), int(counts[0]), turned),
    )


def _fax_pieces(path: Path, start: int, length: int, turned: bool) -> Iterator[bytes]:
    for piece in _range(path, start, length):
        yield piece.translate(_MIRRORED) if turned else piece
