"""A line chart as a PNG, drawn with Pillow: enough for memory over time, and one library less."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

_WIDTH, _HEIGHT = 960, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 24, 56, 56
_INK, _GRID, _PAPER = (40, 40, 40), (225, 225, 225), (255, 255, 255)
_STEPS = 6
_DASH = 14

Points = Sequence[tuple[float, float]]
Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart: its name, its points in the units of the axes, and how it is drawn."""

    name: str
    points: Points
    colour: Colour
    is_dashed: bool = False


def draw_chart(title: str, axes: tuple[str, str], curves: Sequence[Curve]) -> bytes:
    """A chart of some curves as a PNG; both axes begin at 0.

    Args:
        title: stands above.
        axes: names of the horizontal and the vertical axis, with units.
        curves: in the order in which they are drawn.
    """
    image = Image.new("RGB", (_WIDTH, _HEIGHT), _PAPER)
    draw = ImageDraw.Draw(image)
    ticks = [
        _ticks(max(point[axis] for curve in curves for point in curve.points)) for axis in (0, 1)
    ]

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = _LEFT + point[0] / ticks[0][-1] * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - point[1] / ticks[1][-1] * (_HEIGHT - _TOP - _BOTTOM)
        return x, y

    _draw_axes(draw, title, axes, ticks)
    for number, curve in enumerate(curves):
        places = [place(point) for point in curve.points]
        _draw_line(draw, places, curve)
        x = _LEFT + 230 * number
        draw.line([(x, 40), (x + 28, 40)], fill=curve.colour, width=3)
        draw.text((x + 36, 33), curve.name, fill=_INK, font=ImageFont.load_default(13))
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 to just beyond the largest value."""
    rough = most / _STEPS
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * number for number in range(math.ceil(most / step * 1.02) + 1)]


def _draw_axes(
    draw: ImageDraw.ImageDraw, title: str, axes: tuple[str, str], ticks: Sequence[list[float]]
) -> None:
    font = ImageFont.load_default(13)
    draw.text((_LEFT, 10), title, fill=_INK, font=ImageFont.load_default(16))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for value in ticks[1]:
        y = bottom - value / ticks[1][-1] * (bottom - _TOP)
        draw.line([(_LEFT, y), (right, y)], fill=_GRID)
        draw.text((_LEFT - 8, y), f"{value:g}", fill=_INK, font=font, anchor="rm")
    for value in ticks[0]:
        x = _LEFT + value / ticks[0][-1] * (right - _LEFT)
        draw.text((x, bottom + 8), f"{value:g}", fill=_INK, font=font, anchor="ma")
    draw.line([(_LEFT, _TOP), (_LEFT, bottom), (right, bottom)], fill=_INK)
    draw.text(((_LEFT + right) / 2, _HEIGHT - 14), axes[0], fill=_INK, font=font, anchor="mm")
    draw.text((8, _TOP - 8), axes[1], fill=_INK, font=font, anchor="lb")


def _draw_line(
    draw: ImageDraw.ImageDraw, places: Sequence[tuple[float, float]], curve: Curve
) -> None:
    if not curve.is_dashed:
        draw.line(list(places), fill=curve.colour, width=2)
        return
    (x0, y0), (x1, y1) = places[0], places[-1]
    length = math.hypot(x1 - x0, y1 - y0)
    for start in range(0, int(length), 2 * _DASH):
        ends = [min(1.0, at / length) for at in (start, start + _DASH)]
        draw.line(
            [(x0 + (x1 - x0) * at, y0 + (y1 - y0) * at) for at in ends], fill=curve.colour, width=2
        )
