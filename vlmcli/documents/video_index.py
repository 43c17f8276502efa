"""Which frames of a video are its pages, from the packets of the file: nothing is decoded.

A page is the frame that is on display at a multiple of the interval; a frame that stays on for
longer is one page. Keeps eight bytes a frame, whatever the file's size.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

TOLERANCE = 0.5
"""Milliseconds: containers round times to one."""

Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoIndex:
    """Times in milliseconds from the beginning of the video, rising.

    `pages` are the frames to read; at `keys` decoding can begin.
    """

    pages: Times
    keys: Times


def scan_packets(grab: Callable[[], bool], get: Callable[[int], float]) -> "VideoIndexer":
    """Read all packets of a capture that was opened without decoding.

    Args:
        grab: reads the next packet; False at the end.
        get: a property of the packet, by OpenCV's number.
    """
    import cv2

    indexer = VideoIndexer()
    while grab():
        time = get(cv2.CAP_PROP_POS_MSEC)
        indexer.add(time, is_key=bool(get(cv2.CAP_PROP_LRF_HAS_KEY_FRAME)))
    return indexer


class VideoIndexer:
    """Collects the frames of a video, which come in the order of decoding."""

    def __init__(self) -> None:
        self._times: array[float] = array("d")
        self._keys: array[float] = array("d")

    def add(self, time: float, *, is_key: bool) -> None:
        """The next packet's time in milliseconds, and whether decoding can begin with it."""
        self._times.append(time)
        if is_key:
            self._keys.append(time)

    def index(self, interval: float, *, last: float, end: float) -> VideoIndex:
        """The index for an interval.

        Args:
            interval: milliseconds between pages.
            last: time of the last frame that can be decoded: what lies behind it is no page.
            end: of the video, as the file says.
        """
        times = np.unique(_numbers(self._times))
        return VideoIndex(
            pages=displayed(times[times <= last + TOLERANCE], interval, end),
            keys=np.unique(_numbers(self._keys)),
        )

    @property
    def num_packets(self) -> int:
        """Frames that the file has, decodable or not."""
        return len(self._times)

    @property
    def last_key(self) -> float:
        """Where decoding can begin last; 0 where nowhere else."""
        return max(self._keys, default=0.0)


def displayed(times: Times, interval: float, end: float = 0.0) -> Times:
    """Those frames that are on display at a multiple of `interval`, counted from the first.

    Args:
        times: of frames, in milliseconds, rising.
        interval: milliseconds, above zero.
        end: until when the last frame stays; at least as long as the median of the others.
    """
    if len(times) == 0:
        return times
    stay = float(np.median(np.diff(times))) if len(times) > 1 else interval
    ends = np.append(times[1:], max(times[-1] + stay, end))
    first_sample_from = np.ceil((times - times[0] - TOLERANCE) / interval)
    first_sample_behind = np.ceil((ends - times[0] - TOLERANCE) / interval)
    chosen: Times = times[first_sample_from < first_sample_behind]
    return chosen


def _numbers(values: Any) -> Times:
    return np.frombuffer(values, np.float64) if len(values) else np.zeros(0)
