"""Baselines: where the letters of a row stand, as a straight or slightly bent line."""

from dataclasses import dataclass

import numpy as np

from vlmcli.documents.lines.marks import Floats, Ints, Marks, median

_TOLERANCES = (0.6, 0.3, 0.2)
"""Letter sizes off the line beyond which a foot is a descender or a touching letter, by round."""
_BENT = 0.15
"""Letter sizes of bow from which a row counts as bent; less is scatter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """`y(x) = offset + slope * (x - centre) + bend * (x - centre) ** 2`, in frame pixels."""

    centre: float
    offset: float
    slope: float
    bend: float
    ascent: float
    """From the baseline up to the tallest letters, pixels."""
    descent: float
    """From the baseline down to the lowest letters, pixels; at least 0."""

    def at(self, x: Floats) -> Floats:
        """Height of the line at positions `x`."""
        along = x - self.centre
        return np.asarray(self.offset + along * (self.slope + along * self.bend))

    def enlarged(self, factor: float) -> "Baseline":
        """The same line on a picture `factor` times as large."""
        return Baseline(
            centre=self.centre * factor,
            offset=self.offset * factor,
            slope=self.slope,
            bend=self.bend / factor,
            ascent=self.ascent * factor,
            descent=self.descent * factor,
        )


def fit_baseline(marks: Marks, members: Ints, size: float) -> Baseline:
    """The baseline of a row.

    Feet of letters are fitted by least squares; feet off the line are dropped and the fit is
    repeated. Short rows are level, since three letters cannot tell a slope.

    Args:
        marks: marks of the page.
        members: the letters of the row, left to right.
        size: the row's median letter height in pixels.
    """
    x = (marks.x0[members] + marks.x1[members]) / 2
    feet, heads = marks.y1[members], marks.y0[members]
    low, high = float(marks.x0[members[0]]), float(marks.x1[members].max())
    centre, length = (low + high) / 2, high - low
    x = x - centre
    coefficients, on_line = _fit(x, feet, 0 if len(x) < 5 or length < 6 * size else 1, size)
    if len(x) >= 16 and length >= 18 * size:
        bent, on_bent = _fit(x, feet, 2, size)
        is_bow = abs(bent[2]) * (length / 2) ** 2 >= _BENT * size
        if is_bow and on_bent - on_line >= 0.1 * len(x):
            coefficients = bent
    offset, slope, bend = np.pad(coefficients, (0, 3 - len(coefficients)))
    line = offset + x * (slope + x * bend)
    ascents = line - heads
    return Baseline(
        centre=centre,
        offset=float(offset),
        slope=float(slope),
        bend=float(bend),
        # A letter that touches the line above must not raise the limit.
        ascent=min(float(ascents.max()), 1.65 * float(np.percentile(ascents, 80))),
        descent=float(np.clip((feet - line).max(), 0.0, 0.75 * size)),
    )


def _fit(x: Floats, y: Floats, degree: int, size: float) -> tuple[Floats, int]:
    """Coefficients, lowest power first, of a line through most points, and how many lie on it."""
    scale = max(1.0, float(np.abs(x).max()))
    powers = np.vander(x / scale, degree + 1, increasing=True)
    coefficients = _solve(powers, y) if degree else np.array([median(y)])
    for tolerance in _TOLERANCES:
        off = y - powers @ coefficients
        kept = np.abs(off - median(off)) <= tolerance * size
        if np.count_nonzero(kept) <= degree + 1:
            break
        coefficients = _solve(powers[kept], y[kept])
    on_line = int(np.count_nonzero(np.abs(y - powers @ coefficients) <= _TOLERANCES[-1] * size))
    return np.asarray(coefficients / scale ** np.arange(degree + 1)), on_line


def _solve(powers: Floats, y: Floats) -> Floats:
    """Least squares by the normal equations; x lies in -1 to 1, so three columns are harmless."""
    normal = powers.T @ powers + 1e-9 * np.eye(powers.shape[1])
    return np.asarray(np.linalg.solve(normal, powers.T @ y))
