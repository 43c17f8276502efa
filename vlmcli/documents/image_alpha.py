"""Pictures with transparent parts: what they are laid on, so that what is written on them shows.

On white, as paper is, unless what can be seen is light ink that would vanish there: then on black,
for which it was made. A sheet that was cut out is light too, but fills the picture.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

WHITE, BLACK = 255, 0

_LIGHT = 160
"""Grey level, of 255, from which on ink is light: it stands out from black by far more."""
_MOST_INK = 0.5
"""Share of a picture beyond which what is seen is no ink but a sheet."""
_STRIP_PIXELS = 1 << 18


def ground_of(parts: Iterable["Image"]) -> int:
    """`WHITE` or `BLACK`: what a decoded picture with transparency is to be laid on.

    Args:
        parts: the picture, or all bands of it.
    """
    pixels, seen, light = 0, 0, 0
    for part in parts:
        for _, strip in _strips(part):
            alpha = np.asarray(strip.getchannel("A"), np.uint16)
            pixels += alpha.size
            seen += int(alpha.sum(dtype=np.int64))
            light += int((alpha * np.asarray(strip.convert("L"))).sum(dtype=np.int64))
    is_ink = 0 < seen < _MOST_INK * pixels * 255
    return BLACK if is_ink and light >= _LIGHT * seen else WHITE


def laid_on(image: "Image", ground: int, wanted: str) -> "Image":
    """A decoded picture with transparency as one in mode `wanted`, `L` or `RGB`, without.

    In strips: at once, three more pictures of four bytes a pixel would stand beside this one.
    """
    from PIL import Image

    shown = Image.new(wanted, image.size)
    for top, strip in _strips(image):
        below = Image.new("RGBA", strip.size, (ground, ground, ground, 255))
        below.alpha_composite(strip)
        shown.paste(below.convert("RGB").convert(wanted), (0, top))
    return shown


def _strips(image: "Image") -> Iterator[tuple[int, "Image"]]:
    """Some rows at a time as `RGBA`, and where they begin."""
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        if strip.mode in ("RGBa", "La"):
            strip = strip.convert("RGBA" if strip.mode == "RGBa" else "LA")
        yield top, strip.convert("RGBA")
