"""What line finding hands on: text lines with their place, and their pictures. Plain data."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vlmcli.results import Strip
from vlmcli.strip import rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLine:
    """A piece of a printed line: a whole line, or one cell of a table row.

    Lengths are page pixels. The line runs from `start` along `angle`; its box has the given
    `length` along the line and `ascent` above and `descent` below the baseline.
    """

    bbox: tuple[int, int, int, int]
    """x0, y0, x1, y1 on the page, axis-aligned, x1 and y1 exclusive."""
    start: tuple[float, float]
    """Left end of the baseline."""
    angle: float
    """Degrees by which the baseline falls to the right, -180 to 180."""
    length: float
    ascent: float
    descent: float
    size: float
    """Median letter height, between x-height and cap height."""
    bow: float = 0.0
    """How far the middle of the baseline lies below its chord; 0 for a straight line."""
    inverted: bool = False
    """Light print on a dark ground."""
    block: int = 0
    """Paragraph, heading, or table of the page, counted in reading order."""
    row: int = 0
    """Printed line of the page, counted in reading order: lines with one number print as one."""
    cell: int | None = None
    """Place in the row where the row has several cells."""
    glued: bool = False
    """An initial several lines high: the next line's text follows without a space."""

    @property
    def strip(self) -> Strip:
        """The same place as records have it: edges of pixels instead of their centres."""
        radians = math.radians(self.angle)
        x, y = self.start[0] + 0.5, self.start[1] + 0.5
        end = x + self.length * math.cos(radians), y + self.length * math.sin(radians)
        strip = Strip(start=(x, y), end=end, ascent=self.ascent, descent=self.descent, bow=self.bow)
        return rounded(strip)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCrop:
    """The picture of a text line, or of a part of one between two word gaps."""

    pixels: npt.NDArray[np.uint8]
    """uint8 (height, W), dark print on a light ground."""
    bbox: tuple[int, int, int, int]
    """Where it lies on the page."""
    line: int
    """Index of its text line. The texts of the crops of a line are joined with a space."""
    block: int
    row: int
    cell: int | None
    glued: bool = False
    strip: Strip | None = None
    """Where the text line lies."""
    span: tuple[float, float] = (0.0, 0.0)
    """Which part of the text line it shows: page pixels along the strip, margins included."""
