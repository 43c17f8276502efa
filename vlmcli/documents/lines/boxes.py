"""Lines that somebody else has found, put into reading order: boxes in, places on the page out.

Uses the same order as the project's own line finder, which knows letters and baselines; here both
are guessed from the boxes' heights. Looks at no pixels, so it knows no rules.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.baseline import Baseline
from vlmcli.documents.lines.order import Placed, reading_order
from vlmcli.documents.lines.pieces import Piece

Quads = npt.NDArray[np.float64]

_SIZE, _FOOT, _ASCENT = 0.45, 0.25, 0.55
"""Shares of a box's height: a letter's height, what lies below the baseline, the tallest letter
above it. Detectors leave a rim of about a tenth above and below."""
_LONG = 4.0
"""Heights from which a box is long enough to tell how the page is turned."""


def order_boxes(quads: Quads, texts: Sequence[str]) -> list[tuple[int, Placed]]:
    """Boxes in reading order: the index of each, and its block, row and cell.

    Args:
        quads: float64 (N, 4, 2) corners (x, y) in pixels: upper left, upper right, lower right,
            lower left, as the text runs.
        texts: what each says; a lone letter that is much larger than the lines beside it is taken
            for an initial.
    """
    if not len(quads):
        return []
    level = _turned(np.asarray(quads, np.float64), -_slant(quads))
    pieces = [_piece(quad, len(text.strip())) for quad, text in zip(level, texts, strict=True)]
    index = {id(piece): i for i, piece in enumerate(pieces)}
    return [(index[id(placed.piece)], placed) for placed in reading_order(pieces, ())]


def _slant(quads: Quads) -> float:
    """Angle of the page in radians: the median of its long boxes'; 0 without any."""
    across, down = quads[:, 1] - quads[:, 0], quads[:, 3] - quads[:, 0]
    is_long = np.hypot(*across.T) >= _LONG * np.maximum(1.0, np.hypot(*down.T))
    if not is_long.any():
        return 0.0
    return float(np.median(np.arctan2(across[is_long, 1], across[is_long, 0])))


def _turned(quads: Quads, angle: float) -> Quads:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.asarray(quads @ np.array([[cos, sin], [-sin, cos]]))


def _piece(quad: Quads, letters: int) -> Piece:
    """A box as a piece of print with a level baseline."""
    x0, x1 = float(quad[:, 0].min()), float(quad[:, 0].max())
    top, bottom = float(quad[:2, 1].mean()), float(quad[2:, 1].mean())
    height = max(1.0, bottom - top)
    base = Baseline(
        centre=(x0 + x1) / 2,
        offset=bottom - _FOOT * height,
        slope=0.0,
        bend=0.0,
        ascent=_ASCENT * height,
        descent=0.0,
    )
    return Piece(x0=x0, x1=x1, base=base, size=_SIZE * height, letters=letters, inverted=False)
