"""Families that cut a picture into square tiles and add a small overview of the whole.

InternVL, GOT and Qianfan-OCR, Granite-Docling, DeepSeek-OCR and Unlimited-OCR, DeepSeek-OCR-2 (the
grid whose shape is nearest the picture's), Idefics3 and SmolVLM (as many tiles as a fixed longest
edge needs). Each equals the family's image processor in transformers 5.24; DeepSeek-OCR itself is
not in transformers and follows Unlimited-OCR, its successor, with fewer tiles.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from vlmcli.engine.geometry.base import ImageGeometry

_IDEFICS3_MAX_SIDE = 4096
"""Pixels. The processor never enlarges beyond this, whatever the checkpoint's longest edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileConfig:
    """Tiles of `tile_size`² pixels on the grid that is nearest in shape."""

    tile_size: int = 448
    patch_size: int = 14
    min_tiles: int = 1
    max_tiles: int = 12
    max_side: int = 1 << 16
    """Most tiles along one side."""
    tokens_per_tile: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class GraniteDoclingConfig(TileConfig):
    """Granite-Docling's tiles; the dense rule gives wide, under-resolved pages more of them.

    `fine` selects the connector path with four times the tokens. The checkpoint's router decides it
    from pixels, so that a plan has to assume one or the other.
    """

    tile_size: int = 512
    patch_size: int = 16
    max_tiles: int = 32
    max_side: int = 16
    tokens_per_tile: int = 64
    fine: bool = False
    dense_max_tiles: int = 0
    dense_max_scale: float = 0.0
    dense_min_aspect: float = 0.0
    dense_max_aspect: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSeekOcrConfig(TileConfig):
    """Local tiles beside a padded global view of `global_size`² pixels."""

    tile_size: int = 640
    patch_size: int = 16
    min_tiles: int = 2
    max_tiles: int = 6
    tokens_per_tile: int = 100
    global_size: int = 1024
    downsample: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Idefics3Config:
    """The picture is resized, also enlarged, to `longest_edge` pixels and cut into tiles."""

    longest_edge: int = 4 * 364
    tile_size: int = 364
    patch_size: int = 14
    scale_factor: int = 2
    """Patches per token, along one side."""
    do_image_splitting: bool = True

    @property
    def tokens_per_tile(self) -> int:
        """Visual tokens of one tile."""
        return (self.tile_size // self.patch_size) ** 2 // self.scale_factor**2


INTERNVL = TileConfig()
GRANITE_DOCLING = GraniteDoclingConfig()
DEEPSEEK_OCR = DeepSeekOcrConfig()
DEEPSEEK_OCR2 = DeepSeekOcrConfig(tile_size=768, tokens_per_tile=144)
IDEFICS3 = Idefics3Config()
SMOLVLM = Idefics3Config(longest_edge=2048, tile_size=512, patch_size=16, scale_factor=4)


def internvl(width: int, height: int, config: TileConfig = INTERNVL) -> ImageGeometry:
    """InternVL 2 to 3.5, Qianfan-OCR: tiles plus a thumbnail, unless one tile is all."""
    rows, columns = _best_grid(width, height, config, config.max_tiles)
    tiles = rows * columns + (rows * columns > 1)
    return _tiled(rows, columns, tiles, config, tokens=config.tokens_per_tile, markers=2)


def granite_docling(
    width: int, height: int, config: GraniteDoclingConfig = GRANITE_DOCLING
) -> ImageGeometry:
    """Granite-Docling: as InternVL, with a marker pair per tile and a line break per row.

    Markers are counted as the template writes them; a tokenizer that merges two line breaks
    saves one of them.
    """
    rows, columns = _best_grid(width, height, config, _dense_max_tiles(width, height, config))
    is_split = rows * columns > 1
    return _tiled(
        rows,
        columns,
        rows * columns + is_split,
        config,
        tokens=config.tokens_per_tile * (4 if config.fine else 1),
        markers=2 * rows * columns + rows + (4 if is_split else 0),
    )


def deepseek_ocr(
    width: int, height: int, config: DeepSeekOcrConfig = DEEPSEEK_OCR
) -> ImageGeometry:
    """DeepSeek-OCR's dynamic mode and Unlimited-OCR: a learned break ends every row of tokens.

    `grid_thw` is that of the local tiles; the larger global view counts in `num_patches` alone.
    """
    side = math.ceil(config.global_size // config.patch_size / config.downsample)
    local = math.ceil(config.tile_size // config.patch_size / config.downsample)
    rows, columns = _local_tiles(width, height, config)
    tokens = side * (side + 1) + 1
    if rows:
        tokens += rows * local * (columns * local + 1)
    return _with_global_view(rows, columns, config, tokens)


def deepseek_ocr2(
    width: int, height: int, config: DeepSeekOcrConfig = DEEPSEEK_OCR2
) -> ImageGeometry:
    """DeepSeek-OCR-2: a fixed number of queries per view and one separator."""
    side = math.ceil(config.global_size / config.patch_size / config.downsample)
    rows, columns = _local_tiles(width, height, config)
    tokens = side * side + config.tokens_per_tile * rows * columns + 1
    return _with_global_view(rows, columns, config, tokens)


def idefics3(width: int, height: int, config: Idefics3Config = IDEFICS3) -> ImageGeometry:
    """Idefics3, SmolVLM, SmolDocling: as many tiles as the enlarged picture fills.

    Markers are counted as the template writes them: two per tile, a line break per row, and the
    overview's; a tokenizer that merges two line breaks saves one of them.
    """
    rows, columns = _idefics3_grid(width, height, config) if config.do_image_splitting else (1, 1)
    is_split = rows * columns > 1
    side = config.tile_size // config.patch_size
    tiles = rows * columns + is_split
    return ImageGeometry(
        width=columns * config.tile_size,
        height=rows * config.tile_size,
        grid_thw=(tiles, side, side),
        num_patches=tiles * side * side,
        num_tokens=tiles * config.tokens_per_tile,
        num_markers=2 * rows * columns + rows + 4 if is_split else 3,
        tiles=(rows, columns),
    )


def idefics3_resized(width: int, height: int, config: Idefics3Config) -> tuple[int, int]:
    """(width, height) of the whole picture before it is stretched to whole tiles."""
    assert width > 0 and height > 0, "a picture has pixels"
    # The same divisions in the same order as the processor: the last bit decides at tile borders.
    aspect = width / height
    is_wide = width >= height

    def other(side: int) -> int:
        return int(side / aspect) if is_wide else int(side * aspect)

    long = config.longest_edge
    short = other(long)
    short = max(short + short % 2, 1)
    if long > _IDEFICS3_MAX_SIDE:
        aspect = long / short if is_wide else short / long
        long = _IDEFICS3_MAX_SIDE
        short = max(other(long), 1)
    return (long, short) if is_wide else (short, long)


def _idefics3_grid(width: int, height: int, config: Idefics3Config) -> tuple[int, int]:
    is_wide = width >= height
    width, height = idefics3_resized(width, height, config)
    aspect = width / height
    num_long = math.ceil((width if is_wide else height) / config.tile_size)
    long = num_long * config.tile_size
    num_short = math.ceil(int(long / aspect if is_wide else long * aspect) / config.tile_size)
    return (num_short, num_long) if is_wide else (num_long, num_short)


@lru_cache(maxsize=16)
def _grids(min_tiles: int, max_tiles: int, max_side: int) -> tuple[tuple[int, int], ...]:
    """All (rows, columns), fewest tiles first, then fewest columns."""
    side = min(max_tiles, max_side)
    grids = [
        (rows, columns)
        for columns in range(1, side + 1)
        for rows in range(1, side + 1)
        if min_tiles <= rows * columns <= max_tiles
    ]
    return tuple(sorted(grids, key=lambda grid: grid[0] * grid[1]))


def _best_grid(width: int, height: int, config: TileConfig, max_tiles: int) -> tuple[int, int]:
    """(rows, columns) nearest in shape; of equally near ones the last that is half filled."""
    assert width > 0 and height > 0, "a picture has pixels"
    if max_tiles <= 1:
        return 1, 1
    aspect, area = width / height, width * height
    best, smallest = (1, 1), math.inf
    for rows, columns in _grids(config.min_tiles, max_tiles, config.max_side):
        distance = abs(aspect - columns / rows)
        is_filled = area > 0.5 * config.tile_size**2 * rows * columns
        if distance < smallest or (distance == smallest and is_filled):
            best, smallest = (rows, columns), distance
    return best


def _dense_max_tiles(width: int, height: int, config: GraniteDoclingConfig) -> int:
    """Most tiles of this page: more where it is wide and its usual grid would shrink it much."""
    aspect = width / height
    has_rule = config.dense_max_tiles and (
        config.dense_max_scale > 0 or config.dense_min_aspect > 0
    )
    too_narrow = config.dense_min_aspect > 0 and aspect <= config.dense_min_aspect
    too_wide = 0 < config.dense_max_aspect < aspect
    if not has_rule or too_narrow or too_wide:
        return config.max_tiles
    if config.dense_max_scale > 0:
        columns = _best_grid(width, height, config, config.max_tiles)[1]
        if columns * config.tile_size / width >= config.dense_max_scale:
            return config.max_tiles
    return config.dense_max_tiles


def _local_tiles(width: int, height: int, config: DeepSeekOcrConfig) -> tuple[int, int]:
    if max(width, height) <= config.tile_size:
        return 0, 0
    return _best_grid(width, height, config, config.max_tiles)


def _tiled(
    rows: int, columns: int, tiles: int, config: TileConfig, *, tokens: int, markers: int
) -> ImageGeometry:
    side = config.tile_size // config.patch_size
    return ImageGeometry(
        width=columns * config.tile_size,
        height=rows * config.tile_size,
        grid_thw=(tiles, side, side),
        num_patches=tiles * side * side,
        num_tokens=tiles * tokens,
        num_markers=markers,
        tiles=(rows, columns),
    )


def _with_global_view(
    rows: int, columns: int, config: DeepSeekOcrConfig, tokens: int
) -> ImageGeometry:
    local_side = config.tile_size // config.patch_size
    global_side = config.global_size // config.patch_size
    local = rows * columns
    return ImageGeometry(
        width=columns * config.tile_size or config.global_size,
        height=rows * config.tile_size or config.global_size,
        grid_thw=(local, local_side, local_side) if local else (1, global_side, global_side),
        num_patches=global_side**2 + local * local_side**2,
        num_tokens=tokens,
        tiles=(rows, columns) if local else (1, 1),
    )
