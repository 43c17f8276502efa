"""Pictures of text lines for a model that reads one line at a time.

Cut from the full picture along the baseline, dark on light, background made even, scaled to the
wanted height with the aspect kept. Wide lines are cut at word gaps. No ink is added or thickened.
"""

from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.ink import Grey, to_grey
from vlmcli.documents.lines.marks import label, median
from vlmcli.documents.lines.shapes import LineCrop, TextLine

_MARGIN = 0.08
"""White above and below the ink, in letter sizes: the model learned on 0.02 to 0.3, and reads
larger letters better; with 0.05 tails get lost, with 0.13 more words on every kind of page."""
_SIDE = 0.4
"""White before and behind, in letter sizes."""
_BOWED = 0.06
"""Bow in line heights from which a crop follows the curve."""
_WORD_GAP = 0.17
"""Narrowest gap between words, in crop heights; between letters it is half of that."""
_LIGHT, _DARK = 255.0, 0.0
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
        strip = _strip(grey, line, height)
        side = _SIDE * line.size
        unit = (line.length + 2 * side) / strip.shape[1]
        for start, stop in _cuts(strip, max_width):
            crops.append(
                LineCrop(
                    pixels=np.ascontiguousarray(strip[:, start:stop]),
                    bbox=_part(line, start / strip.shape[1], stop / strip.shape[1]),
                    line=index,
                    block=line.block,
                    row=line.row,
                    cell=line.cell,
                    glued=line.glued,
                    strip=line.strip,
                    span=(start * unit - side, stop * unit - side),
                )
            )
    return tuple(crops)


def _strip(grey: Grey, line: TextLine, height: int) -> Grey:
    """The line cut out along its baseline, dark on light, `height` pixels high."""
    margin, side = _MARGIN * line.size, _SIDE * line.size
    tall, wide = line.ascent + line.descent + 2 * margin, line.length + 2 * side
    scale = height / tall
    width = max(1, round(wide * scale))
    # Sampled at about the page's own resolution, then averaged: thin strokes stay.
    fine = max(1, round(1 / scale))
    strip = _sample(grey, line, margin, side, (width * fine, height * fine))
    if line.inverted:
        strip = np.asarray(255 - strip, np.uint8)
    strip = _even(strip)
    unit = scale * fine
    strip = _without_neighbours(
        strip, baseline=(line.ascent + margin) * unit, size=line.size * unit, side=side * unit
    )
    if fine > 1:
        strip = np.asarray(cv2.resize(strip, (width, height), interpolation=cv2.INTER_AREA))
    return strip


def _sample(grey: Grey, line: TextLine, margin: float, side: float, shape: tuple[int, int]) -> Grey:
    """Pixels along the line, `shape` = (width, height) samples; rows follow the baseline."""
    width, height = shape
    radians = np.radians(line.angle)
    along = np.array([np.cos(radians), np.sin(radians)])
    down = np.array([-along[1], along[0]])
    step_x = (line.length + 2 * side) / width
    step_y = (line.ascent + line.descent + 2 * margin) / height
    corner = np.array(line.start) - side * along - (line.ascent + margin) * down
    origin = corner + along * step_x / 2 + down * step_y / 2
    smooth = cv2.INTER_CUBIC if step_y < 0.8 else cv2.INTER_LINEAR
    if abs(line.bow) <= _BOWED * (line.ascent + line.descent):
        matrix = np.column_stack((along * step_x, down * step_y, origin))
        flags = smooth | cv2.WARP_INVERSE_MAP
        return np.asarray(
            cv2.warpAffine(grey, matrix, shape, flags=flags, borderMode=cv2.BORDER_REPLICATE)
        )
    # A parabola through both ends of the baseline, `bow` below the middle of its chord.
    x = np.arange(width) * step_x
    t = np.clip((x - side) / max(line.length, 1e-6), 0, 1)
    y = np.arange(height)[:, None] * step_y + (4 * line.bow * t * (1 - t))[None, :]
    map_x = origin[0] + x[None, :] * along[0] + y * down[0]
    map_y = origin[1] + x[None, :] * along[1] + y * down[1]
    return np.asarray(
        cv2.remap(
            grey,
            map_x.astype(np.float32),
            map_y.astype(np.float32),
            smooth,
            borderMode=cv2.BORDER_REPLICATE,
        )
    )


def _even(strip: Grey) -> Grey:
    """Paper at one light tone and solid ink at one dark tone, all along the strip."""
    height, width = strip.shape
    step = 2 * height
    starts = range(0, width, step)
    levels = [float(np.percentile(strip[::2, at : at + step : 2], 80)) for at in starts]
    centres = [min(at + step / 2, width - 1) for at in starts]
    paper = np.maximum(np.interp(np.arange(width), centres, levels), 16.0)
    flat = np.minimum(strip * (255.0 / paper)[None, :], 255.0)
    darkest = float(np.percentile(flat[::2, ::2], 2))
    gain = min((_LIGHT - _DARK) / max(255.0 - darkest, 1.0), 4.0)
    return np.clip(_LIGHT - (255.0 - flat) * gain, 0, 255).astype(np.uint8)


def _without_neighbours(strip: Grey, *, baseline: float, size: float, side: float) -> Grey:
    """The strip without ink that peeks in from other lines.

    Such ink touches the upper or lower edge and stays out of the line's own letter band.

    Args:
        strip: evened strip, uint8 (H, W).
        baseline: rows from the upper edge to the baseline.
        size: letter height in rows.
        side: columns before and behind the line's own ink.
    """
    height, width = strip.shape
    ink = (strip < (_LIGHT + _DARK) / 2 + 30).astype(np.uint8)
    if not (ink[0].any() or ink[-1].any() or ink[:, 0].any() or ink[:, -1].any()):
        return strip
    marks, labels = label(ink)
    foreign = (marks.y0 <= 0) & (marks.y1 <= baseline - 0.7 * size)
    foreign |= (marks.y1 >= height) & (marks.y0 >= baseline + 0.12 * size)
    foreign |= (marks.x0 <= 0) & (marks.x1 <= 0.8 * side)
    foreign |= (marks.x1 >= width) & (marks.x0 >= width - 0.8 * side)
    if not foreign.any():
        return strip
    # Two pixels more: the grey rim belongs to the mark, the line's own ink does not.
    chosen = np.concatenate(([False], foreign))[labels].view(np.uint8)
    rim = cv2.dilate(chosen, np.ones((5, 5), np.uint8)) & ~(ink & (1 - chosen))
    cleaned = strip.copy()
    cleaned[rim > 0] = round(_LIGHT)
    return cleaned


def _cuts(strip: Grey, max_width: int) -> list[tuple[int, int]]:
    """Start and stop of the parts of a strip, each at most `max_width` wide and of like width."""
    width = strip.shape[1]
    ink = (255.0 - strip).sum(axis=0)
    gaps = _word_gaps(ink, strip.shape[0])
    cuts = [0]
    while width - cuts[-1] > max_width:
        start, rest = cuts[-1], width - cuts[-1]
        ideal = start + rest / -(-rest // max_width)
        within = gaps[(gaps > start + 0.25 * max_width) & (gaps <= start + max_width)]
        if not within.size:
            within = gaps[(gaps > start) & (gaps <= start + max_width)]
        if within.size:
            cut = int(within[np.argmin(np.abs(within - ideal))])
        else:
            # A word wider than a crop: through its thinnest place near the ideal.
            low = start + max_width // 2
            cut = low + int(np.argmin(ink[low : start + max_width]))
        cuts.append(max(cut, start + 1))
    return list(pairwise([*cuts, width]))


def _word_gaps(ink: npt.NDArray[np.float64], height: int) -> npt.NDArray[np.int64]:
    """Middles of the runs of empty columns that are wide enough to part words."""
    empty = np.concatenate(([False], ink < 0.06 * 255 * height, [False]))
    edges = np.flatnonzero(empty[1:] != empty[:-1]).reshape(-1, 2)
    widths = (edges[:, 1] - edges[:, 0]).astype(np.float64)
    if not len(widths):
        return np.zeros(0, np.int64)
    # Most gaps lie between letters; on a typewriter they are as wide as word gaps elsewhere.
    least = max(3.0, _WORD_GAP * height, 1.7 * median(widths))
    return np.asarray(edges[widths >= least].sum(axis=1) // 2)


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
