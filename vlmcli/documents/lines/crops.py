"""Pictures of text lines for a model that reads one line at a time.

Cut from the full picture along the baseline, dark on light, background made even, scaled to the
wanted height with the aspect kept. Wide lines are cut at word gaps. No ink is added or thickened.
"""

import itertools
from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.ink import Grey, to_grey
from vlmcli.documents.lines.shapes import LineCrop, TextLine

_MARGIN = 0.18
"""White above and below the ink, in letter sizes: the model learned on 0.04 to 0.45."""
_SIDE = 0.5
"""White before and behind, in letter sizes."""
_BOWED = 0.06
"""Bow in line heights from which a crop follows the curve."""
_LIGHT, _DARK = 250.0, 25.0
"""Grey of paper and of solid ink in a crop."""


def crop_lines(
    pixels: npt.NDArray[np.uint8], lines: Sequence[TextLine], *, height: int, max_width: int
) -> tuple[LineCrop, ...]:
    """Pictures of lines, in the order of the lines and from left to right within one.

    Args:
        pixels: the picture that the lines were found in, uint8 (H, W) or (H, W, 3) RGB.
        lines: what `find_lines` returned.
        height: height of every crop in pixels.
        max_width: a crop is no wider; lines are cut at word gaps to fit.
    """
    grey = to_grey(pixels)
    crops: list[LineCrop] = []
    for index, line in enumerate(lines):
        strip = _even(_strip(grey, line, height), line.inverted)
        for start, stop in _cuts(strip, max_width):
            crops.append(
                LineCrop(
                    pixels=np.ascontiguousarray(strip[:, start:stop]),
                    bbox=_part(line, start / strip.shape[1], stop / strip.shape[1]),
                    line=index,
                    block=line.block,
                    row=line.row,
                    cell=line.cell,
                )
            )
    return tuple(crops)


def _strip(grey: Grey, line: TextLine, height: int) -> Grey:
    """The line cut out along its baseline, `height` pixels high."""
    margin, side = _MARGIN * line.size, _SIDE * line.size
    tall = line.ascent + line.descent + 2 * margin
    wide = line.length + 2 * side
    scale = height / tall
    width = max(1, round(wide * scale))
    radians = np.radians(line.angle)
    along = np.array([np.cos(radians), np.sin(radians)])
    down = np.array([-along[1], along[0]])
    corner = np.array(line.start) - side * along - (line.ascent + margin) * down
    if abs(line.bow) > _BOWED * tall:
        return _bent_strip(grey, line, corner, along, down, (wide, tall), (width, height))
    fine = max(1, round(1 / scale)) if scale < 1 else 1
    return _warp(grey, corner, along, down, 1 / scale, (width, height), fine)


def _warp(
    grey: Grey,
    corner: npt.NDArray[np.float64],
    along: npt.NDArray[np.float64],
    down: npt.NDArray[np.float64],
    step: float,
    size: tuple[int, int],
    fine: int,
) -> Grey:
    """Sample a turned rectangle, `fine` samples a side for each pixel, and average them."""
    width, height = size
    inner = step / fine
    origin = corner + (along + down) * (inner - 1) / 2
    matrix = np.column_stack((along * inner, down * inner, origin))
    strip = cv2.warpAffine(
        grey,
        matrix,
        (width * fine, height * fine),
        flags=(cv2.INTER_LINEAR if fine > 1 or step >= 1 else cv2.INTER_CUBIC)
        | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
    if fine > 1:
        strip = cv2.resize(strip, size, interpolation=cv2.INTER_AREA)
    return np.asarray(strip, np.uint8)


def _bent_strip(
    grey: Grey,
    line: TextLine,
    corner: npt.NDArray[np.float64],
    along: npt.NDArray[np.float64],
    down: npt.NDArray[np.float64],
    extent: tuple[float, float],
    size: tuple[int, int],
) -> Grey:
    """The line cut out along a parabola."""
    width, height = size
    fine = max(1, round(extent[1] / height))
    u = (np.arange(width * fine) + 0.5) / (width * fine)
    v = (np.arange(height * fine) + 0.5) / (height * fine)
    # A parabola through both ends of the chord that lies `bow` below its middle.
    t = np.clip((u * extent[0] - _SIDE * line.size) / max(line.length, 1e-6), 0, 1)
    sag = 4 * line.bow * t * (1 - t)
    across = v[:, None] * extent[1] + sag[None, :]
    x = corner[0] + u[None, :] * extent[0] * along[0] + across * down[0] - 0.5
    y = corner[1] + u[None, :] * extent[0] * along[1] + across * down[1] - 0.5
    strip = cv2.remap(
        grey,
        x.astype(np.float32),
        y.astype(np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return np.asarray(cv2.resize(strip, size, interpolation=cv2.INTER_AREA), np.uint8)


def _even(strip: Grey, inverted: bool) -> Grey:
    """Dark print on an even light ground."""
    if inverted:
        strip = np.asarray(255 - strip, np.uint8)
    height, width = strip.shape
    step = 2 * height
    stops = list(range(0, width, step))
    levels = [float(np.percentile(strip[:, at : at + step], 80)) for at in stops]
    centres = [min(at + step / 2, width - 1) for at in stops]
    paper = np.maximum(np.interp(np.arange(width), centres, levels), 16.0)
    flat = np.minimum(strip * (255.0 / paper)[None, :], 255.0)
    darkest = float(np.percentile(flat, 2))
    gain = min((_LIGHT - _DARK) / max(255.0 - darkest, 1.0), 4.0)
    return np.clip(_LIGHT - (255.0 - flat) * gain, 0, 255).astype(np.uint8)


def _cuts(strip: Grey, max_width: int) -> list[tuple[int, int]]:
    """Start and stop of the parts of a strip, each at most `max_width` wide."""
    width = strip.shape[1]
    if width <= max_width:
        return [(0, width)]
    ink = (255.0 - strip).sum(axis=0)
    gap = max(3, round(0.25 * strip.shape[0])) | 1
    # The emptiest window of a word gap's width; near the middle among equals.
    empty = np.convolve(np.pad(ink, gap // 2, mode="edge"), np.ones(gap) / gap, mode="valid")
    parts = -(-width // max_width)
    while True:
        cuts = [0]
        for part in range(1, parts):
            ideal = width * part / parts
            low = max(cuts[-1] + 1, round(ideal - 0.4 * width / parts))
            high = max(
                low + 1, min(width, cuts[-1] + max_width, round(ideal + 0.4 * width / parts))
            )
            window = empty[low:high] + 2.0 * np.abs(np.arange(low, high) - ideal) / width
            cuts.append(low + int(np.argmin(window)))
        cuts.append(width)
        if all(b - a <= max_width for a, b in itertools.pairwise(cuts)):
            return list(itertools.pairwise(cuts))
        parts += 1


def _part(line: TextLine, start: float, stop: float) -> tuple[int, int, int, int]:
    """Box on the page of a share of a line."""
    if start == 0 and stop == 1:
        return line.bbox
    x0, y0, x1, y1 = line.bbox
    radians = np.radians(line.angle)
    if abs(np.cos(radians)) >= abs(np.sin(radians)):
        a, b = (start, stop) if np.cos(radians) > 0 else (1 - stop, 1 - start)
        return (round(x0 + a * (x1 - x0)), y0, round(x0 + b * (x1 - x0)), y1)
    a, b = (start, stop) if np.sin(radians) > 0 else (1 - stop, 1 - start)
    return (x0, round(y0 + a * (y1 - y0)), x1, round(y0 + b * (y1 - y0)))
