"""Which pixels are ink: contrast against the local paper, threshold set by the local ink.

Works for white and aged paper, uneven light, tinted areas, JPEG noise and 1-bit scans. Solid dark
areas stay solid, so that light text inside them appears as holes. Colour is used as luminance
only: red print on a green ground of equal luminance is lost.
"""

import cv2
import numpy as np
import numpy.typing as npt

Grey = npt.NDArray[np.uint8]

_CELL = 8
"""Pixels a side of the cells over which paper and ink are estimated."""
_PAPER_WINDOW = 15
"""Cells: dark marks narrower than this (120 px) do not count as paper."""
_INK_WINDOW = 9
_INK_SHARE = 0.36
"""Threshold as a share of the local ink contrast; below one half, thin strokes survive."""
_FAINTEST = 0.16
"""Ink fainter than this share of the page's ink is show-through or texture."""
_CONTRAST_FLOOR = 26
"""Contrast out of 255 below which nothing is called ink."""
_NOISY = 7.0
"""Spread of the paper's noise, in grey levels, from which the picture is smoothed first."""
_COARSE = 4
_GROUND_WINDOW = 9
"""Coarse pixels: 36 px, so that a bar of one line's height is its own ground."""
_TINTED = 0.8
"""Share of the paper's brightness below which an area is tinted."""
_TINTED_LEAST = 0.002
THRESHOLD = 100
"""Strength at which a pixel is ink."""


def to_grey(pixels: npt.NDArray[np.uint8]) -> Grey:
    """Luminance of a picture.

    Args:
        pixels: uint8, (H, W) grey or (H, W, 3) RGB.

    Returns:
        uint8 (H, W), contiguous.
    """
    if pixels.ndim == 2:
        return np.ascontiguousarray(pixels)
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY), np.uint8)


def ink_strength(grey: Grey, floor: float) -> Grey:
    """How far each pixel is from the paper, in units of the local threshold.

    Args:
        grey: uint8 (H, W), text of about 6 to 40 px height.
        floor: contrast below which nothing is ink, from `denoised`.

    Returns:
        uint8 (H, W); `THRESHOLD` and more is ink. Interpolating it (rotation) keeps the meaning.
    """
    contrast = _contrast(grey)
    cells = _cell_peaks(contrast)
    marked = cells[cells > floor]
    page_ink = float(np.percentile(marked, 95)) if marked.size else 255.0
    local = cv2.GaussianBlur(cv2.dilate(cells, np.ones((_INK_WINDOW,) * 2, np.uint8)), (0, 0), 2)
    floor = max(floor, _FAINTEST * page_ink)
    threshold = np.maximum(local.astype(np.float32) * _INK_SHARE, floor).astype(np.uint8)
    height, width = grey.shape
    wide = cv2.resize(threshold, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.divide(contrast, wide, scale=float(THRESHOLD)), np.uint8)


def denoised(grey: Grey) -> tuple[Grey, float]:
    """The picture, smoothed if its paper is noisy, and the contrast that noise does not reach.

    Not for pictures that were enlarged: their noise is no longer from pixel to pixel.
    """
    some = np.ascontiguousarray(grey[::3])
    off = cv2.absdiff(some[:, 1:-1], cv2.blur(some, (3, 1))[:, 1:-1])
    # Of three pixels' noise the middle one's deviation has 0.82 of the spread; the median absolute
    # value of a normal variable is 0.67 of its spread.
    noise = float(np.mean(np.sort(off[::7].ravel())[: off[::7].size // 2])) / (0.32 * 0.82)
    if noise >= _NOISY:
        grey = np.asarray(cv2.GaussianBlur(grey, (5, 5), 1.1), np.uint8)
    # The blur leaves 0.27 of the spread; contrast counts as if the paper were white.
    left = noise * (0.27 if noise >= _NOISY else 1.0) * 255 / max(float(np.median(some)), 48.0)
    return grey, max(_CONTRAST_FLOOR, 4.5 * left)


def light_strength(grey: Grey) -> Grey | None:
    """The same for light print on dark or tinted areas; None where the page has no such area.

    The ground is the local median: print covers less than half of it even where it is bold.

    Returns:
        uint8 (H, W), 0 outside the tinted areas and at least 1 inside.
    """
    height, width = grey.shape
    coarse = np.ascontiguousarray(grey[_COARSE // 2 :: _COARSE, _COARSE // 2 :: _COARSE])
    if min(coarse.shape) < _GROUND_WINDOW:
        return None
    ground = cv2.medianBlur(coarse, _GROUND_WINDOW)
    tinted = ground < _TINTED * float(np.percentile(ground, 95))
    if np.count_nonzero(tinted) < _TINTED_LEAST * tinted.size:
        return None
    size = (width, height)
    rise = cv2.subtract(grey, cv2.resize(ground, size, interpolation=cv2.INTER_LINEAR))
    area = cv2.resize(tinted.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    rise *= area
    peaks = cv2.dilate(_cell_peaks(np.asarray(rise, np.uint8)), np.ones((5, 5), np.uint8))
    threshold = np.maximum(peaks.astype(np.float32) * 0.5, _CONTRAST_FLOOR).astype(np.uint8)
    wide = cv2.resize(threshold, size, interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.max(cv2.divide(rise, wide, scale=float(THRESHOLD)), area), np.uint8)


def _contrast(grey: Grey) -> Grey:
    """Darkness against the local paper, 0 (paper) to 255, as if the paper were white."""
    height, width = grey.shape
    cells = cv2.resize(
        grey,
        (max(1, width // _CELL), max(1, height // _CELL)),
        interpolation=cv2.INTER_AREA,
    )
    paper = cv2.morphologyEx(
        cells,
        cv2.MORPH_CLOSE,
        np.ones((_PAPER_WINDOW,) * 2, np.uint8),
        borderType=cv2.BORDER_REPLICATE,
    )
    paper = np.maximum(cv2.GaussianBlur(paper, (0, 0), 2), 48).astype(np.uint8)
    wide = cv2.resize(paper, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(255 - cv2.divide(grey, wide, scale=255.0), np.uint8)


def _cell_peaks(contrast: Grey) -> Grey:
    """Strongest contrast in each cell after a 3 x 3 mean, so that lone pixels count little."""
    height, width = contrast.shape
    smooth = cv2.blur(contrast, (3, 3))
    peaks = cv2.dilate(smooth, np.ones((_CELL, _CELL), np.uint8))
    return np.ascontiguousarray(peaks[_CELL // 2 :: _CELL, _CELL // 2 :: _CELL][:height, :width])
