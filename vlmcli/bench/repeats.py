"""`vlmcli bench repeats`: what the reuse layer saves where pages repeat, and costs where none do.

Three documents, each read with reuse and without it, in processes of their own and with an empty
store: one page many times; the frames of a screen recording, in which slides change, a pointer
moves now and then and a clock goes; distinct scanned pages. The last ones are read several times
each way in turn, and processor seconds are compared, which other jobs on the machine hardly change.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from vlmcli.bench.jobs import WITHOUT_REUSE, Job, read
from vlmcli.bench.pages import page_picture, random_lines, write_scan

Pixels = npt.NDArray[np.uint8]

_SLIDE_FRAMES, _MOVE_FRAMES, _STILL_FRAMES = 60, 10, 20
"""Frames that a slide is shown, and that the pointer moves and rests in turn; one is a second."""
_SIZE = (960, 600)
_POINTER = ((0, 0), (0, 17), (4, 13), (7, 19), (9, 18), (6, 12), (12, 12))


def run(
    num_equal: int, num_frames: int, num_distinct: int, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Args:
        num_equal: copies of one page.
        num_frames: frames of the recording.
        num_distinct: distinct pages.
        rounds: how often the distinct pages are read each way.
        say: takes a line of text.

    Returns:
        `equal_reused` of `equal_pages`; `recording_encoder_saved` (share of the encoder's tokens),
        `recording_encoder_seconds_saved` and `recording_same_text`; `overhead`: processor seconds
        on distinct pages with the layer over those without it, less one, median of the rounds.
    """
    say(f"{'document':<12} {'reuse':<9} {'pages':>6} {'reused':>7} {'encoded':>9} {'cpu s':>8}")
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as name:
        folder = Path(name)
        equal = folder / "equal.pdf"
        write_scan(equal, repeat(page_picture(1, width=300, height=210, lines=9), num_equal))
        once = _read(equal, (), say)
        frames = folder / "recording.tiff"
        first, *rest = map(Image.fromarray, recording(num_frames))
        first.save(frames, save_all=True, append_images=rest, compression="tiff_lzw")
        with_reuse, without = _read(frames, (), say), _read(frames, WITHOUT_REUSE, say)
        distinct = folder / "distinct.pdf"
        write_scan(distinct, (page_picture(seed) for seed in range(num_distinct)))
        pairs = [
            (_read(distinct, (), say), _read(distinct, WITHOUT_REUSE, say)) for _ in range(rounds)
        ]
    return {
        "equal_pages": num_equal,
        "equal_reused": once.num_reused,
        "recording_frames": num_frames,
        "recording_frames_reused": with_reuse.num_reused,
        "recording_encoder_saved": _saved(with_reuse, without, "encoder_tokens"),
        "recording_encoder_seconds_saved": _saved(with_reuse, without, "seconds_encode"),
        "recording_same_text": with_reuse.texts == without.texts,
        "distinct_pages": num_distinct,
        "distinct_same_text": all(one.texts == other.texts for one, other in pairs),
        "overhead": round(
            statistics.median(one.cpu_seconds / other.cpu_seconds for one, other in pairs) - 1, 4
        ),
    }


def recording(num_frames: int) -> Iterator[Pixels]:
    """Frames of a recorded screen, grey uint8 (H, W), one a second, without camera noise."""
    at = (200.0, 300.0)
    rng = np.random.default_rng(0)
    for number in range(num_frames):
        slide, second = divmod(number, _SLIDE_FRAMES)
        if second % (_MOVE_FRAMES + _STILL_FRAMES) < _MOVE_FRAMES:
            step = rng.uniform(-60, 60, 2)
            at = tuple(np.clip(np.add(at, step), 20, (_SIZE[0] - 40, _SIZE[1] - 40)))
        frame = _slide(slide)
        draw = ImageDraw.Draw(frame)
        draw.text((_SIZE[0] - 90, 14), f"10:{slide:02d}", font=_font(20), fill=60)
        arrow = [(round(at[0]) + x, round(at[1]) + y) for x, y in _POINTER]
        draw.polygon(arrow, fill=0, outline=255)
        yield np.asarray(frame)


def _slide(number: int) -> Image.Image:
    image = Image.new("L", _SIZE, 250)
    draw = ImageDraw.Draw(image)
    title, *lines = random_lines(number, 10, 44)
    draw.text((60, 50), title[:28], font=_font(34), fill=20)
    for row, line in enumerate(lines):
        draw.text((80, 120 + 48 * row), line, font=_font(24), fill=30)
    return image


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)


def _saved(one: Job, other: Job, figure: str) -> float:
    share = float(one.stats.get(figure, 0)) / float(other.stats[figure])
    return round(1 - share, 4)


def _read(document: Path, options: tuple[str, ...], say: Callable[[str], None]) -> Job:
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as store:
        done = read(document, Path(store), *options)
    say(
        f"{document.stem:<12} {'off' if options else 'verified':<9} {len(done.records):>6} "
        f"{done.num_reused:>7} {done.stats.get('encoder_tokens', 0):>9.0f} {done.cpu_seconds:>8.1f}"
    )
    return done
