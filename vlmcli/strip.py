"""Geometry of the strips along which lines of print lie: see `results.Strip`. Pure functions.

All lengths are pixels of the displayed page; y runs down.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from vlmcli.results import Strip

Point = tuple[float, float]
Box = tuple[int, int, int, int]
Affine = Sequence[Sequence[float]]
"""Two rows of three: `x' = m[0] @ (x, y, 1)`."""
_ROUNDING = 1e-6
"""Pixels by which a corner may miss a border of pixels without taking in another one."""


def length_of(strip: Strip) -> float:
    """Of the chord."""
    return math.hypot(strip.end[0] - strip.start[0], strip.end[1] - strip.start[1])


def angle_of(strip: Strip) -> float:
    """Degrees by which the baseline falls to the right, -180 to 180."""
    x, y = strip.end[0] - strip.start[0], strip.end[1] - strip.start[1]
    return math.degrees(math.atan2(y, x))


def quarter_of(strip: Strip) -> int:
    """Quarter turns counter-clockwise by which the text is nearest to being turned, 0 to 3."""
    return round(-angle_of(strip) / 90) % 4


def slant_of(strip: Strip) -> float:
    """Degrees by which it falls to the right, seen from its nearest quarter turn: -45 to 45."""
    return (angle_of(strip) + 45) % 90 - 45


def has_area(strip: Strip) -> bool:
    """Whether it covers any of the page."""
    return length_of(strip) > 0 and strip.ascent + strip.descent > 0


def corners_of(strip: Strip) -> tuple[Point, Point, Point, Point]:
    """Upper left, upper right, lower right and lower left, as the text stands; bow included."""
    up, down = strip.ascent - min(strip.bow, 0.0), strip.descent + max(strip.bow, 0.0)
    a, b = strip.start, strip.end
    return (
        _off(strip, a, -up),
        _off(strip, b, -up),
        _off(strip, b, down),
        _off(strip, a, down),
    )


def box_of(strip: Strip) -> Box:
    """The upright box around it: x0, y0, x1, y1 in whole pixels."""
    xs, ys = zip(*corners_of(strip), strict=True)
    return (
        math.floor(min(xs) + _ROUNDING),
        math.floor(min(ys) + _ROUNDING),
        math.ceil(max(xs) - _ROUNDING),
        math.ceil(max(ys) - _ROUNDING),
    )


def part_of(strip: Strip, start: float, end: float) -> Strip:
    """What lies between two places of a strip that `has_area`, in pixels along its chord."""
    length = length_of(strip)
    first, last = start / length, end / length
    bow = strip.bow * (last - first) ** 2
    return replace(strip, start=_at(strip, first), end=_at(strip, last), bow=bow, words=())


def moved(strip: Strip, matrix: Affine) -> Strip:
    """Where an affine map takes it: areas change as they do there, right angles stay right."""
    start, end = _mapped(strip.start, matrix), _mapped(strip.end, matrix)
    there = rounded(replace(strip, start=start, end=end))
    before, after = length_of(strip), math.hypot(end[0] - start[0], end[1] - start[1])
    if not before or not after:
        return there
    along = after / before
    area = abs(matrix[0][0] * matrix[1][1] - matrix[0][1] * matrix[1][0])
    return replace(
        there,
        ascent=round(strip.ascent * area / along, 1),
        descent=round(strip.descent * area / along, 1),
        bow=round(strip.bow * area / along, 1),
        words=tuple((round(first * along), round(last * along)) for first, last in strip.words),
    )


def rounded(strip: Strip) -> Strip:
    """Its lengths to a tenth of a pixel: finer ones say nothing and make records long."""
    return replace(
        strip,
        start=(round(strip.start[0], 1), round(strip.start[1], 1)),
        end=(round(strip.end[0], 1), round(strip.end[1], 1)),
        ascent=round(strip.ascent, 1),
        descent=round(strip.descent, 1),
        bow=round(strip.bow, 1),
    )


def _at(strip: Strip, share: float) -> Point:
    """A point of the baseline."""
    x = strip.start[0] + share * (strip.end[0] - strip.start[0])
    y = strip.start[1] + share * (strip.end[1] - strip.start[1])
    return _off(strip, (x, y), 4 * strip.bow * share * (1 - share))


def _off(strip: Strip, point: Point, below: float) -> Point:
    """The point so many pixels below another one, as the text stands."""
    length = length_of(strip) or 1.0
    along_x = (strip.end[0] - strip.start[0]) / length
    along_y = (strip.end[1] - strip.start[1]) / length
    return point[0] - below * along_y, point[1] + below * along_x


def _mapped(point: Point, matrix: Affine) -> Point:
    x, y = point
    (a, b, c), (d, e, f) = matrix
    return a * x + b * y + c, d * x + e * y + f
