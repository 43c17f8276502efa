"""Bring two registered pictures of one sheet to the same brightness, contrast and sharpness.

Two scans differ in lamp, gain and focus, and resampling blurs one of them. All of that is fitted by
least squares on the pictures themselves and removed; what is too much for one scanner is refused.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlmcli.reuse.registration import FloatImage, gradient_size, smooth

MAX_GAIN = 0.15
"""Relative difference in contrast between two scans of one sheet."""
MAX_OFFSET = 12.0
"""Grey levels by which the paper may be lighter or darker anywhere on the page."""
MAX_BLUR = 1.0
"""Square pixels of variance by which one scan may be blurrier than the other."""
_EDGE = 6.0
_MIN_EDGES = 200
_STRIDES = (2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tone:
    """How the second picture renders the first: `gain * first + offset + slope . (u, v)`, blurred.

    `u`, `v` run from -1 to 1 over the page; `blur` is the added variance in square pixels, negative
    where the second is the sharper one.
    """

    gain: float
    offset: float
    slope: tuple[float, float]
    blur: float

    def is_plausible(self, paper: float) -> bool:
        """Whether one scanner renders one sheet, with paper of that grey level, twice like that."""
        drift = abs((self.gain - 1) * paper + self.offset) + abs(self.slope[0]) + abs(self.slope[1])
        return abs(self.gain - 1) <= MAX_GAIN and drift <= MAX_OFFSET and abs(self.blur) <= MAX_BLUR


def match_tone(first: FloatImage, second: FloatImage) -> Tone | None:
    """Fit the tone of `second` to `first`: both float32 (H, W), registered and smoothed.

    A difference in focus acts as diffusion: to first order it adds `blur / 2` times the Laplacian.
    None where there are too few edges to fit.
    """
    import cv2

    down, across = _STRIDES
    grid = np.s_[8:-8:down, 8:-8:across]
    laplacian = cv2.Laplacian(first, cv2.CV_32F, borderType=cv2.BORDER_REPLICATE)
    is_edge = (gradient_size(first)[grid] > _EDGE).ravel()
    edges, plain = np.flatnonzero(is_edge), np.flatnonzero(~is_edge)
    if edges.size < _MIN_EDGES:
        return None
    picked = np.concatenate([edges, plain[:: max(1, plain.size // edges.size)]])
    height, width = first[grid].shape
    row, column = np.divmod(picked, width)
    design = np.stack(
        [
            first[grid].ravel()[picked],
            np.ones(picked.size),
            2 * column / width - 1,
            2 * row / height - 1,
            laplacian[grid].ravel()[picked] / 2,
        ],
        axis=1,
    )
    gain, offset, across_page, down_page, blur = _robust_fit(design, second[grid].ravel()[picked])
    return Tone(gain=gain, offset=offset, slope=(across_page, down_page), blur=blur)


def apply_tone(first: FloatImage, second: FloatImage, tone: Tone) -> tuple[FloatImage, FloatImage]:
    """The two pictures as one scanner would render them; the sharper one is blurred."""
    if tone.blur > 0.02:
        first = smooth(first, tone.blur**0.5)
    elif tone.blur < -0.02:
        second = smooth(second, (-tone.blur) ** 0.5)
    height, width = first.shape
    row = np.linspace(-1, 1, height, dtype=np.float32)[:, None] * np.float32(tone.slope[1])
    column = np.linspace(-1, 1, width, dtype=np.float32) * np.float32(tone.slope[0])
    matched = first * np.float32(tone.gain)
    matched += column + np.float32(tone.offset)
    matched += row
    return matched, second


def _robust_fit(design: NDArray[np.float64], target: FloatImage) -> tuple[float, ...]:
    goal = target.astype(np.float64)
    weight = np.ones(goal.size)
    for _ in range(3):
        solution = np.linalg.lstsq(design * weight[:, None], goal * weight, rcond=None)[0]
        residual = np.abs(goal - design @ solution)
        weight = 1 / np.sqrt(np.maximum(1, residual / (2 * float(np.median(residual)) + 0.1)))
    return tuple(float(value) for value in solution)
