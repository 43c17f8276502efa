"""Videos through OpenCV: MP4, Matroska, WebM and AVI; frames at an interval are pages, upright.

A frame is found by its time, decoded from the last place before it where decoding can begin, so
that it is the same whatever was asked for before and in whichever process. Holds one frame. Gave
up: sound, subtitles, and what this build of OpenCV has no decoder for (AV1).
"""

import os
from bisect import bisect_right
from types import ModuleType
from typing import Any

from vlmcli.documents.base import (
    Closing,
    PageHandle,
    Picture,
    Pixels,
    RenderSpec,
    Source,
    StoredImage,
    TextLayer,
)
from vlmcli.documents.video_checks import VideoKind, ends_early
from vlmcli.documents.video_index import TOLERANCE, VideoIndex, scan_packets
from vlmcli.errors import InputError, PageError

_HELD_BYTES = 24
"""A pixel while frames are decoded: reference frames, conversion, and two copies of the picture in
BGR; 16 to 24 were measured with H.264 and VP9 at 1080 and 2160 lines."""
_STEPS_BACK = (0.0, 1_000.0, 10_000.0, 100_000.0)
"""Milliseconds before a key frame that are tried: OpenCV counts frames where their distance varies,
and comes out behind the place that it was sent to."""


def open_video(
    source: Source, kind: VideoKind, *, strict: bool, frame_interval: float
) -> "VideoDocument":
    """Open a file that begins like a video.

    Args:
        source: the file.
        kind: its container.
        strict: whether a file that is cut short, or has lost frames, is refused.
        frame_interval: seconds between pages.

    Raises:
        InputError: no video inside, none that can be decoded, or damaged; with `strict`, also if
            only a part is missing.
    """
    warning = ""
    if ends_early(source.path, kind):
        warning = _incomplete(source, "the file ends early; content may be missing", strict)
    packets = _open_capture(source, decode=False)
    try:
        indexer = scan_packets(packets.grab, packets.get)
    finally:
        packets.release()
    player = _Player(source)
    try:
        last = player.last_time(indexer.last_key)
        if not indexer.num_packets:
            raise InputError(f"{source.name}: no frames in it", code="no-pages")
        if last is None:
            raise InputError(
                f"{source.name}: no frame can be decoded (codec {player.codec})",
                remedy="it may be damaged or cut short; if not, convert it to H.264 or VP9",
                code="unreadable",
            )
        index = indexer.index(frame_interval * 1000, last=last, end=player.end)
        # Frames of an AVI have no times but their places in the row: lost ones move the others.
        if kind == "avi" and not warning and indexer.num_packets < player.num_frames:
            there = f"{indexer.num_packets} of {player.num_frames} frames are there"
            note = f"damaged: {there}; content may be missing, and times behind the gap are wrong"
            warning = _incomplete(source, note, strict)
        if not len(index.pages):
            raise InputError(f"{source.name}: no frames in it", code="no-pages")
        player.keys = index.keys.tolist()
    except InputError:
        player.close()
        raise
    return VideoDocument(source, player, index, (warning,) if warning else ())


def _incomplete(source: Source, note: str, strict: bool) -> str:
    """The note, as a warning.

    Raises:
        InputError: `strict`.
    """
    if not strict:
        return note
    raise InputError(
        f"{source.name}: {note}",
        remedy="leave out --strict to read what is there",
        code="damaged",
    )


class VideoDocument(Closing):
    """An open video; implements `Document`."""

    def __init__(
        self, source: Source, player: "_Player", index: VideoIndex, warnings: tuple[str, ...]
    ) -> None:
        self.source = source
        self.num_pages = len(index.pages)
        self.warnings = warnings
        self._player = player
        self._times = index.pages

    def close(self) -> None:
        """Let go of the file; closing twice is fine."""
        self._player.close()

    def page(self, index: int) -> PageHandle:
        """Measure frame `index` (from 0) of those that are pages."""
        width, height = self._player.size
        return PageHandle(
            document=self.source.name,
            index=index,
            num_pages=self.num_pages,
            width=float(width),
            height=float(height),
            unit="px",
            rotation=self._player.rotation,
            largest_image=StoredImage(
                width=width, height=height, components=_HELD_BYTES, filter=""
            ),
            time=round(float(self._times[index]) / 1000, 3),
        )

    def render(self, index: int, spec: RenderSpec) -> Picture:
        """The frame upright, made smaller where it is beyond the budget; see `Document`."""
        handle = self.page(index)
        size = handle.pixel_size(spec.dpi, spec.max_pixels)
        held = round(handle.width * handle.height) * _HELD_BYTES
        if held > spec.max_decoded_bytes:
            shown = f"{handle.width:.0f} × {handle.height:.0f}"
            raise PageError(
                f"a frame of {shown} pixels is too large to decode",
                remedy=f"raise --max-pixels to {RenderSpec.least_pixels(held)}",
                code="bomb",
            )
        frame = self._player.frame(float(self._times[index]))
        if frame is None:
            raise PageError(f"the frame at {handle.time:g} s cannot be decoded")
        cv2 = _opencv()
        if frame.shape[:2] != (size.height, size.width):
            frame = cv2.resize(frame, (size.width, size.height), interpolation=cv2.INTER_AREA)
        pixels: Pixels = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY if spec.grey else cv2.COLOR_BGR2RGB)
        return Picture(pixels=pixels, dpi=None, downscaled=size.downscaled)

    def text_layer(self, index: int, spec: RenderSpec) -> TextLayer | None:
        """None: videos carry no text of their own that is looked at."""
        return None


class _Player:
    """Decodes frames by their time; forwards where that is shorter than to begin anew."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._capture = _open_capture(source, decode=True)
        self.keys: list[float] = [0.0]
        """Times from which decoding can begin, rising."""
        self._now: float | None = None
        """Time of the frame that was decoded last; None at the beginning."""
        cv2 = _opencv()
        self.size = (
            max(1, round(self._capture.get(cv2.CAP_PROP_FRAME_WIDTH))),
            max(1, round(self._capture.get(cv2.CAP_PROP_FRAME_HEIGHT))),
        )
        rate = self._capture.get(cv2.CAP_PROP_FPS)
        self.num_frames = max(0, round(self._capture.get(cv2.CAP_PROP_FRAME_COUNT)))
        """Frames that the file says that it has."""
        self.end = 1000 * self.num_frames / rate if rate > 0 else 0.0
        """Milliseconds that the file says that the video has."""
        self.rotation = round(self._capture.get(cv2.CAP_PROP_ORIENTATION_META)) % 360
        code = int(self._capture.get(cv2.CAP_PROP_FOURCC)) & 0xFFFFFFFF
        self.codec = code.to_bytes(4, "little").decode("ascii", "replace").strip("\0 ") or "unknown"

    def close(self) -> None:
        self._capture.release()

    def last_time(self, last_key: float) -> float | None:
        """The time of the last frame that can be decoded; None if there is none."""
        found = self._last_from(last_key)
        return self._last_from(0.0) if found is None else found

    def frame(self, time: float) -> Any:
        """The frame at `time`, BGR (H, W, 3); None where it cannot be decoded."""
        for begin in (self._nearest, self._rewind):
            begin(time)
            if self._forward(time):
                if self._now is not None and self._now > time + TOLERANCE:
                    continue
                done, frame = self._capture.retrieve()
                if done:
                    return frame
        return None

    def _last_from(self, time: float) -> float | None:
        self._jump(time, time)
        last = self._now
        while self._grab():
            last = self._now if last is None or self._now is None else max(last, self._now)
        return last

    def _nearest(self, time: float) -> None:
        """Go to where decoding towards `time` is shortest."""
        place = bisect_right(self.keys, time + TOLERANCE)
        key = self.keys[place - 1] if place else 0.0
        if self._now is None or not key <= self._now <= time + TOLERANCE:
            self._jump(key, time)

    def _jump(self, key: float, time: float) -> None:
        """Go to `key`, and be before or at `time`."""
        for back in _STEPS_BACK:
            if key - back <= 0:
                break
            self._capture.set(_opencv().CAP_PROP_POS_MSEC, key - back)
            if self._grab() and self._now is not None and self._now <= time + TOLERANCE:
                return
        self._rewind(time)

    def _rewind(self, time: float) -> None:
        """Go to the beginning."""
        self._capture.release()
        self._capture = _open_capture(self._source, decode=True)
        self._now = None

    def _forward(self, time: float) -> bool:
        """Decode up to the first frame at `time` or behind it."""
        while self._now is None or self._now < time - TOLERANCE:
            if not self._grab():
                return False
        return True

    def _grab(self) -> bool:
        if not self._capture.grab():
            return False
        self._now = self._capture.get(_opencv().CAP_PROP_POS_MSEC)
        return True


def _opencv() -> ModuleType:
    """OpenCV, its and FFmpeg's own messages off: what is wrong is said in ours."""
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    # A file can name others, on other machines even; none of them is opened.
    os.environ.setdefault("OPENCV_FFMPEG_CAPTURE_OPTIONS", "protocol_whitelist;file")
    import cv2

    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    return cv2


def _open_capture(source: Source, *, decode: bool) -> Any:
    """An open `cv2.VideoCapture`; without `decode` it gives packets as they are.

    Raises:
        InputError: it cannot be opened.
    """
    cv2 = _opencv()
    # One thread holds the fewest frames, and the workers are the threads.
    settings = [cv2.CAP_PROP_N_THREADS, 1] if decode else [cv2.CAP_PROP_FORMAT, -1]
    # An absolute path is a file, where `concat:a` would be an instruction.
    capture = cv2.VideoCapture(str(source.path.absolute()), cv2.CAP_FFMPEG, settings)
    if not capture.isOpened():
        raise InputError(
            f"{source.name}: damaged or truncated video, or no video in it", code="damaged"
        )
    return capture
