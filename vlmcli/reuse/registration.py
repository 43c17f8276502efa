"""Sub-pixel registration of two grey pictures of what may be one page.

Finds the affine map between two scans of a sheet: a shift by phase correlation, then least squares
on grey values (Lucas and Kanade, 1981), coarse to fine. Refuses maps that no scanner makes of one
sheet. Gave up: local distortion (a sheet that slipped in the feeder); the comparison then refuses.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatImage = NDArray[np.float32]
Affine = NDArray[np.float64]

MAX_SHIFT = 24.0
"""Pixels by which the centre may have moved: 3 mm at 200 dpi."""
MAX_TURN = 0.02
"""Radians, or relative change of scale or shear, that a rescan may show."""
_POINTS = 40_000
_MIN_POINTS = 128
_ROW = 32
_ENOUGH_POINTS = 2000
_EDGE_SHARE = 0.03
_BORDER = 8
_ROUNDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """How the second picture lies on the first.

    `matrix` (2, 3) float64 maps pixel coordinates (x, y, 1) of the second picture to the first's.
    """

    matrix: Affine

    def is_plausible(self, width: int, height: int) -> bool:
        """Whether a rescan of one sheet can have moved so (sizes in pixels)."""
        centre = np.array([(width - 1) / 2, (height - 1) / 2, 1.0])
        shift = self.matrix @ centre - centre[:2]
        turn = self.matrix[:, :2] - np.eye(2)
        return bool(np.abs(shift).max() <= MAX_SHIFT and np.abs(turn).max() <= MAX_TURN)

    def reach(self, width: int, height: int) -> float:
        """The largest displacement of any corner, in pixels."""
        corners = np.array(
            [[x, y, 1.0] for x in (0, width - 1) for y in (0, height - 1)], dtype=np.float64
        )
        return float(np.abs(corners @ self.matrix.T - corners[:, :2]).max())

    def inverse(self) -> "Motion":
        """The motion that maps the first picture's coordinates to the second's."""
        inverse = np.linalg.inv(self.matrix[:, :2])
        return Motion(matrix=np.column_stack([inverse, -inverse @ self.matrix[:, 2]]))

    def reduced(self, factor: int) -> "Motion":
        """The same motion between the pictures reduced by `factor`."""
        half = (factor - 1) / 2
        linear, offset = self.matrix[:, :2], self.matrix[:, 2]
        return Motion(
            matrix=np.column_stack([linear, (offset + linear.sum(1) * half - half) / factor])
        )


def reduce(image: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """The picture, (H, W) or (H, W, C), shrunk by a whole factor: each pixel a block's mean."""
    import cv2

    height, width = image.shape[0] // factor * factor, image.shape[1] // factor * factor
    if not height or not width:
        return image
    size = (width // factor, height // factor)
    return np.asarray(
        cv2.resize(image[:height, :width], size, interpolation=cv2.INTER_AREA), dtype=np.uint8
    )


def smooth(image: NDArray[np.generic], sigma: float) -> FloatImage:
    """Gaussian smoothing with `sigma` in pixels; float32 (H, W)."""
    import cv2

    blurred = cv2.GaussianBlur(
        image.astype(np.float32, copy=False), (0, 0), sigma, borderType=cv2.BORDER_REPLICATE
    )
    return np.asarray(blurred, dtype=np.float32)


def gradient(image: FloatImage) -> tuple[FloatImage, FloatImage]:
    """Derivatives along x and y (Sobel), grey levels per pixel."""
    import cv2

    make = [
        cv2.Sobel(image, cv2.CV_32F, *order, ksize=3, scale=1 / 8, borderType=cv2.BORDER_REPLICATE)
        for order in ((1, 0), (0, 1))
    ]
    return np.asarray(make[0]), np.asarray(make[1])


def gradient_size(image: FloatImage) -> FloatImage:
    """Length of the gradient, grey levels per pixel."""
    import cv2

    return np.asarray(cv2.magnitude(*gradient(image)), dtype=np.float32)


def coarse_motion(first: NDArray[np.uint8], second: NDArray[np.uint8], factor: int) -> Motion:
    """The shift between two pictures reduced by `factor`, as a motion of the full pictures."""
    import cv2

    height = min(first.shape[0], second.shape[0])
    width = min(first.shape[1], second.shape[1])
    window = cv2.createHanningWindow((width, height), cv2.CV_32F)
    (dx, dy), _ = cv2.phaseCorrelate(
        second[:height, :width].astype(np.float32),
        first[:height, :width].astype(np.float32),
        window,
    )
    return Motion(matrix=np.array([[1.0, 0.0, factor * dx], [0.0, 1.0, factor * dy]]))


def refine(
    first: NDArray[np.uint8], second: NDArray[np.uint8], motion: Motion, factor: int, sigma: float
) -> Motion | None:
    """A better motion from grey values at one scale.

    Args:
        first, second: grey uint8 (H, W), the pictures reduced by `factor`.
        motion: where to start, in coordinates of the full pictures.
        factor: how much the pictures were reduced.
        sigma: smoothing in reduced pixels; the start may be wrong by about twice that.

    Returns:
        The motion in full coordinates, or None where the picture has too few edges to tell.
    """
    import cv2

    source, target = smooth(first, sigma), smooth(second, sigma)
    along_x, along_y = gradient(target)
    picked = _edge_points(along_x * along_x + along_y * along_y)
    if picked is None:
        return None
    y, x = (axis.astype(np.float32) for axis in np.divmod(picked, target.shape[1]))
    centre = np.array([(target.shape[1] - 1) / 2, (target.shape[0] - 1) / 2])
    length = max(target.shape) / 2
    u, v = (x - centre[0]) / length, (y - centre[1]) / length
    gx, gy, level = (plane.ravel()[picked] for plane in (along_x, along_y, target))
    # The last two columns absorb brightness and contrast, which are matched later.
    jacobian = np.stack([gx, gx * u, gx * v, gy, gy * u, gy * v, level, np.ones_like(level)], 1)
    jacobian = jacobian.astype(np.float64)
    state = _to_state(motion, factor, centre, length)
    for _ in range(_ROUNDS):
        moved_x = x + state[0] + state[1] * u + state[2] * v
        moved_y = y + state[3] + state[4] * u + state[5] * v
        sampled = cv2.remap(
            source,
            moved_x.astype(np.float32).reshape(-1, _ROW),
            moved_y.astype(np.float32).reshape(-1, _ROW),
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        ).ravel()
        residual = (level - sampled).astype(np.float64)
        weighted = jacobian * _huber(residual)[:, None]
        step = np.linalg.lstsq(weighted.T @ jacobian, weighted.T @ residual, rcond=None)[0][:6]
        state = state + step
        if np.abs(step).sum() < 0.01:
            break
    return _to_motion(state, factor, centre, length)


def _edge_points(energy: FloatImage) -> NDArray[np.int64] | None:
    energy = energy.copy()
    for edge in (np.s_[:_BORDER], np.s_[-_BORDER:]):
        energy[edge] = 0
        energy[:, edge] = 0
    flat = energy.ravel()
    share = min(max(_EDGE_SHARE, _ENOUGH_POINTS / flat.size), 0.5)
    bar = max(float(np.quantile(flat[::7], 1 - share)), 4.0)
    picked = np.flatnonzero(flat > bar)
    if picked.size < _MIN_POINTS:
        return None
    picked = picked[:: max(1, picked.size // _POINTS)]
    return picked[: picked.size // _ROW * _ROW].astype(np.int64)


def _huber(residual: NDArray[np.float64]) -> NDArray[np.float64]:
    size = np.abs(residual)
    bend = 2 * float(np.median(size)) + 1e-3
    return np.asarray(1 / np.maximum(1, size / bend))


def _to_state(
    motion: Motion, factor: int, centre: NDArray[np.float64], length: float
) -> NDArray[np.float64]:
    """Displacement in reduced pixels: at the centre, and per half side along u and v."""
    half = (factor - 1) / 2
    linear = motion.matrix[:, :2] - np.eye(2)
    shift = (linear @ (factor * centre + half) + motion.matrix[:, 2]) / factor
    turn = linear * length
    return np.array([shift[0], turn[0, 0], turn[0, 1], shift[1], turn[1, 0], turn[1, 1]])


def _to_motion(
    state: NDArray[np.float64], factor: int, centre: NDArray[np.float64], length: float
) -> Motion:
    half = (factor - 1) / 2
    linear = np.array([[state[1], state[2]], [state[4], state[5]]]) / length
    offset = factor * np.array([state[0], state[3]]) - linear @ (factor * centre + half)
    return Motion(matrix=np.column_stack([np.eye(2) + linear, offset]))
