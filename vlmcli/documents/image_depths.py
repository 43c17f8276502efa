"""Pictures of more than eight bits a number: which values are black and white, and 8 bits of them.

Scanners of 10, 12 and 14 bits leave the upper bits of 16 empty, and programs write a sheet's values
in whatever range they have. A picture's range is therefore looked for in all of it, once, before
any band of it is brought to 8 bits. It is one that somebody may have meant, never the least and
greatest value as such: what varies little must not be made to vary much. Gave up: deep colour, of
which Pillow keeps 8 bits.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vlmcli.documents.base import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""More than eight bits a number."""

_TAG_BITS, _TAG_PHOTOMETRIC, _TAG_FORMAT = 258, 262, 339
_WHITE_IS_ZERO = 0
_UNSIGNED = 1

_STRIP_PIXELS = 1 << 17
"""Of what is looked at a time."""

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Span:
    """The values that become 0 and 255; `black` is the greater one where zero is white."""

    black: float
    white: float


def span_of(image: "Image", parts: Callable[[], Iterable["Image"]] | None = None) -> Span:
    """The range of values of a picture in one of `DEEP_MODES`.

    From 0 to 1, or to the greatest number of as many bits as the greatest value needs, 8 at least;
    with negative values from the least to the greatest.

    Args:
        image: has the tags; decoded, unless its parts are given.
        parts: decodes the picture in bands; is called where no tag says enough.
    """
    tags: Any = getattr(image, "tag_v2", {})
    low, high = 0.0, _stated_top(image.mode, tags)
    if not high:
        bands = parts() if parts else [image]
        low, high = _extremes(part for band in bands for part in _strips(band, tags))
        if low >= 0:
            low, high = 0.0, _meant(high, is_whole=image.mode != "F")
    # Pillow turns 8-bit pictures whose zero is white, and leaves deeper ones as they are.
    is_turned = tags.get(_TAG_PHOTOMETRIC) == _WHITE_IS_ZERO
    return Span(high, low) if is_turned else Span(low, high)


def to_eight_bits(image: "Image", span: Span) -> Pixels:
    """A decoded picture in one of `DEEP_MODES`, (H, W); what is no number becomes white."""
    pixels = np.empty((image.height, image.width), np.uint8)
    table = _scaled(np.arange(1 << 16), span) if image.mode.startswith("I;16") else None
    top = 0
    for values in _strips(image, getattr(image, "tag_v2", {})):
        below = top + values.shape[0]
        pixels[top:below] = _scaled(values, span) if table is None else table[values]
        top = below
    return pixels


def _strips(image: "Image", tags: Any) -> Iterator[Numbers]:
    """The values of a decoded picture, some rows at a time."""
    # Pillow reads these as signed, and so the lighter half of them as negative.
    is_unsigned = (
        image.mode == "I"
        and _first(tags.get(_TAG_BITS)) == 32
        and _first(tags.get(_TAG_FORMAT, _UNSIGNED)) == _UNSIGNED
    )
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        values = np.asarray(image.crop((0, top, image.width, min(top + rows, image.height))))
        yield values.view(np.uint32) if is_unsigned else values


def _stated_top(mode: str, tags: Any) -> float:
    """The greatest value that the file's own numbers can have, if less than the mode's; else 0."""
    bits = _first(tags.get(_TAG_BITS))
    if mode.startswith("I;16") and isinstance(bits, int) and 8 <= bits < 16:
        return float((1 << bits) - 1)
    return 0.0


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and value else value


def _extremes(strips: Iterable[Numbers]) -> tuple[float, float]:
    """The least and the greatest number; 0 and 0 where there is none."""
    low, high = np.inf, -np.inf
    for values in strips:
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 0.0)


def _meant(high: float, *, is_whole: bool) -> float:
    """The greatest value that a program may have meant that wrote none greater than `high`."""
    # What was resampled between 0 and 1 is a little greater here and there.
    if high <= 1 or (high < 2 and not is_whole):
        return 1.0
    return float((1 << max(8, int(high).bit_length())) - 1)


def _scaled(values: Numbers, span: Span) -> Pixels:
    scale = 255.0 / ((span.white - span.black) or 1.0)
    # In double precision, so that halves are rounded alike for numbers of any size.
    levels = (values - np.float64(span.black)) * scale + 0.5
    return np.where(np.isfinite(levels), np.clip(levels, 0, 255), 255).astype(np.uint8)
