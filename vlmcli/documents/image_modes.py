"""Any of Pillow's colour modes to what a viewer shows: 8-bit grey or RGB, alpha flattened on white.

Pure functions on decoded images; no files. Gave up: colour profiles (text stays as legible
without).
"""

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vlmcli.documents.base import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

_TAG_PHOTOMETRIC = 262
_WHITE_IS_ZERO = 0

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

DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""More than eight bits a number."""

_BYTES = {"1": 2, "L": 1, "P": 5, "I;16": 4, "I;16L": 4, "I;16B": 4, "I;16N": 4}
_MOST_BYTES = 8
_WEBP_BYTES = 12
"""libwebp keeps two canvases of four bytes a pixel beside the frame that it hands over."""

_WAVELET_BYTES = 5
_JPEG_2000_BYTES = {"L": 2, "I;16": 2, "RGB": 5}
_MOST_JPEG_2000_BYTES = 6
"""Times five. Measured with OpenJPEG 2.5, which keeps 32-bit coefficients beside two copies: 7, 9,
20 and (RGBA) 25 bytes a pixel of a picture in one tile."""


def decoded_bytes(image: "Image") -> int:
    """Bytes that decoding and flattening `image` takes, an upper bound, before it is decoded."""
    if image.format == "JPEG2000":
        each = held_bytes(image) * _WAVELET_BYTES
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
    if image.format in ("BMP", "WEBP"):
        return _WEBP_BYTES if image.format == "WEBP" else 4
    # A picture of one bit is decoded to a byte a pixel, and then copied.
    return {"1": 2, "L": 1}.get(image.mode, 4)


def is_recoloured(image: "Image") -> bool:
    """Whether another picture of all its pixels is made where it is wanted in colour."""
    return image.mode not in ("1", "L", "RGB") or image.has_transparency_data


def flatten(image: "Image", *, grey: bool) -> "Image":
    """A decoded image in mode `L` (if `grey`) or `RGB`, transparent parts white.

    16-bit values are scaled, not cut; 32-bit and float values are taken as 0 to 1, 0 to 255 or 0 to
    65535 where they lie within one of these, else stretched from their least to their greatest.
    """
    wanted = "L" if grey else "RGB"
    if image.mode in DEEP_MODES:
        return _from_array(_to_eight_bits(image)).convert(wanted)
    if image.mode in ("RGBa", "La"):
        image = image.convert("RGBA" if image.mode == "RGBa" else "LA")
    if image.has_transparency_data:
        return _on_white(image, wanted)
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


def _on_white(image: "Image", wanted: str) -> "Image":
    """In strips: at once, three more pictures of four bytes a pixel would stand beside this one."""
    from PIL import Image

    shown = Image.new(wanted, image.size)
    for top in range(0, image.height, _STRIP):
        strip = image.crop((0, top, image.width, min(top + _STRIP, image.height))).convert("RGBA")
        ground = Image.new("RGBA", strip.size, (255, 255, 255, 255))
        ground.alpha_composite(strip)
        shown.paste(ground.convert("RGB").convert(wanted), (0, top))
    return shown


def _from_array(pixels: Pixels) -> "Image":
    from PIL import Image

    return Image.fromarray(pixels)


def _to_eight_bits(image: "Image") -> Pixels:
    """Values of a 16-bit, 32-bit or float image brought to 0..255."""
    values = np.asarray(image)
    if image.mode.startswith("I;16"):
        # v × 255 / 65535 rounded, in steps of 257 that keep to 16 bits.
        scaled = (values // 257 + (values % 257 > 128)).astype(np.uint8)
        tags = getattr(image, "tag_v2", {})
        # Pillow turns 8-bit pictures whose zero is white, and leaves 16-bit ones as they are.
        return 255 - scaled if tags.get(_TAG_PHOTOMETRIC) == _WHITE_IS_ZERO else scaled
    return _stretch(values.astype(np.float32))


def _stretch(values: npt.NDArray[np.float32]) -> Pixels:
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(values.shape, 255, np.uint8)
    low, high = float(values[finite].min()), float(values[finite].max())
    if low < 0 or high > 65535:
        bottom, top = low, high
    else:
        bottom, top = 0.0, 1.0 if high <= 1 else 255.0 if high <= 255 else 65535.0
    scaled = (values - bottom) * (255.0 / max(top - bottom, 1e-30))
    return np.where(finite, np.clip(scaled + 0.5, 0, 255), 255).astype(np.uint8)
