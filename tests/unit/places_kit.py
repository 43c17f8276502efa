"""Pages drawn with known words that lie any way, read without a fault; where each word's ink is."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from lines_kit import font, rotated, words
from PIL import Image, ImageDraw

from vlmcli.documents.lines import LineCrop, crop_lines, find_lines
from vlmcli.joining import join_crops
from vlmcli.reading import CropText
from vlmcli.results import PageRecord
from vlmcli.strip import length_of

Box = tuple[int, int, int, int]
_WIDTH, _HEIGHT = 1000, 800
_ODD = "“No. 1:13-cv-01317” Illinois: WWW, £4,610.75 (ill)"


@dataclass(frozen=True, eq=False)
class Page:
    """A picture, its lines' words in order, and the box of each word's ink."""

    pixels: np.ndarray
    lines: tuple[tuple[str, ...], ...]
    boxes: tuple[tuple[Box, ...], ...]

    @property
    def texts(self) -> list[str]:
        """The lines' texts."""
        return [" ".join(line) for line in self.lines]


@cache
def page(turn: int, tilt: float, name: str = "serif", size: int = 24) -> Page:
    """A page turned by quarters counter-clockwise after its lines were made to fall by `tilt`."""
    face = font(name, size)
    lines = [words(9, start=7 * row).split() for row in range(11)]
    lines.insert(4, _ODD.split())
    whole = np.full((_HEIGHT, _WIDTH), 255, np.uint8)
    boxes = []
    for row, line in enumerate(lines):
        found = []
        for index, word in enumerate(line):
            before = " ".join(line[:index]) + (" " if index else "")
            layer = Image.new("L", (_WIDTH, _HEIGHT), 255)
            place = 70 + face.getlength(before), 60 + 1.6 * size * row
            ImageDraw.Draw(layer).text(place, word, font=face, fill=0)
            drawn = np.asarray(layer)
            whole = np.minimum(whole, drawn)
            found.append(_ink(_lain(drawn, turn, tilt)))
        boxes.append(tuple(found))
    return Page(_lain(whole, turn, tilt), tuple(map(tuple, lines)), tuple(boxes))


@cache
def record(drawn: Page, *, max_width: int = 420) -> PageRecord:
    """The record of a reader that finds the lines, and reads every word where it is."""
    crops = crop_lines(drawn.pixels, find_lines(drawn.pixels), height=28, max_width=max_width)
    lines, text = join_crops(
        crops, [CropText(text=_within(crop, drawn), confidence=0.9) for crop in crops]
    )
    height, width = drawn.pixels.shape
    return PageRecord(
        document="d", page=1, pages=1, status="ok", source="model", width=width, height=height,
        text=text, lines=lines,
    )  # fmt: skip


def likeness(one: Box, other: Box) -> float:
    """Common area over the smaller one's."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return max(0, across) * max(0, down) / min(areas)


def _lain(pixels: np.ndarray, turn: int, tilt: float) -> np.ndarray:
    return np.ascontiguousarray(np.rot90(rotated(pixels, tilt) if tilt else pixels, turn))


def _ink(pixels: np.ndarray) -> Box:
    rows, columns = (np.flatnonzero((pixels < 128).any(axis=axis)) for axis in (1, 0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _within(crop: LineCrop, drawn: Page) -> str:
    """The words of a crop: those of its line whose middles its span has."""
    strip = crop.strip
    assert strip is not None
    start, unit = np.array(strip.start), np.subtract(strip.end, strip.start) / length_of(strip)
    said = []
    for line, boxes in zip(drawn.lines, drawn.boxes, strict=True):
        for word, box in zip(line, boxes, strict=True):
            middle = np.array([box[0] + box[2], box[1] + box[3]]) / 2 - start
            below = float(unit[0] * middle[1] - unit[1] * middle[0])
            is_level = -strip.ascent <= below <= max(strip.descent, 3)
            if is_level and crop.span[0] <= float(unit @ middle) < crop.span[1]:
                said.append(word)
    return " ".join(said)
