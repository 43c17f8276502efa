"""Degrades a rendered line the way printers, typewriters, scanners and cameras do.

Every function takes and returns a float32 picture (height, width), 0 black to 255 white, and draws
its strength from the generator that it is given; `screen` alone makes it smaller. Geometry here
never moves glyphs along the line by more than a pixel or two, so that the known glyph centres stay
true. Physical simulation of toner was given up: blur, a soft threshold and noise already look like
it.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.float32]
Rng = np.random.Generator


def _field(shape: tuple[int, int], cells: float, rng: Rng) -> Picture:
    """Smooth noise of unit variance at the corners of a grid `cells` pixels wide."""
    height, width = shape
    grid = (max(2, int(height / cells) + 2), max(2, int(width / cells) + 2))
    coarse = rng.standard_normal(grid, dtype=np.float32)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.float32)


def strokes(picture: Picture, rng: Rng, strength: float = 1.0) -> Picture:
    """Fatten or thin the strokes: blur, then a soft threshold off the middle."""
    sigma = rng.uniform(0.5, 1.0) * max(0.5, picture.shape[0] / 45)
    blurred = cv2.GaussianBlur(picture, (0, 0), sigma)
    middle = 127 + strength * rng.uniform(-55, 70)
    slope = rng.uniform(0.02, 0.06)
    return (255 / (1 + np.exp(np.clip((middle - blurred) * slope, -30, 30)))).astype(np.float32)


def ribbon(picture: Picture, rng: Rng) -> Picture:
    """Uneven ink of a typewriter ribbon: whole patches fade, strokes are mottled."""
    ink = 255 - picture
    patches = 1 - np.clip(rng.uniform(0, 0.35) * (_field(picture.shape, 14, rng) + 0.3), 0, 0.75)
    grain = 1 - np.clip(rng.uniform(0, 0.45) * _field(picture.shape, 2.2, rng), -0.3, 0.9)
    return np.clip(255 - ink * patches * grain, 0, 255).astype(np.float32)


def bilevel(picture: Picture, rng: Rng) -> Picture:
    """Threshold to black and white, with the noise of the sensor before it."""
    noisy = picture + rng.standard_normal(picture.shape, dtype=np.float32) * rng.uniform(2, 26)
    return np.where(noisy > rng.uniform(95, 180), 255, 0).astype(np.float32)


def blur(picture: Picture, rng: Rng) -> Picture:
    """Defocus, or a short motion along one axis."""
    sigma = rng.uniform(0.3, 1.1) * max(0.6, picture.shape[0] / 40)
    if rng.random() < 0.25:
        wide = rng.random() < 0.5
        return cv2.GaussianBlur(
            picture, (0, 0), sigmaX=sigma if wide else 0.2, sigmaY=0.2 if wide else sigma
        ).astype(np.float32)
    return cv2.GaussianBlur(picture, (0, 0), sigma).astype(np.float32)


def noise(picture: Picture, rng: Rng) -> Picture:
    """Sensor noise, fine or clumped."""
    grain = rng.standard_normal(picture.shape, dtype=np.float32)
    if rng.random() < 0.4:
        grain = cv2.GaussianBlur(grain, (0, 0), 0.7) * 2
    return (picture + grain * rng.uniform(2, 16)).astype(np.float32)


def specks(picture: Picture, rng: Rng) -> Picture:
    """Dirt and dropouts: a few dark or white dots."""
    result = picture.copy()
    height, width = picture.shape
    for _ in range(int(rng.integers(1, 3 + width // 60))):
        centre = (int(rng.integers(width)), int(rng.integers(height)))
        radius = int(rng.integers(0, max(2, height // 22)))
        cv2.circle(result, centre, radius, float(rng.choice([0, 40, 255])), -1)
    return result


def light(picture: Picture, rng: Rng) -> Picture:
    """Uneven light and paper tone along and across the line."""
    height, width = picture.shape
    ramp = np.linspace(-1, 1, width, dtype=np.float32)[None] * rng.uniform(-28, 28)
    stains = _field(picture.shape, height * 2.0, rng) * rng.uniform(0, 9)
    return (picture + ramp + stains).astype(np.float32)


def jpeg(picture: Picture, rng: Rng) -> Picture:
    """JPEG blocks and ringing."""
    pixels = np.clip(picture, 0, 255).astype(np.uint8)
    done, data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(22, 85))])
    assert done
    return cv2.imdecode(data, cv2.IMREAD_GRAYSCALE).astype(np.float32)


def contrast(picture: Picture, rng: Rng) -> Picture:
    """Grey ink on coloured or grey paper."""
    paper = rng.uniform(165, 255)
    ink = rng.uniform(0, min(100, paper - 90))
    return (ink + picture * ((paper - ink) / 255)).astype(np.float32)


def bleed(picture: Picture, rng: Rng) -> Picture:
    """The other side of the sheet, mirrored and faint."""
    other = np.roll(picture[:, ::-1], int(rng.integers(-8, 9)), axis=0)
    other = cv2.GaussianBlur(other, (0, 0), rng.uniform(0.6, 1.6))
    return np.minimum(picture, 255 - (255 - other) * rng.uniform(0.08, 0.3)).astype(np.float32)


def rules(picture: Picture, rng: Rng) -> Picture:
    """A printed rule under, over or through the line, or a table border at its ends."""
    result = picture.copy()
    height, width = picture.shape
    ink = float(rng.choice([0, 0, 60, 120]))
    thick = max(1, int(rng.integers(1, max(2, height // 16) + 1)))
    if rng.random() < 0.6:
        row = height - 1 - int(rng.integers(0, max(1, height // 6)))
        row = row if rng.random() < 0.75 else int(rng.integers(0, max(1, height // 8)))
        cv2.line(result, (0, row), (width, row), ink, thick)
    if rng.random() < 0.6:
        side = int(rng.integers(0, 3))
        column = side if rng.random() < 0.5 else width - 1 - side
        cv2.line(result, (column, 0), (column, height), ink, thick)
    return result


def bend(picture: Picture, rng: Rng) -> Picture:
    """Skew, slant and curvature that a line finder leaves in its crops."""
    height, width = picture.shape
    columns = np.arange(width, dtype=np.float32)
    rise = rng.uniform(-0.05, 0.05) * height * (columns / width - 0.5) * 2
    phase = rng.uniform(0, 2 * np.pi)
    wave = rng.uniform(0, 0.035) * height * np.sin(columns / (height * rng.uniform(6, 20)) + phase)
    rows = np.arange(height, dtype=np.float32)
    slant = rng.uniform(-0.16, 0.16) * (rows - height / 2)
    map_x = (columns[None, :] + slant[:, None]).astype(np.float32)
    map_y = (rows[:, None] + (rise + wave)[None, :]).astype(np.float32)
    return cv2.remap(
        picture, map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=255
    ).astype(np.float32)


def low_resolution(picture: Picture, rng: Rng) -> Picture:
    """What a 75 to 120 dpi scan keeps of it; the size comes back, the detail does not."""
    height, width = picture.shape
    rows = rng.uniform(12, 20)
    factor = min(1.0, rows / height)
    small = cv2.resize(
        picture,
        (max(4, int(width * factor)), max(8, int(height * factor))),
        interpolation=cv2.INTER_AREA,
    )
    small = noise(small, rng) if rng.random() < 0.5 else small
    small = jpeg(small, rng) if rng.random() < 0.6 else small
    way = cv2.INTER_CUBIC if rng.random() < 0.6 else cv2.INTER_LINEAR
    return cv2.resize(small, (width, height), interpolation=way).astype(np.float32)


def screen(picture: Picture, rng: Rng) -> Picture:
    """Small print as a page renderer draws it at screen resolution: smooth, without noise.

    The result has the rows that such a page has, 11 to 21.
    """
    height, width = picture.shape
    factor = min(1.0, rng.uniform(11, 21) / height)
    size = (max(4, round(width * factor)), max(8, round(height * factor)))
    return cv2.resize(picture, size, interpolation=cv2.INTER_AREA).astype(np.float32)


def levels(picture: Picture) -> Picture:
    """Even paper and full ink, as the line finder of `vlmcli` hands its crops to the model.

    Paper is the 80th percentile of each stretch two heights wide and becomes 255, the darkest
    2 % become 0, the gain is at most 4.
    """
    height, width = picture.shape
    starts = range(0, width, 2 * height)
    papers = [float(np.percentile(picture[::2, at : at + 2 * height : 2], 80)) for at in starts]
    centres = [min(at + height, width - 1) for at in starts]
    paper = np.maximum(np.interp(np.arange(width), centres, papers), 16.0)
    flat = np.minimum(np.clip(picture, 0, 255) * (255.0 / paper)[None, :], 255.0)
    gain = min(255.0 / max(255.0 - float(np.percentile(flat[::2, ::2], 2)), 1.0), 4.0)
    return np.clip(255.0 - (255.0 - flat) * gain, 0, 255).astype(np.float32)


Step = tuple[float, Callable[[Picture, Rng], Picture]]

# Each profile is one way a page comes to be a picture: (probability, step), applied in order.
PROFILES: dict[str, tuple[Step, ...]] = {
    "clean": ((0.1, rules), (0.2, contrast), (0.15, blur), (0.1, jpeg)),
    "screen": ((0.1, rules), (0.15, contrast), (1.0, screen), (0.08, jpeg)),
    "print": (
        (0.1, rules),
        (0.7, strokes),
        (0.4, bend),
        (0.15, specks),
        (0.75, bilevel),
        (0.1, blur),
    ),
    "grey": (
        (0.1, rules),
        (0.4, strokes),
        (0.4, bend),
        (0.5, contrast),
        (0.12, bleed),
        (0.5, blur),
        (0.5, light),
        (0.6, noise),
        (0.4, jpeg),
    ),
    "typescript": (
        (0.75, ribbon),
        (0.85, strokes),
        (0.4, bend),
        (0.12, bleed),
        (0.12, specks),
        (0.15, bilevel),
        (0.6, contrast),
        (0.35, blur),
        (0.3, light),
        (0.45, noise),
        (0.35, jpeg),
    ),
    "low": (
        (0.3, ribbon),
        (0.4, strokes),
        (0.3, bend),
        (0.4, contrast),
        (0.1, bleed),
        (0.2, blur),
        (1.0, low_resolution),
        (0.2, light),
        (0.2, noise),
    ),
}


def degrade(picture: Picture, profile: str, rng: Rng) -> Picture:
    """Apply one profile; the result is as large or a smaller whole, values clipped to 0 … 255."""
    for probability, step in PROFILES[profile]:
        if rng.random() < probability:
            picture = step(picture, rng)
    return np.clip(picture, 0, 255).astype(np.float32)
