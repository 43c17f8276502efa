"""Families whose resampler leaves the same number of tokens of every picture.

Idefics2. Equals the size arithmetic of its image processor in transformers 5.24; the tests compare
them. Pictures are taken whole: cutting them into quarters is refused where settings are read.
"""

from dataclasses import dataclass

from vlmcli.engine.geometry.base import ImageGeometry


@dataclass(frozen=True, slots=True, kw_only=True)
class Idefics2Config:
    """The processor settings that decide the grid. Edges in pixels."""

    shortest_edge: int = 378
    longest_edge: int = 980
    patch_size: int = 14
    num_latents: int = 64
    """Tokens that the resampler leaves."""


IDEFICS2 = Idefics2Config()
"""Defaults of transformers' processor, and the sizes of the published model."""


def idefics2(width: int, height: int, config: Idefics2Config = IDEFICS2) -> ImageGeometry:
    """The longer side is shrunk to its limit, the other in step; then each grows to the shortest.

    Pixels at the right and lower edges that fill no patch are not seen.
    """
    assert width > 0 and height > 0, "a picture has pixels"
    ratio = width / height
    if width >= height and width > config.longest_edge:
        width, height = config.longest_edge, int(config.longest_edge / ratio)
    elif height > width and height > config.longest_edge:
        width, height = int(config.longest_edge * ratio), config.longest_edge
    width, height = max(width, config.shortest_edge), max(height, config.shortest_edge)
    rows, columns = height // config.patch_size, width // config.patch_size
    return ImageGeometry(
        width=width,
        height=height,
        grid_thw=(1, rows, columns),
        num_patches=rows * columns,
        num_tokens=config.num_latents,
    )
