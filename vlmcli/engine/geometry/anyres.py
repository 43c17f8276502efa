"""Families with a resolution list or a longest edge: LLaVA-OneVision, Pixtral, LightOnOCR.

Each equals the family's processor in transformers 5.24.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from vlmcli.engine.geometry.base import ImageGeometry, Mosaic
from vlmcli.errors import PageError

_ONEVISION_SIDES = tuple(384 * n for n in range(1, 7))
_SHRINK_ABOVE = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaOneVisionConfig:
    """One of the `pinpoints` (height, width), in tiles, and a base tile of the whole picture."""

    tile_size: int = 384
    patch_size: int = 14
    side: int = 27
    """Patches and tokens along one side of a tile, which may be a few pixels larger than they."""
    max_tiles: int = 9
    """The `N` of `anyres_max_N`: more tokens than that many tiles hold are interpolated away."""
    pinpoints: Sequence[tuple[int, int]] = tuple(product(_ONEVISION_SIDES, _ONEVISION_SIDES))


@dataclass(frozen=True, slots=True, kw_only=True)
class PixtralConfig:
    """The picture is shrunk to `longest_edge` and padded up to whole merged patches."""

    patch_size: int = 14
    merge_size: int = 2
    longest_edge: int = 1540
    align: int = 28
    """Both sides become multiples of this many pixels; `patch_size * merge_size` for Pixtral."""
    has_breaks: bool = True
    """Whether a text token ends each row, as in Pixtral; LightOnOCR has none."""


LLAVA_ONEVISION = LlavaOneVisionConfig()
PIXTRAL = PixtralConfig()
LIGHTON_OCR = PixtralConfig(align=14, has_breaks=False)


def llava_onevision(
    width: int, height: int, config: LlavaOneVisionConfig = LLAVA_ONEVISION
) -> ImageGeometry:
    """LLaVA-OneVision on one picture: a base tile of the whole, and the mosaic of its tiles."""
    mosaic = llava_onevision_mosaic(width, height, config)
    tile_rows, tile_columns = mosaic.tiles
    tiles = tile_rows * tile_columns + 1
    return ImageGeometry(
        width=tile_columns * config.tile_size,
        height=tile_rows * config.tile_size,
        grid_thw=(tiles, config.side, config.side),
        num_patches=tiles * config.side**2,
        num_tokens=mosaic.num_tokens + config.side**2,
        tiles=mosaic.tiles,
    )


def llava_onevision_mosaic(width: int, height: int, config: LlavaOneVisionConfig) -> Mosaic:
    """Tiles of one picture, tokens without its padding, and how far these are shrunk."""
    assert width > 0 and height > 0, "a picture has pixels"
    canvas_height, canvas_width = _best_pinpoint(width, height, config.pinpoints)
    tile_rows, tile_columns = (
        canvas_height // config.tile_size,
        canvas_width // config.tile_size,
    )
    tiles = tile_rows, tile_columns
    rows, columns = tile_rows * config.side, tile_columns * config.side
    # Rounding to seven digits before the floor, as the model does when it cuts the padding off.
    if width / height > columns / rows:
        rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
    ratio = math.sqrt(rows * columns / (config.max_tiles * config.side**2))
    shape = rows, columns
    if ratio > _SHRINK_ABOVE:
        shape = int(rows // ratio), int(columns // ratio)
    return Mosaic(tiles=tiles, kept=(rows, columns), shape=shape)


def pixtral(width: int, height: int, config: PixtralConfig = PIXTRAL) -> ImageGeometry:
    """Pixtral, Mistral 3, LightOnOCR: never enlarged but for the padding to whole patches.

    Raises:
        PageError: one side would vanish when the longer one is shrunk to `longest_edge`.
    """
    assert width > 0 and height > 0, "a picture has pixels"
    ratio = max(height / config.longest_edge, width / config.longest_edge)
    if ratio > 1:
        narrow = f"a page of {width} x {height} pixels is too narrow for this model"
        width, height = math.floor(width / ratio), math.floor(height / ratio)
        if not (width and height):
            raise PageError(narrow, remedy="cut the page into shorter pieces", code="read")
    rows, columns = (height - 1) // config.align + 1, (width - 1) // config.align + 1
    height, width = rows * config.align, columns * config.align
    merged = config.patch_size * config.merge_size
    grid = (1, height // config.patch_size, width // config.patch_size)
    return ImageGeometry(
        width=width,
        height=height,
        grid_thw=grid,
        num_patches=grid[1] * grid[2],
        num_tokens=(height // merged) * (width // merged),
        num_markers=height // merged if config.has_breaks else 0,
    )


def _best_pinpoint(
    width: int, height: int, pinpoints: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """(height, width) that keeps most of the picture's pixels and then wastes the fewest."""
    best, most, least = pinpoints[0], 0, math.inf
    for canvas_height, canvas_width in pinpoints:
        scale = min(canvas_width / width, canvas_height / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        wasted = canvas_width * canvas_height - kept
        if kept > most or (kept == most and wasted < least):
            best, most, least = (canvas_height, canvas_width), kept, wasted
    return best
