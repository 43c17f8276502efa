"""The upright frame: a reduced, turned and deskewed copy of the page in which lines run level.

All line finding happens in frame pixels. `Frame` leads back to page pixels. Turns by quarters and
skews up to `MAX_SKEW` degrees are measured; perspective and curl are not undone here.
"""

from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.ink import THRESHOLD, Grey
from vlmcli.documents.lines.marks import Floats, Marks, label

MAX_SKEW = 10.0
"""Degrees; more than the 5 that are promised."""
_USUAL_SKEW = 6.0
"""Slopes up to this come first: of slopes that fit equally well the first counts."""
_NO_SKEW = 0.04
"""Degrees under which a page counts as straight: 1 px on 1400."""
FEW_LETTERS = 24
"""Letters below which a view does not tell how its page is turned."""
Turn = Literal[0, 1, 2, 3]
"""Quarter turns, counter-clockwise, that bring the page upright."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Maps frame pixels to page pixels by a similarity: `page = matrix @ (x, y, 1)`."""

    matrix: npt.NDArray[np.float64]
    """(2, 3)."""
    width: int
    height: int
    """Size of the frame in frame pixels."""

    def to_page(self, points: Floats) -> Floats:
        """Page positions of frame positions, both (N, 2) as x, y."""
        return np.asarray(points @ self.matrix[:, :2].T + self.matrix[:, 2])

    @property
    def scale(self) -> float:
        """Page pixels per frame pixel."""
        return float(np.hypot(self.matrix[0, 0], self.matrix[1, 0]))


def identity(width: int, height: int, scale: float) -> Frame:
    """The frame that is the page reduced: `scale` page pixels to one frame pixel."""
    # Pixel centres, not corners, correspond: (x + 0.5) * scale = X + 0.5.
    shift = 0.5 * scale - 0.5
    return Frame(
        matrix=np.array([[scale, 0.0, shift], [0.0, scale, shift]]), width=width, height=height
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A frame and the ink seen in it."""

    frame: Frame
    dark: Grey
    """Strength of dark ink, as `ink.ink_strength` gives it."""
    light: Grey | None
    """Strength of light ink on dark areas; None where there are none."""
    is_negative: bool = False
    """The whole page was turned from light on dark to dark on light."""
    turn: Turn = 0
    """Quarter turns that brought it upright, counter-clockwise."""
    skew: float = 0.0
    """Degrees by which its lines fell to the right before they were made level."""


def turned(view: View, turn: Turn) -> View:
    """The view after `turn` quarter turns counter-clockwise."""
    frame = view.frame
    height, width = view.dark.shape
    # Where a pixel of the turned picture came from, as a matrix on (x, y, 1).
    origin = {
        0: [[1, 0, 0], [0, 1, 0]],
        1: [[0, -1, width - 1], [1, 0, 0]],
        2: [[-1, 0, width - 1], [0, -1, height - 1]],
        3: [[0, 1, 0], [-1, 0, height - 1]],
    }[turn]
    matrix = _compose(frame.matrix, np.array(origin, np.float64))
    if turn % 2:
        height, width = width, height

    def turn_picture(picture: Grey) -> Grey:
        return np.ascontiguousarray(np.rot90(picture, turn))

    quarters: dict[int, Turn] = {0: 0, 1: 1, 2: 2, 3: 3}
    return replace(
        view,
        turn=quarters[(view.turn + turn) % 4],
        frame=Frame(matrix=matrix, width=width, height=height),
        dark=turn_picture(view.dark),
        light=None if view.light is None else turn_picture(view.light),
    )


def deskewed(view: View, degrees: float) -> View:
    """The view turned so that lines falling to the right by `degrees` run level."""
    if abs(degrees) < _NO_SKEW:
        return view
    height, width = view.dark.shape
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    new_width = round(width * cos + height * abs(sin))
    new_height = round(height * cos + width * abs(sin))
    centre = np.array([width - 1, height - 1]) / 2
    new_centre = np.array([new_width - 1, new_height - 1]) / 2
    rotation = np.array([[cos, -sin], [sin, cos]])
    origin = np.column_stack((rotation, centre - rotation @ new_centre))

    def turn_picture(picture: Grey) -> Grey:
        turned_one = cv2.warpAffine(
            picture,
            origin,
            (new_width, new_height),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=0,
        )
        return np.asarray(turned_one, np.uint8)

    matrix = _compose(view.frame.matrix, origin)
    return replace(
        view,
        skew=degrees,
        frame=Frame(matrix=matrix, width=new_width, height=new_height),
        dark=turn_picture(view.dark),
        light=None if view.light is None else turn_picture(view.light),
    )


def measure_skew(marks: Marks, size: float) -> float:
    """Slope of the text lines in degrees, positive where they fall to the right.

    The feet of the letters are projected along each candidate slope; on the true one they fall
    into few bins (after Postl's projection profiles, on marks instead of pixels).

    Args:
        marks: marks of letter size.
        size: the commonest letter height in pixels.
    """
    if len(marks) < 4:
        return 0.0
    x = (marks.x0 + marks.x1) / 2
    x = x - x.mean()
    usual, more = (
        np.arange(-_USUAL_SKEW, _USUAL_SKEW + 0.05, 0.1),
        np.arange(_USUAL_SKEW, MAX_SKEW, 0.1),
    )
    best = _best_slope(x, marks.y1, size, np.concatenate((usual, more, -more)))
    best = _best_slope(x, marks.y1, size, best + np.arange(-0.1, 0.101, 0.02))
    return 0.0 if abs(best) >= MAX_SKEW else float(best)


def is_sideways(strength: Grey, marks: Marks, size: float) -> bool:
    """Whether text lines run up or down the page.

    Letters stand closer to their neighbours in the line than to the next line, so closing short
    gaps along the line leaves far fewer pieces than closing as short gaps across it.
    """
    if len(marks) < FEW_LETTERS:
        return False
    return runs_down(pieces_by_closing(strength, size))


def pieces_by_closing(strength: Grey, size: float) -> npt.NDArray[np.int64]:
    """How many pieces closing short gaps leaves: along the lines of a level page, and across."""
    ink = (strength >= THRESHOLD).astype(np.uint8)
    reach = max(3, round(0.7 * size))
    along = cv2.morphologyEx(ink, cv2.MORPH_CLOSE, np.ones((1, reach), np.uint8))
    across = cv2.morphologyEx(ink, cv2.MORPH_CLOSE, np.ones((reach, 1), np.uint8))
    return np.array([_num_pieces(along, size), _num_pieces(across, size)])


def runs_down(pieces: npt.NDArray[np.int64]) -> bool:
    """Whether lines run up or down, by `pieces_by_closing`."""
    return bool(pieces[1] < 0.62 * pieces[0])


def _num_pieces(ink: Grey, size: float) -> int:
    """Pieces of letter size and more, counted at half the resolution."""
    marks, _ = label(np.ascontiguousarray(ink[::2, ::2]))
    return int(np.count_nonzero(2 * np.maximum(marks.width, marks.height) >= 0.6 * size))


def _best_slope(x: Floats, y: Floats, size: float, slopes: Floats) -> float:
    bin_height = max(1.0, size / 6)
    scores = []
    for slope in slopes:
        feet = (y - x * np.tan(np.radians(slope))) / bin_height
        counts = np.bincount((feet - feet.min()).astype(np.int64)).astype(np.float64)
        # Neighbouring bins belong together: where the bin borders fall is chance.
        pairs = np.convolve(counts, [1, 1])
        # Among near equals the straighter page is likelier.
        scores.append(float(pairs @ pairs) * (1 - 0.004 * abs(slope)))
    return float(slopes[int(np.argmax(scores))])


def _compose(outer: npt.NDArray[np.float64], inner: npt.NDArray[np.float64]) -> Floats:
    """The affine map that applies `inner` first, then `outer`; both (2, 3)."""
    linear = outer[:, :2] @ inner[:, :2]
    return np.column_stack((linear, outer[:, :2] @ inner[:, 2] + outer[:, 2]))
