"""A picture as encoder and prompt see it: views that are encoded alone, and the texts around them.

Most families see a picture as one view. Tiled ones cut it into squares, add a small view of the
whole, and write markers between them. Every view is an image of its own to the engine, named by
its own pixels: so equal tiles are encoded once, prompts are cut between any two tokens, and
budgets count tiles, without a word about tiles in the scheduler. That is exact only because no
tower here lets a view attend to another. Knows no families and no files.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vlmcli.engine.config import ModelConfig
from vlmcli.engine.geometry import ImageGeometry, Mosaic
from vlmcli.engine.preprocess import fit
from vlmcli.engine.request import ImageInput, PlaceholderRange

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the encoder takes at once.

    Args:
        pixels: uint8, (H, W, 3) RGB or (H, W) grey, of the size that is encoded.
        num_tokens: that come out of it.
        grid: (frames, rows, columns) of those tokens for M-RoPE; None for 1-D positions.
        mosaic: how tiles that lie below each other in `pixels` become one picture.
    """

    pixels: Pixels
    num_tokens: int
    grid: tuple[int, int, int] | None = None
    mosaic: Mosaic | None = None

    def image(self) -> ImageInput:
        """The view under the name of its content."""
        digest = picture_digest(self.pixels)
        if self.mosaic is not None:
            numbers = (*self.mosaic.tiles, *self.mosaic.kept, *self.mosaic.shape)
            digest = hashlib.sha256(digest + struct.pack("<6q", *numbers)).digest()
        return ImageInput(pixels=self.pixels, mm_hash=digest, mosaic=self.mosaic)


Part = View | str
"""Of a picture's place in the prompt: a view, or text that the family writes there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """A picture's stretch of a prompt; offsets count from the beginning of the prompt."""

    token_ids: list[int]
    images: tuple[ImageInput, ...]
    placeholders: tuple[PlaceholderRange, ...]


def whole(pixels: Pixels, geometry: ImageGeometry, config: ModelConfig) -> list[Part]:
    """One view of the whole picture, for families without tiles."""
    return [
        View(
            pixels=fit(pixels, geometry, config.processor),
            num_tokens=geometry.num_tokens,
            grid=config.vision.token_grid(geometry.grid_thw),
        )
    ]


def square_tiles(canvas: Pixels, size: int) -> list[Pixels]:
    """Squares of `size` pixels of a canvas that they fill, row by row."""
    height, width = canvas.shape[:2]
    assert height % size == width % size == 0, f"{size} does not divide {width} x {height}"
    return [
        np.ascontiguousarray(canvas[top : top + size, left : left + size])
        for top in range(0, height, size)
        for left in range(0, width, size)
    ]


def lay_out(
    parts: Sequence[Part],
    encode: Callable[[str], list[int]],
    *,
    image_token_id: int,
    offset: int,
) -> LaidOut:
    """Tokens and images of a picture that stands `offset` tokens behind the prompt's beginning.

    Args:
        parts: of the picture, in order.
        encode: text to token ids.
        image_token_id: what stands in the prompt for each token of a view.
        offset: tokens before the picture.
    """
    token_ids: list[int] = []
    images: list[ImageInput] = []
    placeholders: list[PlaceholderRange] = []
    for part in parts:
        if isinstance(part, str):
            token_ids += encode(part)
            continue
        images.append(part.image())
        placeholders.append(
            PlaceholderRange(offset=offset + len(token_ids), length=part.num_tokens, grid=part.grid)
        )
        token_ids += [image_token_id] * part.num_tokens
    return LaidOut(token_ids=token_ids, images=tuple(images), placeholders=tuple(placeholders))


def picture_digest(pixels: Pixels) -> bytes:
    """SHA-256 over mode, size and pixels of an RGB or grey picture: 32 bytes."""
    mode = "L" if pixels.ndim == 2 else "RGB"
    digest = hashlib.sha256(f"{mode} {pixels.shape[1]} {pixels.shape[0]}\0".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()
