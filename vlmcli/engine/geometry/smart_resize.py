"""Families that resize a picture to a grid of whole merged patches within a pixel budget.

Qwen2-VL, Qwen2.5-VL, Qwen3-VL, dots.ocr, PaddleOCR-VL, GLM-4.1V and GLM-OCR. Each function equals
the size arithmetic of the family's image processor in transformers 5.24; the tests compare them.
"""

import math
from dataclasses import dataclass

from vlmcli.engine.geometry.base import ImageGeometry
from vlmcli.errors import PageError

MAX_ASPECT_RATIO = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartResizeConfig:
    """The processor settings that decide the grid. Pixel limits hold after resizing."""

    patch_size: int = 14
    merge_size: int = 2
    temporal_patch_size: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280

    @property
    def factor(self) -> int:
        """Side in pixels of the square that becomes one visual token."""
        return self.patch_size * self.merge_size


QWEN2_VL = SmartResizeConfig()
"""Class defaults of transformers, as all below; a checkpoint's preprocessor_config.json wins."""

PADDLEOCR_VL = SmartResizeConfig(
    temporal_patch_size=1, min_pixels=384 * 384, max_pixels=1536 * 1536
)

GLM4V = SmartResizeConfig(min_pixels=112 * 112, max_pixels=28 * 28 * 15_000)
"""GLM compares its limits with the pixels of `temporal_patch_size` frames, also for one picture."""


def smart_resize(
    height: int, width: int, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """(height, width) in pixels, both multiples of `factor`, near the picture's aspect ratio.

    Sides are rounded half to even, then scaled down (floor) or up (ceil) where the area leaves
    `min_pixels … max_pixels`. Where one side would vanish it keeps one `factor`, so that a strip
    may pass `max_pixels`.

    Raises:
        PageError: the sides differ by more than a factor of 200.
    """
    _check_aspect_ratio(height, width)
    rows, columns = round(height / factor), round(width / factor)
    area = rows * columns * factor * factor
    if area > max_pixels:
        scale = math.sqrt(height * width / max_pixels)
        rows = max(1, math.floor(height / scale / factor))
        columns = max(1, math.floor(width / scale / factor))
    elif area < min_pixels:
        scale = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * scale / factor)
        columns = math.ceil(width * scale / factor)
    return rows * factor, columns * factor


def qwen2_vl(width: int, height: int, config: SmartResizeConfig = QWEN2_VL) -> ImageGeometry:
    """Qwen2-VL, Qwen2.5-VL, Qwen3-VL, dots.ocr: one token per `merge_size`² patches.

    Raises:
        PageError: the sides differ by more than a factor of 200.
    """
    return _on_grid(
        smart_resize(height, width, config.factor, config.min_pixels, config.max_pixels), config
    )


def paddleocr_vl(
    width: int, height: int, config: SmartResizeConfig = PADDLEOCR_VL
) -> ImageGeometry:
    """PaddleOCR-VL: a side shorter than one token is first scaled up to it, the other in step.

    Raises:
        PageError: the sides then differ by more than a factor of 200.
    """
    assert width > 0 and height > 0, "a picture has pixels"
    if height < config.factor:
        width, height = round(width * config.factor / height), config.factor
    if width < config.factor:
        width, height = config.factor, round(height * config.factor / width)
    return qwen2_vl(width, height, config)


def glm4v(width: int, height: int, config: SmartResizeConfig = GLM4V) -> ImageGeometry:
    """GLM-4.1V, GLM-4.6V, GLM-OCR: limits count the pixels of all frames of one temporal patch.

    Raises:
        PageError: the sides differ by more than a factor of 200.
    """
    assert width > 0 and height > 0, "a picture has pixels"
    factor, frames = config.factor, config.temporal_patch_size
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        width, height = int(width * scale), int(height * scale)
    _check_aspect_ratio(height, width)
    rows, columns = round(height / factor), round(width / factor)
    volume = frames * rows * columns * factor * factor
    if volume > config.max_pixels:
        scale = math.sqrt(frames * height * width / config.max_pixels)
        rows = max(1, math.floor(height / scale / factor))
        columns = max(1, math.floor(width / scale / factor))
    elif volume < config.min_pixels:
        scale = math.sqrt(config.min_pixels / (frames * height * width))
        rows, columns = (
            math.ceil(height * scale / factor),
            math.ceil(width * scale / factor),
        )
    return _on_grid((rows * factor, columns * factor), config)


def _on_grid(size: tuple[int, int], config: SmartResizeConfig) -> ImageGeometry:
    height, width = size
    rows, columns = height // config.patch_size, width // config.patch_size
    return ImageGeometry(
        width=width,
        height=height,
        grid_thw=(1, rows, columns),
        num_patches=rows * columns,
        num_tokens=rows * columns // config.merge_size**2,
    )


def _check_aspect_ratio(height: int, width: int) -> None:
    assert height > 0 and width > 0, "a picture has pixels"
    ratio = max(height, width) / min(height, width)
    if ratio > MAX_ASPECT_RATIO:
        raise PageError(
            f"a page of {width} x {height} pixels is too narrow for this model: its sides differ "
            f"by a factor of {ratio:.0f}, more than {MAX_ASPECT_RATIO}",
            remedy="cut the page into shorter pieces",
            code="read",
        )
