"""What a page looks like, in little: an exact digest, perceptual hashes, and a picture to compare.

The digest alone identifies a page. The perceptual hashes only nominate pages worth comparing: forty
invoices with different amounts share one dhash. Decides nothing. Gave up: finding cropped or turned
copies; a page upside down is a new page.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlmcli.reuse.registration import reduce

Pixels = NDArray[np.uint8]

DIGEST_BYTES = 32
_MIN_POPCOUNT, _MAX_POPCOUNT = 4, 60
"""64-bit dhash of blank pages: nearly all zeros or nearly all ones, so they all look alike."""
_MIN_INK = 0.0005
"""Share of the page that differs from its paper; below it there is nothing to compare."""
_INK_CONTRAST = 24
_COLOUR_SPREAD = 12
"""Grey levels between the channels, in a mean of 4 x 4 pixels, that make a page a coloured one."""
_HASH_SIDE = 128
_HASH_STEP = 8
_JPEG_QUALITY = 95


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A copy of a page that is small enough to keep and true enough to compare.

    `jpeg` holds the page at full resolution (JPEG, quality 95: its error is below scanner noise);
    `quarter` is grey uint8 (H // 4, W // 4), each pixel the mean of 4 x 4.
    """

    jpeg: bytes
    quarter: Pixels
    width: int
    height: int
    is_colour: bool

    @classmethod
    def from_jpeg(cls, jpeg: bytes, *, is_colour: bool) -> "Sketch":
        """A sketch from its JPEG alone.

        Raises:
            ValueError: the JPEG is damaged.
        """
        picture = _decode(jpeg, is_colour)
        luma = np.ascontiguousarray(picture if picture.ndim == 2 else picture[:, :, 0])
        height, width = luma.shape
        return cls(
            jpeg=jpeg, quarter=reduce(luma, 4), width=width, height=height, is_colour=is_colour
        )

    @property
    def nbytes(self) -> int:
        """Bytes that keeping the sketch costs."""
        return len(self.jpeg) + self.quarter.nbytes

    def decode(self) -> Pixels:
        """The page: uint8 (H, W) grey, or (H, W, 3) luma and two chroma planes if coloured.

        Raises:
            ValueError: the JPEG is damaged.
        """
        return _decode(self.jpeg, self.is_colour)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFingerprint:
    """What page workers send about a page. Small: no pixels unless a sketch is asked for.

    `dhash64` (8 bytes) and `dhash256` (32 bytes) are big-endian bits as imagehash orders them.
    `is_distinctive` is False for blank and near-uniform pages, whose hashes collide.
    """

    digest: bytes
    dhash64: bytes
    dhash256: bytes
    is_distinctive: bool
    sketch: Sketch | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that keeping the fingerprint costs."""
        return 128 + (self.sketch.nbytes if self.sketch else 0)


def exact_digest(pixels: Pixels) -> bytes:
    """SHA-256 over mode, width, height and the decoded pixels; 32 bytes.

    Args:
        pixels: uint8, (H, W) grey or (H, W, 3) RGB. Each part of the header is length-framed, so
            that no two different pictures give the same bytes to the hash.
    """
    assert pixels.dtype == np.uint8 and pixels.ndim in (2, 3), "not a decoded picture"
    mode = b"L" if pixels.ndim == 2 else b"RGB"
    height, width = pixels.shape[:2]
    hasher = hashlib.sha256()
    for part in (mode, b"%d" % width, b"%d" % height):
        hasher.update(b"%d:" % len(part) + part)
    hasher.update(b"%d:" % pixels.nbytes)
    hasher.update(np.ascontiguousarray(pixels).data)
    return hasher.digest()


def fingerprint(
    pixels: Pixels, *, digest: bytes | None = None, with_sketch: bool = True
) -> PageFingerprint:
    """The fingerprint of a decoded page.

    Args:
        pixels: uint8, (H, W) grey or (H, W, 3) RGB.
        digest: `exact_digest(pixels)` where the caller has it already.
        with_sketch: whether the page may later be compared; costs most of the time and memory.
    """
    small = reduce(pixels, 4)
    is_colour = small.ndim == 3 and _colour_spread(small) > _COLOUR_SPREAD
    quarter = _grey(small)
    dhash64, dhash256 = _dhash(quarter)
    is_distinctive = _is_distinctive(quarter, dhash64)
    sketch = None
    if with_sketch and is_distinctive:
        height, width = pixels.shape[:2]
        sketch = Sketch(
            jpeg=_encode(pixels, is_colour),
            quarter=quarter,
            width=width,
            height=height,
            is_colour=is_colour,
        )
    return PageFingerprint(
        digest=digest or exact_digest(pixels),
        dhash64=dhash64,
        dhash256=dhash256,
        is_distinctive=is_distinctive,
        sketch=sketch,
    )


def hamming(first: bytes, second: bytes) -> int:
    """Bits in which two hashes of one length differ."""
    assert len(first) == len(second)
    return (int.from_bytes(first) ^ int.from_bytes(second)).bit_count()


def _colour_spread(pixels: Pixels) -> int:
    import cv2

    red, green, blue = cv2.split(pixels)
    return max(int(cv2.absdiff(green, other).max()) for other in (red, blue))


def _dhash(quarter: Pixels) -> tuple[bytes, bytes]:
    import cv2
    import imagehash
    from PIL import Image

    # imagehash resamples with LANCZOS; from a small picture that costs a hundredth of a large one.
    side = (min(_HASH_SIDE, quarter.shape[1]), min(_HASH_SIDE, quarter.shape[0]))
    small = cv2.resize(quarter, side, interpolation=cv2.INTER_AREA)
    # Bare paper becomes one level, or its noise would decide most bits of a sparse page.
    level = np.rint((small.astype(np.float32) - _paper(small)) / _HASH_STEP)
    image = Image.fromarray((level + 128).astype(np.uint8))
    hashes = [imagehash.dhash(image, hash_size=size) for size in (8, 16)]
    return np.packbits(hashes[0].hash).tobytes(), np.packbits(hashes[1].hash).tobytes()


def _is_distinctive(quarter: Pixels, dhash64: bytes) -> bool:
    if not _MIN_POPCOUNT <= int.from_bytes(dhash64).bit_count() <= _MAX_POPCOUNT:
        return False
    ink = np.abs(quarter.astype(np.int16) - _paper(quarter)) > _INK_CONTRAST
    return bool(ink.mean() >= _MIN_INK)


def _paper(pixels: Pixels) -> int:
    """The commonest grey level."""
    return int(np.bincount(pixels.ravel(), minlength=256).argmax())


def _grey(pixels: Pixels) -> Pixels:
    import cv2

    grey = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    return np.asarray(grey, dtype=np.uint8)


def _decode(jpeg: bytes, is_colour: bool) -> Pixels:
    import cv2

    data = np.frombuffer(jpeg, dtype=np.uint8)
    flag = cv2.IMREAD_COLOR if is_colour else cv2.IMREAD_GRAYSCALE
    picture = cv2.imdecode(data, flag) if data.size else None
    if picture is None:
        raise ValueError("a page's sketch does not decode")
    if is_colour:
        picture = cv2.cvtColor(picture, cv2.COLOR_BGR2YCrCb)
    return np.asarray(picture, dtype=np.uint8)


def _encode(pixels: Pixels, is_colour: bool) -> bytes:
    import cv2

    picture = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR) if is_colour else _grey(pixels)
    is_done, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    assert is_done, "OpenCV cannot encode a JPEG"
    return bytes(data)
