"""Pieces: rows made whole with their dots, accents and dashes, and freed of what is no text.

A piece is a run of print without a gap as wide as a column border: a whole line, or a table cell.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vlmcli.documents.lines.baseline import Baseline, fit_baseline
from vlmcli.documents.lines.marks import Floats, Ints, Marks, Mask
from vlmcli.documents.lines.pairs import chains, mutual_links, row_pairs
from vlmcli.documents.lines.rows import Rows

_BESIDE = 1.0
"""Letter sizes beside a row within which a mark belongs to it, whatever it is."""
_SIDE_REACH = 2.0
"""The same for a dash or a run of dots: `- 3 -` on a typewriter, a leader."""
_ABOVE, _BELOW = 0.55, 0.6
"""Letter sizes above the tallest letter and below the baseline: accents, tails of commas."""
_HOVERING = 0.5
"""Letter sizes between a letter and what is too far above it to be its accent."""
_BIT_LETTERS = 8
_STEEP = 0.1
"""Slope left after deskewing that light print on dark does not have: six degrees."""
_SPECK = 0.012
"""Area in squared letter sizes under which a mark is dirt; a full stop has five times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A run of print in frame pixels."""

    x0: float
    x1: float
    base: Baseline
    size: float
    """Median letter height."""
    letters: int
    inverted: bool

    @property
    def foot(self) -> float:
        """The baseline in the middle of the piece."""
        return float(self.base.at(np.array([(self.x0 + self.x1) / 2]))[0])

    def enlarged(self, factor: float) -> "Piece":
        """The same print on a picture `factor` times as large."""
        return replace(
            self,
            x0=self.x0 * factor,
            x1=self.x1 * factor,
            base=self.base.enlarged(factor),
            size=self.size * factor,
        )


class _Bands:
    """The lines of rows as arrays; rows grow as they take marks."""

    def __init__(self, rows: Rows, bases: Sequence[Baseline], size: float) -> None:
        self.members = rows.members
        self.size = rows.size
        self.x0, self.x1 = rows.x0.copy(), rows.x1.copy()
        self.base = bases
        self.curve = np.array([(b.centre, b.offset, b.slope, b.bend) for b in bases])
        self.ascent = np.array([b.ascent for b in bases])
        self.inverted = rows.inverted
        self.is_open = np.ones(len(rows), bool)
        """Which rows take marks."""
        # A lone initial must not gather dirt from as far as a heading gathers its dots.
        few = np.array([len(members) <= 2 for members in rows.members])
        self.unit = np.where(few, np.minimum(rows.size, 1.5 * size), rows.size)
        self.extra: list[list[int]] = [[] for _ in bases]

    def best(
        self, marks: Marks, some: Ints, reach: npt.NDArray[np.float64] | float
    ) -> npt.NDArray[np.int64]:
        """For each mark the row in whose line it stands, or -1.

        Args:
            marks: marks of the page.
            some: (M,) indices of marks.
            reach: letter sizes beside a row within which marks may stand, one or (M,).
        """
        if not some.size or not self.is_open.any():
            return np.full(len(some), -1)
        y0, y1 = marks.y0[some, None], marks.y1[some, None]
        x0, x1 = marks.x0[some, None], marks.x1[some, None]
        along = (x0 + x1) / 2 - self.curve[:, 0]
        rise = (
            (y0 + y1) / 2 - self.curve[:, 1] - along * (self.curve[:, 2] + along * self.curve[:, 3])
        )
        beside = np.maximum(0, np.maximum(self.x0 - x1, x0 - self.x1)) / self.unit
        off = np.maximum(0, np.maximum(-self.ascent - rise, rise)) / self.size
        fits = (beside <= np.reshape(reach, (-1, 1))) & (y1 - y0 <= 1.5 * self.size)
        fits &= self.is_open & (marks.inverted[some, None] == self.inverted)
        fits &= (rise >= -self.ascent - _ABOVE * self.size) & (rise <= _BELOW * self.size)
        score = np.where(fits, off + 0.5 * beside, np.inf)
        row = np.argmin(score, axis=1)
        return np.where(np.isfinite(score[np.arange(len(some)), row]), row, -1)

    def take(self, marks: Marks, some: Ints, rows: npt.NDArray[np.int64]) -> Ints:
        """Give marks to rows (-1: to none); the marks that no row took."""
        for mark, row in zip(some.tolist(), rows.tolist(), strict=True):
            if row >= 0:
                self.extra[row].append(mark)
        taken = rows >= 0
        np.minimum.at(self.x0, rows[taken], marks.x0[some[taken]])
        np.maximum.at(self.x1, rows[taken], marks.x1[some[taken]])
        return some[~taken]


def make_pieces(rows: Rows, small: Ints, size: float) -> list[Piece]:
    """Pieces of text from rows of letters and the small marks around them.

    Args:
        rows: rows of letters, gaps at column borders already cut.
        small: indices of the small marks among `rows.marks`.
        size: the page's commonest letter height in pixels.
    """
    if not len(rows):
        return []
    marks = rows.marks
    bases = [
        fit_baseline(marks, members, float(own))
        for members, own in zip(rows.members, rows.size, strict=True)
    ]
    bands = _Bands(rows, bases, size)
    letters = np.array([len(members) for members in rows.members])
    bands.is_open = (letters > 2) & ((letters > _BIT_LETTERS) | (rows.size >= 0.62 * size))
    loose = small[marks.area[small] >= max(3.0, _SPECK * size * size)]
    # Whole rows first: what they leave may be rows of their own, a folio and its dashes.
    loose = bands.take(marks, loose, bands.best(marks, loose, _BESIDE))
    bits = _bits(rows, bands, size)
    bands.is_open |= ~bits
    if bits.any():
        loose = np.concatenate([loose, *(rows.members[row] for row in np.flatnonzero(bits))])
    loose = bands.take(marks, loose, bands.best(marks, loose, _BESIDE))
    _take_runs(marks, loose, bands, size)
    return [
        _piece(marks, bands, row)
        for row in np.flatnonzero(bands.is_open).tolist()
        if _is_text(marks, bands, row, size)
    ]


def _bits(rows: Rows, bands: _Bands, size: float) -> Mask:
    """Rows that are a part of a longer one: bits of broken letters, raised letters, quotes."""
    few = np.flatnonzero(~bands.is_open)
    bits = np.zeros(len(rows), bool)
    if not few.size:
        return bits
    members = np.concatenate([rows.members[row] for row in few])
    hosted = bands.best(rows.marks, members, 0.7) >= 0
    host = dict(zip(members.tolist(), hosted.tolist(), strict=True))
    for row in few.tolist():
        dwarfed = bands.is_open.any() and rows.size[row] < 0.7 * size
        bits[row] = dwarfed or all(host[mark] for mark in rows.members[row].tolist())
    return bits


def _take_runs(marks: Marks, loose: Ints, bands: _Bands, size: float) -> None:
    """Give dashes and runs of dots to the rows that they prolong."""
    tall = marks.height[loose] >= 0.12 * size
    loose = loose[tall | (marks.width[loose] >= 0.3 * size)]
    if not loose.size:
        return
    some = marks.take(loose)
    reach = np.full(len(some), _SIDE_REACH * size)
    i, j = row_pairs(
        some.x0, some.y0 - 0.2 * size, some.x1, some.y1 + 0.2 * size, reach=reach, stripe=4 * size
    )
    gap = some.x0[j] - some.x1[i]
    level = np.abs(some.y0[i] + some.y1[i] - some.y0[j] - some.y1[j]) <= 0.5 * size
    fits = (gap >= 0) & (gap <= _SIDE_REACH * size) & level
    for run in chains(mutual_links(i[fits], j[fits], gap[fits], len(some))):
        ends = loose[run[[0, -1]]]
        rows = bands.best(marks, ends, _SIDE_REACH)
        row = int(rows[0] if rows[0] >= 0 else rows[1])
        bands.take(marks, loose[run], np.full(len(run), row))


def _is_text(marks: Marks, bands: _Bands, row: int, size: float) -> bool:
    """Whether a row can be print: letters of one size, standing close, not too few, not too odd."""
    members = bands.members[row]
    height, width = marks.height[members], marks.width[members]
    own = float(bands.size[row])
    if own < 0.4 * size:
        return False
    if len(members) <= 3 and bool(marks.doubtful[members].all()):
        return False
    spread = float(np.median(np.abs(height - own))) / own
    if bands.inverted[row] and not _is_clear(marks, bands, row, spread):
        return False
    if len(members) <= 2:
        return own >= 0.75 * size and _is_letters(marks, members, size)
    fill = float(np.median(marks.area[members] / (height * width)))
    if len(members) <= 5 and (_scatter(marks, bands, row) > 0.2 or fill < 0.2):
        return False
    length = float(marks.x1[members].max() - marks.x0[members].min())
    covered = float(width.sum()) / max(1.0, length)
    return spread <= 0.5 and covered >= 0.22


def _is_letters(marks: Marks, members: Ints, size: float) -> bool:
    """Whether one or two marks are a folio, an item's number, a lone initial.

    Not a stain, a bar, or a stroke of a pen.
    """
    height, width = marks.height[members], marks.width[members]
    fill = marks.area[members] / (width * height)
    # Two letters that touch are wider than one, but no taller.
    broad = np.where((height >= 0.75 * size) & (height <= 1.9 * size), 2.5, 1.5)
    fits = (fill >= 0.2) & (width <= broad * height) & (height <= 12 * width)
    shaped = (fill < 0.97) & (height <= 6.5 * width)
    return bool(np.all(fits) and np.any(shaped))


def _scatter(marks: Marks, bands: _Bands, row: int) -> float:
    """How far the feet of the letters are off the baseline: the median, in letter sizes."""
    members = bands.members[row]
    x = (marks.x0[members] + marks.x1[members]) / 2
    off = np.abs(marks.y1[members] - bands.base[row].at(x))
    return float(np.median(off)) / float(bands.size[row])


def _is_clear(marks: Marks, bands: _Bands, row: int, spread: float) -> bool:
    """Whether light marks are print beyond doubt: the texture of photographs has many a row."""
    members = bands.members[row]
    own = float(bands.size[row])
    length = float(bands.x1[row] - bands.x0[row])
    if len(members) < 3 or spread > 0.35 or length > 2.2 * own * len(members):
        return False
    if float(marks.doubtful[members].mean()) > 0.25 or abs(bands.base[row].slope) > _STEEP:
        return False
    return _scatter(marks, bands, row) <= 0.12


def _piece(marks: Marks, bands: _Bands, row: int) -> Piece:
    base, size = bands.base[row], float(bands.size[row])
    extra = np.array(bands.extra[row], np.int64)
    extra = extra[~_hovers(marks, extra, bands.members[row], base, size)]
    if extra.size:
        line = base.at((marks.x0[extra] + marks.x1[extra]) / 2)
        base = replace(
            base,
            ascent=max(base.ascent, _reach(line - marks.y0[extra], base.ascent + 0.7 * size)),
            descent=max(base.descent, _reach(marks.y1[extra] - line, 0.75 * size)),
        )
    return Piece(
        x0=float(bands.x0[row]),
        x1=float(bands.x1[row]),
        base=base,
        size=size,
        letters=len(bands.members[row]),
        inverted=bool(bands.inverted[row]),
    )


def _hovers(marks: Marks, extra: Ints, members: Ints, base: Baseline, size: float) -> Mask:
    """Which small marks are dirt or a tail of the line above: over a letter, but far over it.

    An accent sits close to its letter. A mark that counted would make the line's crop smaller.
    """
    middle = (marks.x0[extra] + marks.x1[extra]) / 2
    above = base.at(middle) - marks.y1[extra] >= base.ascent
    over = (marks.x0[members] <= middle[:, None]) & (middle[:, None] <= marks.x1[members])
    gaps = np.where(over, marks.y0[members] - marks.y1[extra, None], np.inf).min(axis=1)
    return np.asarray(above & (gaps > _HOVERING * size) & np.isfinite(gaps))


def _reach(values: Floats, limit: float) -> float:
    return min(float(values.max()), limit)
