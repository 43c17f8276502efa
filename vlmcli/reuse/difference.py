"""Is this page the same sheet as that one? Proof by aligned pixel difference, or no.

After registration each remaining difference is expressed as the misregistration, in pixels, that
would explain it: the difference beyond noise, divided by the gradient that *both* pictures have
there. Edges that moved a little need a fraction of a pixel; a mark that only one picture has needs
many. How much is tolerated follows from the page's own text: the comparison must be able to see a
decimal point set in the smallest and faintest of it, else it refuses to judge.

Unsure means no. Gave up: colour differences finer than two pixels, and sheets that slipped in the
feeder, whose rescans are refused.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from vlmcli.reuse.fingerprint import Sketch
from vlmcli.reuse.match import apply_tone, match_tone
from vlmcli.reuse.registration import (
    FloatImage,
    Motion,
    coarse_motion,
    gradient_size,
    reduce,
    refine,
    smooth,
)

Pixels = NDArray[np.uint8]
Plane = TypeVar("Plane", FloatImage, Pixels)
Verdict = Literal[
    "same", "size", "colour", "motion", "tone", "border", "text-too-small", "different"
]

MAX_SIZE_CHANGE = 8
"""Pixels by which width or height of two scans of one sheet may differ."""
_NOISE_FACTOR = 6.0
"""Standard deviations of noise that a difference must exceed: a page has 10^6 places to look at."""
_CLIPPING = 1.7
"""Noise on paper near white is cut in half; on grey levels between it is this much stronger."""
_FLOORS = (3.0, 2.0, 1.5, 1.2, 1.0)
"""Grey levels that are no difference, at blurs of 1, 2, 4, 8 and 16 pixels (JPEG, uneven light)."""
_SOFT = 4.0
"""Grey levels per pixel added to every gradient, so that flat paper has a finite tolerance."""
_COARSE_FACTOR = 0.75
"""Share of the limit that holds from the second octave on: blur averages misregistration away."""
_FIRST_LOOKS = ((8, 1.5, 12.0), (4, 1.2, 8.0))
"""Reduction, blur of the registration, and misregistration (pixels) tolerated in the first looks.

Rescans need up to 6 and 5 pixels there, before their tones are matched; other pages at least 25.
"""
_STILL = 0.5
"""Pixels of motion below which the two frames count as one, to their very edges."""
_PLAIN_RANGE = 32.0
"""Grey levels between the lightest and darkest place of a margin without marks."""
_CHROMA_FLOOR = 4.0
_CHROMA_SLACK = 1.0
"""Grey levels, and pixels on top of the limit, by which colour planes may differ (fringes)."""
_LIMIT_PER_HEIGHT = 0.03
_MIN_LIMIT, _MAX_LIMIT = 0.2, 0.8
"""Tolerated misregistration as a share of the height of small text, and its bounds in pixels."""
_TEXT_HEIGHT = (6, 100)
"""Pixels between which a connected piece of edge counts as text."""
_MAX_STROKE_GRADIENT = 0.55
"""Steepest gradient of a thin stroke over its depth, both after smoothing with 1 pixel."""
_DOT_GAIN = 1.3
"""Depth of a decimal point over that of a stroke squared per contrast, measured over 12 fonts."""
_DEPTH_FACTOR = 1.1
"""Limit at which a decimal point beside a stroke still shows: its depth beyond noise per stroke."""
_DOT_MARGIN = 8.0
"""Grey levels by which a decimal point must stand out of noise and floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a comparison found.

    `excess` is the misregistration (pixels) that would explain the worst difference, `limit` what
    this page tolerates; `motion` maps the second picture's coordinates to the first's.
    """

    verdict: Verdict
    excess: float = 0.0
    limit: float = 0.0
    noise: float = 0.0
    motion: Motion | None = None

    @property
    def is_same(self) -> bool:
        """Whether the two pages are proven to be scans of one sheet."""
        return self.verdict == "same"


def compare(first: Sketch, second: Sketch) -> Difference:
    """Compare two pages, `second` against `first`.

    Raises:
        ValueError: a sketch does not decode.
    """
    if (
        abs(first.width - second.width) > MAX_SIZE_CHANGE
        or abs(first.height - second.height) > MAX_SIZE_CHANGE
    ):
        return Difference(verdict="size")
    if first.is_colour != second.is_colour:
        return Difference(verdict="colour")
    motion = _first_look(first.quarter, second.quarter)
    if isinstance(motion, Difference):
        return motion
    return _full_look(first.decode(), second.decode(), motion)


def _first_look(first: Pixels, second: Pixels) -> Motion | Difference:
    """Register the quarter-size pictures; most pages that differ are refused here, in 5 ms."""
    sizes = {4: (first, second), 8: (reduce(first, 2), reduce(second, 2))}
    motion: Motion | None = coarse_motion(*sizes[8], 8)
    for factor, sigma, limit in _FIRST_LOOKS:
        start, end = sizes[factor]
        assert motion is not None
        motion = refine(start, end, motion, factor, sigma)
        if motion is None or not motion.is_plausible(factor * end.shape[1], factor * end.shape[0]):
            return Difference(verdict="motion")
        warped = _warp(start, motion.reduced(factor), end.shape)
        noise, excess = _excess(
            smooth(warped, 1.0), smooth(end, 1.0), _FLOORS[factor.bit_length() - 1], factor
        )
        if excess > limit:
            return Difference(
                verdict="different", excess=excess, limit=limit, noise=noise, motion=motion
            )
    assert motion is not None
    return motion


def _full_look(first: Pixels, second: Pixels, start: Motion) -> Difference:
    planes = _planes(first), _planes(second)
    motion = refine(planes[0][0], planes[1][0], start, 1, 1.0)
    height, width = planes[1][0].shape
    if motion is None or not motion.is_plausible(width, height):
        return Difference(verdict="motion")
    pair = _overlap(planes[0][0], planes[1][0], motion)
    if pair is None:
        return Difference(verdict="border", motion=motion)
    smoothed = smooth(pair[0], 1.0), smooth(pair[1], 1.0)
    tone = match_tone(*smoothed)
    if tone is None or not tone.is_plausible(float(np.median(second))):
        return Difference(verdict="tone", motion=motion)
    matched = apply_tone(*smoothed, tone)
    noise, excess = _excess(*matched, _FLOORS[0])
    limit = _limit(matched[0], noise)
    if limit is None:
        return Difference(verdict="text-too-small", excess=excess, noise=noise, motion=motion)
    worst = max(excess, _coarse_excess(*matched) / _COARSE_FACTOR)
    for plane in zip(planes[0][1:], planes[1][1:], strict=True):
        worst = max(worst, _chroma_excess(*plane, motion) - _CHROMA_SLACK)
    verdict: Verdict = "same" if worst <= limit else "different"
    return Difference(verdict=verdict, excess=worst, limit=limit, noise=noise, motion=motion)


def _planes(picture: Pixels) -> tuple[Pixels, ...]:
    return (picture,) if picture.ndim == 2 else tuple(picture[:, :, k] for k in range(3))


def _warp(picture: Pixels, motion: Motion, shape: tuple[int, ...]) -> Pixels:
    """`picture` in the coordinates of the other one, whose shape is (H, W); edges are continued."""
    import cv2

    return np.asarray(
        cv2.warpAffine(
            picture,
            motion.matrix,
            (shape[1], shape[0]),
            flags=cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE,
        ),
        dtype=np.uint8,
    )


def _overlap(first: Pixels, second: Pixels, motion: Motion) -> tuple[Pixels, Pixels] | None:
    """Both pictures in the second's coordinates, or None where a margin that only one shows is not
    plain. Plain margins (paper, or the fill of a turned picture) are made equal."""
    warped = _warp(first, motion, second.shape)
    if motion.reach(second.shape[1], second.shape[0]) < _STILL:
        return warped, second
    only_second = _outside(first.shape, motion, second.shape)
    only_first = _outside(second.shape, motion.inverse(), first.shape)
    if not (_is_plain(second, only_second) and _is_plain(first, only_first)):
        return None
    margin = _dilate(only_second, 7).astype(bool)
    return warped, np.where(margin, warped, second)


def _outside(source: tuple[int, ...], motion: Motion, target: tuple[int, ...]) -> Pixels:
    """1 where a pixel of the target's frame lies outside the source's, else 0."""
    import cv2

    ones = np.ones(source[:2], np.uint8)
    size = (target[1], target[0])
    flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    return np.asarray(1 - cv2.warpAffine(ones, motion.matrix, size, flags=flags), dtype=np.uint8)


def _is_plain(picture: Pixels, region: Pixels) -> bool:
    """Whether `picture` has no mark in `region`, two pixels of its rim aside."""
    import cv2

    core = cv2.erode(region, np.ones((5, 5), np.uint8), borderValue=1).astype(bool)
    if not core.any():
        return True
    values = smooth(picture, 1.0)[core]
    return float(values.max() - values.min()) <= _PLAIN_RANGE


def _excess(
    first: FloatImage, second: FloatImage, floor: float, factor: int = 1
) -> tuple[float, float]:
    """Noise, and the misregistration that would explain the worst difference.

    In grey levels and full pixels; the pictures are registered, matched, and reduced by `factor`.
    """
    steep_first, steep_second = gradient_size(first), gradient_size(second)
    difference = second - first
    noise, centre = _noise(difference, steep_first, steep_second)
    shared = np.minimum(_dilate(steep_first), _dilate(steep_second))
    beyond = np.abs(difference - np.float32(centre)) - np.float32(_NOISE_FACTOR * noise + floor)
    return noise, float((beyond / (shared + _SOFT)).max()) * factor


def _noise(
    difference: FloatImage, steep_first: FloatImage, steep_second: FloatImage
) -> tuple[float, float]:
    """Standard deviation of the difference where both pictures are flat, and its median."""
    sample = np.s_[::3, ::3]
    is_flat = np.maximum(steep_first[sample], steep_second[sample]) < 3.0
    values = difference[sample][is_flat]
    if values.size < 100:
        values = difference[sample].ravel()
    centre = float(np.median(values))
    return _CLIPPING * 1.4826 * float(np.median(np.abs(values - centre))), centre


def _coarse_excess(first: FloatImage, second: FloatImage) -> float:
    """The worst of the octaves from 2 to 16 pixels: what is faint but large shows there."""
    worst = 0.0
    for octave, floor in enumerate(_FLOORS[1:], start=1):
        first, second = (smooth(_halve(picture), 0.8) for picture in (first, second))
        worst = max(worst, _excess(first, second, floor, 2**octave)[1])
    return worst


def _chroma_excess(first: Pixels, second: Pixels, motion: Motion) -> float:
    pair = _overlap(first, second, motion)
    if pair is None:
        return float("inf")
    halves = [smooth(_halve(plane.astype(np.float32)), 0.8) for plane in pair]
    return _excess(halves[0], halves[1], _CHROMA_FLOOR, 2)[1]


def _halve(picture: FloatImage) -> FloatImage:
    import cv2

    height, width = picture.shape[0] // 2, picture.shape[1] // 2
    return np.asarray(
        cv2.resize(
            picture[: 2 * height, : 2 * width], (width, height), interpolation=cv2.INTER_AREA
        )
    )


def _dilate(picture: Plane, size: int = 3) -> Plane:
    import cv2

    return np.asarray(cv2.dilate(picture, np.ones((size, size), np.uint8)))


def _limit(picture: FloatImage, noise: float) -> float | None:
    """Misregistration to tolerate on this page, or None where small changes would drown in it."""
    import cv2
    from scipy import ndimage

    steep = gradient_size(picture)
    is_edge = (steep > max(4.0, _NOISE_FACTOR * noise)).astype(np.uint8)
    _, labels, stats, _ = cv2.connectedComponentsWithStats(is_edge, connectivity=8)
    width, height = stats[:, cv2.CC_STAT_WIDTH], stats[:, cv2.CC_STAT_HEIGHT]
    is_text = (height >= _TEXT_HEIGHT[0]) & (height <= _TEXT_HEIGHT[1])
    is_text &= (width >= 5) & (width < 30 * height) & (height < 8 * width)
    is_text[0] = False
    pieces = np.flatnonzero(is_text)
    if not pieces.size:
        return None
    stroke = float(np.percentile(ndimage.maximum(steep, labels, pieces), 2)) / _MAX_STROKE_GRADIENT
    contrast = float(picture.max() - picture.min())
    unseen = _NOISE_FACTOR * noise + _FLOORS[0]
    dot = _DOT_GAIN * stroke * stroke / contrast
    by_height = _LIMIT_PER_HEIGHT * float(np.percentile(height[pieces], 20))
    by_depth = _DEPTH_FACTOR * (dot - unseen) / stroke
    limit = min(by_height, by_depth, _MAX_LIMIT)
    return limit if dot > unseen + _DOT_MARGIN and limit >= _MIN_LIMIT else None
