"""Image files too large to be decoded: refused before they are, and what would allow them."""

import math
from typing import TYPE_CHECKING

from vlmcli.documents import image_modes
from vlmcli.documents.base import PageHandle, RenderSpec
from vlmcli.errors import PageError

if TYPE_CHECKING:
    from PIL.Image import Image


def refused_bytes(image: "Image") -> int:
    """What is held against the budget before anything is asked for.

    Of a JPEG 0: how much of it is decoded depends on that.
    """
    return 0 if image.format in ("JPEG", "MPO") else image_modes.decoded_bytes(image)


def refuse(image: "Image", handle: PageHandle, spec: RenderSpec) -> None:
    """Raise before `image`, JPEG draft size set, is decoded beyond the budget.

    Raises:
        PageError: it would take more than `spec.max_decoded_bytes`.
    """
    size = image_modes.decoded_bytes(image)
    if image.info.get("progressive"):
        # libjpeg keeps all coefficients of a progressive picture, two bytes each, at any draft
        # size.
        size += int(handle.width * handle.height) * 6
    if size > spec.max_decoded_bytes:
        raise PageError(
            f"a picture of {handle.width:.0f} × {handle.height:.0f} pixels is too large to decode",
            remedy=f"raise --max-pixels to {_least_pixels(image, handle, size)}",
            code="bomb",
        )


def _least_pixels(image: "Image", handle: PageHandle, size: int) -> int:
    """The least `max_pixels` with which the picture is decoded, which took `size` with a lower one.

    With more pixels asked for, a JPEG is reduced less while it is decoded.
    """
    each = image_modes.decoded_bytes(image) / (image.width * image.height)
    rest = size - image_modes.decoded_bytes(image)
    pixels = RenderSpec.least_pixels(size)
    while image.format in ("JPEG", "MPO"):
        wanted = handle.pixel_size(72, pixels)
        ratio = min(handle.width // wanted.width, handle.height // wanted.height)
        scale = next(step for step in (8, 4, 2, 1) if step <= max(1, ratio))
        enough = RenderSpec.least_pixels(
            rest
            + math.ceil(each * math.ceil(handle.width / scale) * math.ceil(handle.height / scale))
        )
        if enough <= pixels:
            break
        pixels = enough
    return pixels
