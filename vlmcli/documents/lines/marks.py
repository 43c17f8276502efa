"""Marks: connected pieces of ink, as parallel arrays of boxes."""

from dataclasses import dataclass, fields, replace
from typing import Self

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.ink import Grey

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Boxes of marks as parallel arrays of one length N; x1 and y1 are exclusive."""

    x0: Floats
    y0: Floats
    x1: Floats
    y1: Floats
    area: Floats
    """Ink pixels."""
    inverted: Mask
    """Light on dark."""
    doubtful: Mask
    """Beside a picture, of which it may be a part."""

    def __len__(self) -> int:
        return len(self.x0)

    @property
    def width(self) -> Floats:
        """Box widths."""
        return self.x1 - self.x0

    @property
    def height(self) -> Floats:
        """Box heights."""
        return self.y1 - self.y0

    def take(self, chosen: Mask | Ints) -> Self:
        """The marks chosen by a mask or by index, in that order."""
        return type(self)(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def moved(self, gain: float, right: float, down: float) -> Self:
        """The marks on a picture `gain` times as large, then moved by so many of its pixels."""
        return replace(
            self,
            x0=self.x0 * gain + right,
            x1=self.x1 * gain + right,
            y0=self.y0 * gain + down,
            y1=self.y1 * gain + down,
            area=self.area * gain * gain,
        )

    def turned(self, width: float) -> Self:
        """The marks of a picture so wide after a quarter turn of it, counter-clockwise."""
        return replace(self, x0=self.y0, x1=self.y1, y0=width - self.x1, y1=width - self.x0)

    def joined(self, other: Self) -> Self:
        """These marks, then the other ones."""
        return type(self)(
            **{
                f.name: np.concatenate((getattr(self, f.name), getattr(other, f.name)))
                for f in fields(self)
            }
        )


def no_marks() -> Marks:
    """An empty set of marks."""
    return marks_from(np.zeros((0, 5)))


def marks_from(boxes: Floats, *, inverted: bool = False) -> Marks:
    """Marks from an (N, 5) array of x0, y0, x1, y1, area."""
    return Marks(
        x0=boxes[:, 0],
        y0=boxes[:, 1],
        x1=boxes[:, 2],
        y1=boxes[:, 3],
        area=boxes[:, 4],
        inverted=np.full(len(boxes), inverted),
        doubtful=np.zeros(len(boxes), bool),
    )


def label(ink: Mask | Grey, *, inverted: bool = False) -> tuple[Marks, npt.NDArray[np.int32]]:
    """Connected pieces of a mask (8-connected).

    Returns:
        The marks and an int32 label picture; mark i has label i + 1.
    """
    _, labels, stats, _ = cv2.connectedComponentsWithStats(
        ink.view(np.uint8), connectivity=8, ltype=cv2.CV_32S
    )
    boxes = stats[1:].astype(np.float64)
    boxes[:, 2:4] += boxes[:, :2]
    marks = marks_from(boxes, inverted=inverted)
    return marks, np.asarray(labels, np.int32)


def letter_size(marks: Marks) -> float:
    """The commonest height among marks shaped like letters; 0 where there are none.

    Heights are weighed by themselves, so that a few hundred specks do not outvote the text.
    """
    width, height = marks.width, marks.height
    shaped = (height >= 4) & (width >= 2) & (width <= 4 * height) & (height <= 8 * width)
    shaped &= marks.area >= 0.12 * width * height
    heights = height[shaped]
    if heights.size < 1:
        return 0.0
    edges = np.exp(np.arange(np.log(3.5), np.log(max(heights.max(), 5)) + 0.2, 0.04))
    weights, _ = np.histogram(heights, bins=edges, weights=heights)
    smooth = np.convolve(weights, np.array([1, 2, 3, 3, 3, 2, 1]) / 15, mode="same")
    best = int(np.argmax(smooth))
    # Capitals and ascenders together can outweigh the x-height, which lies at 0.6 to 0.75 of them.
    lower = np.flatnonzero((edges[:-1] >= 0.58 * edges[best]) & (edges[1:] <= 0.8 * edges[best]))
    if lower.size and smooth[lower].max() >= 0.6 * smooth[best]:
        best = int(lower[np.argmax(smooth[lower])])
    near = heights[(heights >= 0.85 * edges[best]) & (heights <= 1.18 * edges[best + 1])]
    return float(np.median(near)) if near.size else float(edges[best])


def median(values: Floats) -> float:
    """The upper median of at least one value; `np.median` costs five times as much on few."""
    middle = len(values) // 2
    return float(np.partition(values, middle)[middle])
