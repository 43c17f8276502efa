"""What every family's geometry function returns.

Integers alone: no pixels are read or resized here, and torch is never imported.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageGeometry:
    """How one picture becomes patches and prompt positions. Sizes in pixels."""

    width: int
    height: int
    """Size that the picture is resized to: of the whole canvas where it is cut into tiles."""
    grid_thw: tuple[int, int, int]
    """Patches as the encoder sees them: (time, rows, columns); (tiles, rows, columns) per tile
    where the family cuts tiles, the overview tile counted."""
    num_patches: int
    """Rows that enter the vision encoder."""
    num_tokens: int
    """Prompt positions that the encoder's output fills, learned line breaks included."""
    num_markers: int = 0
    """Text tokens that the family's template writes between the rows or tiles of one picture."""
    tiles: tuple[int, int] = (1, 1)
    """(rows, columns) of tiles, without the overview tile."""

    @property
    def num_positions(self) -> int:
        """KV positions that the picture takes: visual tokens and the markers between them."""
        return self.num_tokens + self.num_markers


@dataclass(frozen=True, slots=True, kw_only=True)
class Mosaic:
    """How tokens of tiles that lie side by side become one picture; (rows, columns) each."""

    tiles: tuple[int, int]
    kept: tuple[int, int]
    """Tokens that are left when as many are cut off one edge as off the opposite one."""
    shape: tuple[int, int]
    """Tokens after resampling; those kept where nothing is resampled."""

    @property
    def num_tokens(self) -> int:
        """Prompt positions, a learned break behind each row counted."""
        rows, columns = self.shape
        return rows * (columns + 1)


Measure = Callable[[int, int], ImageGeometry]
"""(width, height) of a picture in pixels → its patches and tokens."""
