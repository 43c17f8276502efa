"""Crops of lines as the engine is shown them: padded to whole visual tokens, named by a digest."""

import hashlib

import numpy as np
import numpy.typing as npt

from vlmcli.engine.config import ModelConfig
from vlmcli.engine.preprocess import pad_line

Pixels = npt.NDArray[np.uint8]


def column_width(config: ModelConfig) -> int:
    """Width of one visual token in pixels."""
    return config.vision.patch_size * config.vision.merge_size


def pad_crop(pixels: Pixels, column: int) -> Pixels:
    """The crop, (H, W) grey, widened with its own background to whole columns of visual tokens."""
    return np.ascontiguousarray(pad_line(pixels, column, fill=int(np.median(pixels[:, -2:]))))


def crop_digest(pixels: Pixels) -> bytes:
    """SHA-256 over mode, size and pixels: 32 bytes, equal only for equal pictures."""
    height, width = pixels.shape
    digest = hashlib.sha256(f"L {width} {height}\0".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


def redrawn(pixels: Pixels, stretch: float) -> Pixels:
    """A crop, uint8 (H, W), drawn `stretch` times as wide: other pixels of the same letters.

    Interpolated linearly, here: OpenCV would cost the main process 20 MB for this alone.
    """
    width = pixels.shape[1]
    new_width = max(1, round(stretch * width))
    place = np.clip((np.arange(new_width) + 0.5) * width / new_width - 0.5, 0, width - 1)
    left = place.astype(np.int64)
    right = np.minimum(left + 1, width - 1)
    share = (place - left).astype(np.float32)
    wider = pixels[:, left] * (1 - share) + pixels[:, right] * share
    return np.asarray(np.round(wider), np.uint8)
