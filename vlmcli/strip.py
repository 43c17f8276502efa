"""Where the print of a line lies, whichever way the page is turned: a strip along its baseline.

Plain geometry on floats; part of the page record. All lengths are pixels of the displayed page,
measured from its upper left corner (edges of pixels, not centres); y runs down.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Point = tuple[float, float]
Box = tuple[int, int, int, int]
Affine = Sequence[Sequence[float]]
"""Two rows of three: `x' = m[0] @ (x, y, 1)`."""
_ROUNDING = 1e-6
"""Pixels by which a corner may miss a border of pixels without taking in another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The place of a printed line: it runs from `start` to `end`, as its text does."""

    start: Point
    end: Point
    """The ends of the baseline."""
    ascent: float
    descent: float
    """How far print reaches above and below the baseline, as the text stands."""
    bow: float = 0.0
    """How far the middle of a parabolic baseline lies below its chord, as the text stands."""
    words: tuple[tuple[int, int], ...] = ()
    """Where each word of the text begins and ends, measured along the chord from `start`; empty
    where that is not known."""

    @property
    def length(self) -> float:
        """Of the chord."""
        return math.hypot(self.end[0] - self.start[0], self.end[1] - self.start[1])

    @property
    def angle(self) -> float:
        """Degrees by which the baseline falls to the right, more than -180 to 180."""
        x, y = self.end[0] - self.start[0], self.end[1] - self.start[1]
        return math.degrees(math.atan2(y, x)) if x or y else 0.0

    @property
    def quarter(self) -> int:
        """Quarter turns counter-clockwise by which the text is nearest to being turned, 0 to 3."""
        return round(-self.angle / 90) % 4

    @property
    def nbytes(self) -> int:
        """About what keeping it costs, in bytes."""
        return 500 + 180 * len(self.words)

    @property
    def is_real(self) -> bool:
        """Whether it covers an area."""
        return self.length > 0 and self.ascent + self.descent > 0

    @property
    def box(self) -> Box:
        """The upright box around it, in whole pixels."""
        xs, ys = zip(*self.corners(), strict=True)
        low, high = math.floor, math.ceil
        return (
            low(min(xs) + _ROUNDING),
            low(min(ys) + _ROUNDING),
            high(max(xs) - _ROUNDING),
            high(max(ys) - _ROUNDING),
        )

    def corners(self) -> tuple[Point, Point, Point, Point]:
        """Upper left, upper right, lower right and lower left, as the text stands; bow included."""
        up, down = self.ascent - min(self.bow, 0.0), self.descent + max(self.bow, 0.0)
        a, b = self.start, self.end
        return self._off(a, -up), self._off(b, -up), self._off(b, down), self._off(a, down)

    def part(self, start: float, end: float) -> "Strip":
        """What lies between two places of a strip that `is_real`, in pixels along its chord."""
        first, last = start / self.length, end / self.length
        return replace(
            self,
            start=self._at(first),
            end=self._at(last),
            bow=self.bow * (last - first) ** 2,
            words=(),
        )

    def moved(self, matrix: Affine) -> "Strip":
        """Where an affine map takes it; areas keep their proportion, right angles stay right."""
        moved = replace(self, start=_mapped(self.start, matrix), end=_mapped(self.end, matrix))
        if not self.length or not moved.length:
            return moved
        along = moved.length / self.length
        area = abs(matrix[0][0] * matrix[1][1] - matrix[0][1] * matrix[1][0])
        across = area / along
        return replace(
            moved.rounded(),
            ascent=round(self.ascent * across, 1),
            descent=round(self.descent * across, 1),
            bow=round(self.bow * across, 1),
            words=tuple((round(a * along), round(b * along)) for a, b in self.words),
        )

    def rounded(self) -> "Strip":
        """Its lengths to a tenth of a pixel: finer ones say nothing and make records long."""
        return Strip(
            start=(round(self.start[0], 1), round(self.start[1], 1)),
            end=(round(self.end[0], 1), round(self.end[1], 1)),
            ascent=round(self.ascent, 1),
            descent=round(self.descent, 1),
            bow=round(self.bow, 1),
            words=self.words,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Strip":
        """Inverse of `dataclasses.asdict`; unknown fields are ignored.

        Raises:
            KeyError, TypeError, ValueError: the mapping is no strip.
        """
        (x0, y0), (x1, y1) = data["start"], data["end"]
        return cls(
            start=(x0, y0),
            end=(x1, y1),
            ascent=data["ascent"],
            descent=data["descent"],
            bow=data.get("bow", 0.0),
            words=tuple((start, end) for start, end in data.get("words", ())),
        )

    def _at(self, share: float) -> Point:
        """A point of the baseline."""
        x = self.start[0] + share * (self.end[0] - self.start[0])
        y = self.start[1] + share * (self.end[1] - self.start[1])
        return self._off((x, y), 4 * self.bow * share * (1 - share))

    def _off(self, point: Point, below: float) -> Point:
        """The point so many pixels below another one, as the text stands."""
        length = self.length or 1.0
        along_x = (self.end[0] - self.start[0]) / length
        along_y = (self.end[1] - self.start[1]) / length
        return point[0] - below * along_y, point[1] + below * along_x


def _mapped(point: Point, matrix: Affine) -> Point:
    x, y = point
    (a, b, c), (d, e, f) = matrix
    return a * x + b * y + c, d * x + e * y + f
