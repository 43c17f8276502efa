"""Pixels to patches: resizing as the checkpoint's processor does it, padding of lines, patch order.

Numpy and Pillow; pixels stay uint8 here, normalisation happens on the device in the model. Equals
the PIL backend of transformers' image processors bit by bit. Knows no documents and no prompts.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from vlmcli.engine.config import ProcessorConfig
from vlmcli.engine.geometry import ImageGeometry

Pixels = npt.NDArray[np.uint8]
Grid = tuple[int, int, int]
WHITE = 255


def resize(pixels: Pixels, width: int, height: int, resample: int) -> Pixels:
    """A picture at exactly `width` × `height` pixels.

    Args:
        pixels: uint8, (H, W) or (H, W, 3).
        width: of the result.
        height: of the result.
        resample: Pillow's number of the filter; 3 is bicubic.
    """
    if pixels.shape[:2] == (height, width):
        return pixels
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.resize((width, height), resample=Image.Resampling(resample)))


def fit(pixels: Pixels, place: ImageGeometry, processor: ProcessorConfig) -> Pixels:
    """A picture resized as `place` says; what fills no patch at the right and below is cut off."""
    resized = resize(pixels, place.width, place.height, processor.resample)
    size = processor.geometry.patch_size
    _, rows, columns = place.grid_thw
    return resized[: rows * size, : columns * size]


def pad_line(pixels: Pixels, unit: int, fill: int = WHITE) -> Pixels:
    """A text line, (H, W) grey, padded on the right to a multiple of `unit` pixels in width."""
    missing = -pixels.shape[1] % unit
    if missing == 0:
        return pixels
    return np.pad(pixels, ((0, 0), (0, missing)), constant_values=fill)


def image_grid(pixels: Pixels, processor: ProcessorConfig) -> Grid:
    """(1, rows, columns) of patches of a picture whose size fits the grid already."""
    height, width = pixels.shape[:2]
    size = processor.geometry.patch_size
    unit = size * processor.cell_size
    assert height % unit == 0, f"height {height} is no multiple of {unit}"
    assert width % unit == 0, f"width {width} is no multiple of {unit}"
    return 1, height // size, width // size


def patchify(pixels: Pixels, patch_size: int, merge_size: int) -> Pixels:
    """Patches in the order in which the encoder merges them: cell by cell, row by row within.

    Args:
        pixels: uint8, (H, W) or (H, W, C), sides multiples of `patch_size * merge_size`.
        patch_size: side of a patch.
        merge_size: side of a merged cell, in patches.

    Returns:
        uint8 [patches, C · patch_size²], each row channel by channel; C is 1 for grey pictures.
    """
    height, width = pixels.shape[0] // patch_size, pixels.shape[1] // patch_size
    cells = pixels.reshape(
        height // merge_size,
        merge_size,
        patch_size,
        width // merge_size,
        merge_size,
        patch_size,
        -1,
    )
    return cells.transpose(0, 3, 1, 4, 6, 2, 5).reshape(height * width, -1)


def normalise(patches: Pixels, processor: ProcessorConfig) -> npt.NDArray[np.float32]:
    """`pixel_values` of transformers for patches of colour pictures, without its repeated frames.

    The engine computes the same on the device; this is the definition, for tests and others.
    """
    channels = len(processor.image_mean)
    area = processor.geometry.patch_size**2
    rescaled = (patches.astype(np.float64) * processor.rescale_factor).astype(np.float32)
    mean, std = (
        np.array(x, dtype=np.float32)[:, None] for x in (processor.image_mean, processor.image_std)
    )
    values = (rescaled.reshape(-1, channels, area) - mean) / std
    return values.reshape(-1, channels * area)


def as_channels(pixels: Pixels, channels: int) -> Pixels:
    """Grey to `channels` equal channels; pictures in colour as they are."""
    if pixels.ndim == 3:
        return pixels
    return np.repeat(pixels[:, :, None], channels, axis=2)


def pack(images: Sequence[Pixels], processor: ProcessorConfig) -> tuple[Pixels, list[Grid]]:
    """Patches of several pictures of one kind (all grey or all colour), one behind the other."""
    size, cell = processor.geometry.patch_size, processor.cell_size
    patches = [patchify(image, size, cell) for image in images]
    return np.concatenate(patches), [image_grid(image, processor) for image in images]
