"""A page as a small picture in a file format that browsers know: WebP, of bounded size.

Draws straight at the size that is wanted. Fast rather than exact: for looking at, not for reading
by a model.
"""

import io
from dataclasses import dataclass

from vlmcli.documents.base import Document, RenderSpec

_QUALITY = 55
"""Of lossy WebP: letters stay sharp, paper grain goes."""
_METHOD = 2
"""Of WebP's seven efforts: twice as fast as the usual 4, for a tenth more bytes."""
_TALLEST = 2.0
"""Height over width up to which a page is as wide as asked for; longer strips are narrower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thumbnail:
    """A WebP file of `width` × `height` pixels. `faults`: what could not be drawn."""

    data: bytes
    width: int
    height: int
    faults: tuple[str, ...] = ()


def draw_thumbnail(document: Document, index: int, *, width: int) -> Thumbnail:
    """Page `index` (from 0), at most `width` pixels wide and `_TALLEST` times as high.

    Args:
        document: open.
        index: of the page.
        width: in pixels; smaller pictures stay as they are.

    Raises:
        PageError: the page cannot be loaded or drawn, or would take too much memory.
    """
    from PIL import Image

    handle = document.page(index).require()
    scale = width / max(handle.width, handle.height / _TALLEST)
    if handle.unit == "px":
        scale = min(1.0, scale)
    max_pixels = max(1, round(handle.width * scale * handle.height * scale))
    picture = document.render(index, RenderSpec(dpi=72 * scale, max_pixels=max_pixels))
    file = io.BytesIO()
    image = Image.fromarray(picture.pixels)
    image.save(file, "WEBP", quality=_QUALITY, method=_METHOD)
    return Thumbnail(
        data=file.getvalue(), width=image.width, height=image.height, faults=picture.faults
    )
