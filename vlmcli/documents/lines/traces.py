"""Traces: where a page has ink that is too fine for its view, in which thin strokes turn to white.

The page is reduced less than its view, in strips, so that memory stays small, and each pixel of the
result keeps the darkest and the lightest of what the view averages.
"""

import cv2
import numpy as np

from vlmcli.documents.lines.frame import View
from vlmcli.documents.lines.ink import Grey

_FINE = 3.0
"""Page pixels to one, at most, over which thin strokes are averaged."""
_STRIP = 1 << 20
"""Pixels of a strip, reduced."""
_GROUND_WINDOW = 15
_COARSE = 4
"""The ground is the median over 60 pixels of the view."""
_LEAST_CONTRAST = 26.0
_NOISE_FACTOR = 5.0


def traces(grey: Grey, shape: tuple[int, ...]) -> Grey:
    """Ink, dark or light, as a mask of 0 and 1.

    Args:
        grey: (H, W), the page.
        shape: (height, width) of the mask, which is smaller than the page.
    """
    mean, low, high = _pooled(grey, (shape[0], shape[1]))
    small = np.ascontiguousarray(mean[_COARSE // 2 :: _COARSE, _COARSE // 2 :: _COARSE])
    if min(small.shape) < _GROUND_WINDOW:
        return np.zeros(shape, np.uint8)
    ground = cv2.resize(cv2.medianBlur(small, _GROUND_WINDOW), mean.shape[::-1])
    # Half of a page in ink does not move the median (F. Hampel, 1974).
    spread = 1.4826 * float(np.median(cv2.absdiff(mean, ground)))
    least = max(_LEAST_CONTRAST, _NOISE_FACTOR * spread)
    found = (cv2.subtract(ground, low) > least) | (cv2.subtract(high, ground) > least)
    return np.asarray(found.view(np.uint8))


def _pooled(grey: Grey, shape: tuple[int, int]) -> tuple[Grey, Grey, Grey]:
    """The page reduced: means, and the darkest and the lightest of finer means."""
    height = len(grey)
    scale = max(height / shape[0], grey.shape[1] / shape[1])
    fine = max(1, int(np.ceil(scale / _FINE)))
    cell = np.ones((fine, fine), np.uint8)
    step = max(1, _STRIP // (shape[1] * fine * fine))
    mean, low, high = (np.empty(shape, np.uint8) for _ in range(3))
    for top in range(0, shape[0], step):
        rows = slice(top, min(top + step, shape[0]))
        start, stop = (round(row * height / shape[0]) for row in (rows.start, rows.stop))
        finer = (shape[1] * fine, (rows.stop - rows.start) * fine)
        strip = cv2.resize(grey[start:stop], finer, interpolation=cv2.INTER_AREA)
        mean[rows] = cv2.resize(
            strip, (shape[1], rows.stop - rows.start), interpolation=cv2.INTER_AREA
        )
        low[rows] = cv2.erode(strip, cell)[fine // 2 :: fine, fine // 2 :: fine]
        high[rows] = cv2.dilate(strip, cell)[fine // 2 :: fine, fine // 2 :: fine]
    return mean, low, high


def traces_in_view(grey: Grey, view: View) -> Grey:
    """The traces of a page on the pixels of a view of it, turned and deskewed like that."""
    scale = view.frame.scale
    found = traces(grey, (max(1, round(len(grey) / scale)), max(1, round(grey.shape[1] / scale))))
    matrix = np.array(view.frame.matrix)
    ratio = np.array([found.shape[1] / grey.shape[1], found.shape[0] / grey.shape[0]])
    # Pixel centres correspond: (x + 0.5) * ratio = X + 0.5.
    matrix *= ratio[:, None]
    matrix[:, 2] += 0.5 * ratio - 0.5
    turned = cv2.warpAffine(
        found,
        matrix,
        (view.dark.shape[1], view.dark.shape[0]),
        flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP,
    )
    return np.asarray(turned, np.uint8)
