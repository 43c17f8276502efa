"""Any of Pillow's colour modes to what a viewer shows: 8-bit grey or RGB, without transparency.

Pure functions on decoded images; no files. Gave up: colour profiles (text stays as legible
without).
"""

import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vlmcli.documents import image_alpha
from vlmcli.documents.base import Pixels
from vlmcli.documents.image_depths import DEEP_MODES, Span, span_of, to_eight_bits

if TYPE_CHECKING:
    from PIL.Image import Image

_STRIP = 256
"""Rows."""

PILLOW_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    ZeroDivisionError,
    RuntimeError,
    MemoryError,
    struct.error,
    zlib.error,
)
"""What Pillow 13 raises on damaged files: it depends on the format and on the damage."""

_BYTES = {"1": 2, "L": 1, "P": 5, "I;16": 4, "I;16L": 4, "I;16B": 4, "I;16N": 4}
_MOST_BYTES = 8
_WEBP_BYTES = 12
"""libwebp keeps two canvases of four bytes a pixel beside the frame that it hands over."""

_HEIF_FORMATS = ("AVIF", "HEIF")
_HEIF_BYTES = 16
"""Planes of up to 12 bits, what is made of them, and its copy in Pillow. Measured with libavif 1.4
and libheif 1.23: grey 3 to 10, colour 7 to 13, and 15 with planes of full size in 10 bits."""

_WAVELET_BYTES = 5
_JPEG_2000_BYTES = {"L": 2, "I;16": 2, "RGB": 5}
_MOST_JPEG_2000_BYTES = 6
"""Times five. Measured with OpenJPEG 2.5, which keeps 32-bit coefficients beside two copies: 7, 9,
20 and (RGBA) 25 bytes a pixel of a picture in one tile."""


def decoded_bytes(image: "Image") -> int:
    """Bytes that decoding and flattening `image` takes, an upper bound, before it is decoded."""
    if image.format == "JPEG2000":
        each = held_bytes(image) * _WAVELET_BYTES
    elif image.format in _HEIF_FORMATS:
        each = _HEIF_BYTES
    elif image.format == "BMP":
        each = _MOST_BYTES  # Pillow unpacks run lengths into a text of their own.
    else:
        each = _WEBP_BYTES if image.format == "WEBP" else _BYTES.get(image.mode, _MOST_BYTES)
    return image.width * image.height * each


def held_bytes(image: "Image") -> int:
    """Bytes a pixel of `image` while it is decoded and made grey, as they usually are.

    Of JPEG 2000 a fifth of what decoding takes, as for those in PDFs.
    """
    if image.format == "JPEG2000":
        return _JPEG_2000_BYTES.get(image.mode, _MOST_JPEG_2000_BYTES)
    if image.format in _HEIF_FORMATS:
        return _HEIF_BYTES
    if image.format in ("BMP", "WEBP"):
        return _WEBP_BYTES if image.format == "WEBP" else 4
    # A picture of one bit is decoded to a byte a pixel, and then copied.
    return {"1": 2, "L": 1}.get(image.mode, 4)


def is_recoloured(image: "Image") -> bool:
    """Whether another picture of all its pixels is made where it is wanted in colour."""
    return image.mode not in ("1", "L", "RGB") or image.has_transparency_data


@dataclass(frozen=True, slots=True)
class Tones:
    """What of a picture depends on all of it: the values that are black and white in one of more
    than eight bits, and what transparent parts are laid on."""

    span: Span | None = None
    ground: int = image_alpha.WHITE


def tones_of(image: "Image", parts: Callable[[], Iterable["Image"]] | None = None) -> Tones:
    """How a picture is to be flattened.

    Args:
        image: decoded, unless its parts are given.
        parts: decodes the picture in bands; is called where something has to be looked for.
    """
    if image.mode in DEEP_MODES:
        return Tones(span=span_of(image, parts))
    if image.has_transparency_data:
        return Tones(ground=image_alpha.ground_of(parts() if parts else [image]))
    return Tones()


def flatten(image: "Image", tones: Tones, *, grey: bool) -> "Image":
    """A decoded image, or a band of it, in mode `L` (if `grey`) or `RGB`; `tones` are the image's.

    What has more than eight bits is scaled, not cut; see `image_depths` and `image_alpha`.
    """
    wanted = "L" if grey else "RGB"
    if tones.span is not None:
        return _from_array(to_eight_bits(image, tones.span)).convert(wanted)
    if image.has_transparency_data:
        return image_alpha.laid_on(image, tones.ground, wanted)
    if image.mode == wanted:
        return image
    if image.mode == "LAB" and grey:
        return image.getchannel(0)
    return image.convert(wanted)


def to_pixels(image: "Image") -> Pixels:
    """An image in mode `L` or `RGB` as an array, (H, W) or (H, W, 3), that owns its memory.

    In strips: at once, Pillow would hold every pixel twice more on the way.
    """
    shape = (image.height, image.width)
    pixels = np.empty(shape if image.mode == "L" else (*shape, 3), np.uint8)
    for top in range(0, image.height, _STRIP):
        strip = image.crop((0, top, image.width, min(top + _STRIP, image.height)))
        pixels[top : top + _STRIP] = np.asarray(strip)
    return pixels


def turn(pixels: Pixels, orientation: int) -> Pixels:
    """`pixels` as they are to be viewed, by the EXIF orientation 1 to 8; others count as 1.

    Source: EXIF 2.32, tag 274: where row 0 and column 0 of the stored picture lie when viewed.
    """
    if orientation in (5, 6, 7, 8):
        pixels = np.swapaxes(pixels, 0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _from_array(pixels: Pixels) -> "Image":
    from PIL import Image

    return Image.fromarray(pixels)
