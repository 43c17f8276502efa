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
from vlmcli.reuse.legibility import TILE, tolerances
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
Tiles = NDArray[np.float64]
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
_PAPER_DEPTH = 8.0
"""Grey levels from the paper's within which a place has the paper's noise."""
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
_FIXED_BYTES = 24 << 20
_BYTES_PER_PIXEL = 60
"""Memory of a comparison: 50 measured for grey pages, OpenCV's own 16 MiB beside them."""
_MIN_SIDE = 100
"""Pixels that a reduced picture must have to be registered."""
_STILL = 0.5
"""Pixels of motion below which the two frames count as one, to their very edges."""
_PLAIN_RANGE = 32.0
"""Grey levels between the lightest and darkest place of a margin without marks."""
_CHROMA_FLOOR = 4.0
_CHROMA_SLACK = 1.0
"""Grey levels, and pixels on top of the limit, by which colour planes may differ (fringes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a comparison found.

    `excess` is the misregistration (pixels) that would explain the worst difference, `limit` what
    this page tolerates; `motion` maps the second picture's coordinates to the first's. `likeness`
    is the correlation of the reduced pictures; 0 where they could not even be registered.
    """

    verdict: Verdict
    excess: float = 0.0
    limit: float = 0.0
    noise: float = 0.0
    motion: Motion | None = None
    likeness: float = 1.0

    @property
    def is_same(self) -> bool:
        """Whether the two pages are proven to be scans of one sheet."""
        return self.verdict == "same"


def compare_bytes(num_pixels: int) -> int:
    """Memory that the comparison of two pages of that size takes for a moment, in bytes."""
    return _FIXED_BYTES + _BYTES_PER_PIXEL * num_pixels


def compare(first: Sketch, second: Sketch) -> Difference:
    """Compare two pages, `second` against `first`.

    Raises:
        ValueError: a sketch does not decode.
    """
    if (
        abs(first.width - second.width) > MAX_SIZE_CHANGE
        or abs(first.height - second.height) > MAX_SIZE_CHANGE
    ):
        return Difference(verdict="size", likeness=0.0)
    if first.is_colour != second.is_colour:
        return Difference(verdict="colour", likeness=0.0)
    motion = _first_look(first.quarter, second.quarter)
    if isinstance(motion, Difference):
        return motion
    return _full_look(first.decode(), second.decode(), motion)


def _first_look(first: Pixels, second: Pixels) -> Motion | Difference:
    """Register the quarter-size pictures; most pages that differ are refused here, in 5 ms."""
    sizes = {4: (first, second), 8: (reduce(first, 2), reduce(second, 2))}
    looks = _FIRST_LOOKS if min(sizes[8][1].shape) >= _MIN_SIDE else _FIRST_LOOKS[1:]
    motion: Motion | None = coarse_motion(*sizes[looks[0][0]], looks[0][0])
    for factor, sigma, limit in looks:
        start, end = sizes[factor]
        assert motion is not None
        motion = refine(start, end, motion, factor, sigma)
        if motion is None or not motion.is_plausible(factor * end.shape[1], factor * end.shape[0]):
            return Difference(verdict="motion", likeness=0.0)
        pair = _common(start, end, motion.reduced(factor), _STILL / factor)
        smoothed = smooth(pair[0], 1.0), smooth(pair[1], 1.0)
        noise, excess = _excess(*smoothed, _FLOORS[factor.bit_length() - 1], factor)
        worst = float(excess.max())
        if worst > limit:
            return Difference(
                verdict="different",
                excess=worst,
                limit=limit,
                noise=noise,
                motion=motion,
                likeness=_likeness(*smoothed),
            )
    assert motion is not None
    return motion


def _likeness(first: FloatImage, second: FloatImage) -> float:
    """Correlation of two registered pictures, from -1 to 1: of bare paper nothing can be said."""
    one, other = first - first.mean(), second - second.mean()
    size = float(np.sqrt((one * one).sum() * (other * other).sum()))
    return float((one * other).sum()) / size if size else 0.0


def _full_look(first: Pixels, second: Pixels, start: Motion) -> Difference:
    planes = _planes(first), _planes(second)
    motion = refine(planes[0][0], planes[1][0], start, 1, 1.0)
    height, width = planes[1][0].shape
    if motion is None or not motion.is_plausible(width, height):
        return Difference(verdict="motion")
    if not all(_are_margins_plain(one, other, motion) for one, other in zip(*planes, strict=True)):
        return Difference(verdict="border", motion=motion)
    pair = _common(planes[0][0], planes[1][0], motion)
    smoothed = smooth(pair[0], 1.0), smooth(pair[1], 1.0)
    tone = match_tone(*smoothed)
    if tone is None or not tone.is_plausible(float(np.median(second))):
        return Difference(verdict="tone", motion=motion)
    matched = apply_tone(*smoothed, tone)
    noise, excess = _excess(*matched, _FLOORS[0])
    limits = tolerances(matched[0], _NOISE_FACTOR * noise + _FLOORS[0])
    if limits is None:
        return Difference(verdict="text-too-small", noise=noise, motion=motion)
    excess = np.maximum(excess, _coarse_excess(*matched) / _COARSE_FACTOR)
    for plane in zip(planes[0][1:], planes[1][1:], strict=True):
        excess = np.maximum(excess, _chroma_excess(*plane, motion) - _CHROMA_SLACK)
    worst = np.unravel_index(np.argmax(excess / limits), limits.shape)
    return Difference(
        verdict="same" if excess[worst] <= limits[worst] else "different",
        excess=float(excess[worst]),
        limit=float(limits[worst]),
        noise=noise,
        motion=motion,
    )


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


def _common(
    first: Pixels, second: Pixels, motion: Motion, still: float = _STILL
) -> tuple[Pixels, Pixels]:
    """Both pictures in the second's coordinates; where the first does not reach they are equal."""
    warped = _warp(first, motion, second.shape)
    if motion.reach(second.shape[1], second.shape[0]) < still:
        return warped, second
    margin = _outside(first.shape, motion, second.shape)
    # The outermost pixels too: a margin thinner than a pixel still darkens them.
    margin[[0, -1]] = margin[:, [0, -1]] = 1
    return warped, np.where(_dilate(margin, 7).astype(bool), warped, second)


def _are_margins_plain(first: Pixels, second: Pixels, motion: Motion) -> bool:
    """Whether what only one of the pictures shows is paper, or the fill of a turned picture."""
    if motion.reach(second.shape[1], second.shape[0]) < _STILL:
        return True
    only_second = _outside(first.shape, motion, second.shape)
    only_first = _outside(second.shape, motion.inverse(), first.shape)
    return _is_plain(second, only_second) and _is_plain(first, only_first)


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
) -> tuple[float, Tiles]:
    """Noise, and for each tile the misregistration that would explain its worst difference.

    In grey levels and full pixels; the pictures are registered, matched, and reduced by `factor`.
    """
    steep_first, steep_second = gradient_size(first), gradient_size(second)
    difference = second - first
    noise, centre, paper = _noise(first, difference, np.maximum(steep_first, steep_second))
    shared = np.minimum(_dilate(steep_first), _dilate(steep_second))
    ink = np.minimum(np.abs(first - paper), np.abs(second - paper))
    noise_there = np.where(ink < _PAPER_DEPTH, np.float32(1), np.float32(_CLIPPING))
    beyond = np.abs(difference - centre) - noise_there * np.float32(_NOISE_FACTOR * noise) - floor
    return _CLIPPING * noise, _tile_maxima(factor * beyond / (shared + _SOFT), TILE // factor)


def _tile_maxima(picture: FloatImage, side: int) -> Tiles:
    rows, columns = -(-picture.shape[0] // side), -(-picture.shape[1] // side)
    padded = np.full((rows * side, columns * side), -np.inf, np.float32)
    padded[: picture.shape[0], : picture.shape[1]] = picture
    maxima = padded.reshape(rows, side, columns, side).max((1, 3))
    return np.asarray(maxima, dtype=np.float64)


def _noise(
    picture: FloatImage, difference: FloatImage, steep: FloatImage
) -> tuple[float, np.float32, np.float32]:
    """Of the difference on flat ground: standard deviation and median; and the ground's grey."""
    sample = np.s_[::3, ::3]
    is_flat = steep[sample] < 3.0
    if is_flat.sum() < 100:
        is_flat[:] = True
    values = difference[sample][is_flat]
    centre = np.median(values)
    spread = 1.4826 * float(np.median(np.abs(values - centre)))
    return spread, np.float32(centre), np.float32(np.median(picture[sample][is_flat]))


def _coarse_excess(first: FloatImage, second: FloatImage) -> Tiles:
    """The worst of the octaves from 2 to 16 pixels: what is faint but large shows there."""
    shape = tuple(-(-side // TILE) for side in first.shape)
    worst = np.full(shape, -np.inf)
    for octave, floor in enumerate(_FLOORS[1:], start=1):
        first, second = (smooth(_halve(picture), 0.8) for picture in (first, second))
        _merge(worst, _excess(first, second, floor, 2**octave)[1])
    return worst


def _chroma_excess(first: Pixels, second: Pixels, motion: Motion) -> Tiles:
    shape = tuple(-(-side // TILE) for side in second.shape)
    worst = np.full(shape, -np.inf)
    pair = _common(first, second, motion)
    halves = [smooth(_halve(plane.astype(np.float32)), 0.8) for plane in pair]
    _merge(worst, _excess(halves[0], halves[1], _CHROMA_FLOOR, 2)[1])
    return worst


def _merge(worst: Tiles, excess: Tiles) -> None:
    """Raise `worst` to `excess`, which may lack the last tiles: halving drops odd pixels."""
    rows, columns = excess.shape
    np.maximum(worst[:rows, :columns], excess, out=worst[:rows, :columns])


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
