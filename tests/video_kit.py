"""Videos made for tests: pictures of large numbers, in formats that OpenCV can write."""

from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

Frames = Iterable[np.ndarray]

FORMATS = {"avi": ("MJPG", "a.avi"), "mp4": ("mp4v", "a.mp4"), "mkv": ("XVID", "a.mkv")}
FORMATS["webm"] = ("VP80", "a.webm")


def numbered(count: int, size: tuple[int, int] = (160, 96)) -> Frames:
    """Pictures of `size` (width, height), BGR, with their number in them and a shade of its own."""
    for number in range(count):
        frame = np.full((size[1], size[0], 3), 255 - number % 100, np.uint8)
        cv2.putText(frame, str(number), (10, 70), cv2.FONT_HERSHEY_SIMPLEX, 2, (0, 0, 0), 4)
        yield frame


def write_video(path: Path, frames: Frames, *, code: str = "MJPG", rate: float = 10) -> Path:
    """Write frames, BGR (H, W, 3), `rate` a second."""
    writer = None
    for frame in frames:
        if writer is None:
            size = frame.shape[1], frame.shape[0]
            writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*code), rate, size)
            assert writer.isOpened()
        writer.write(frame)
    assert writer is not None
    writer.release()
    return path


def decoded(path: Path) -> list[tuple[float, np.ndarray]]:
    """Every frame with its time in milliseconds, BGR, decoded from the first to the last."""
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    frames = []
    while capture.grab():
        frames.append((capture.get(cv2.CAP_PROP_POS_MSEC), capture.retrieve()[1]))
    capture.release()
    return frames
