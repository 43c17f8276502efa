"""Rows: letters in a line of print, from left to right, found by linking near neighbours.

First *phrases*, letters so near that no column border can lie between them; then, once `gutters`
knows the column borders, *rows*, phrases across wider gaps. Sizes are compared between neighbours
only, so that headings and footnotes need no common measure. Rows may slope and bend.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vlmcli.documents.lines.marks import Floats, Ints, Marks, Mask, median
from vlmcli.documents.lines.pairs import chains, grouped_median, mutual_links, overlap, row_pairs

_PHRASE_GAP = 1.0
"""Widest gap inside a phrase, in heights of the taller neighbour."""
ROW_GAP = 4.5
"""Widest gap inside a row, in letter sizes: two typewriter spaces after a full stop are 3.5."""
_ENDS = 4
"""Letters at an end of a phrase that tell where it points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Phrases or rows as parallel arrays of length N, over a shared set of marks."""

    marks: Marks
    members: tuple[Ints, ...]
    """For each row its marks, left to right."""
    x0: Floats
    x1: Floats
    size: Floats
    """Median letter height."""
    left: Floats
    """(N, 2): top and bottom of the letters at the left end."""
    right: Floats
    """(N, 2): the same at the right end."""

    def __len__(self) -> int:
        return len(self.members)

    def take(self, chosen: Ints) -> "Rows":
        """The rows chosen by index, in that order."""
        return Rows(
            marks=self.marks,
            members=tuple(self.members[row] for row in chosen.tolist()),
            x0=self.x0[chosen],
            x1=self.x1[chosen],
            size=self.size[chosen],
            left=self.left[chosen],
            right=self.right[chosen],
        )

    @property
    def inverted(self) -> Mask:
        """Which rows are light on dark."""
        return np.array([self.marks.inverted[chosen[0]] for chosen in self.members], bool)

    @property
    def top(self) -> Floats:
        """Upper limit of the two ends."""
        return np.minimum(self.left[:, 0], self.right[:, 0])

    @property
    def bottom(self) -> Floats:
        """Lower limit of the two ends."""
        return np.maximum(self.left[:, 1], self.right[:, 1])


def rows_of(marks: Marks, members: Sequence[Ints]) -> Rows:
    """Measure rows given their marks."""
    height = marks.height
    count = len(members)
    left, right = np.zeros((count, 2)), np.zeros((count, 2))
    size = np.zeros(count)
    for row, chosen in enumerate(members):
        size[row] = median(height[chosen])
        left[row] = _band(marks, chosen[:_ENDS])
        right[row] = _band(marks, chosen[-_ENDS:])
    return Rows(
        marks=marks,
        members=tuple(members),
        x0=np.array([marks.x0[chosen].min() for chosen in members]),
        x1=np.array([marks.x1[chosen].max() for chosen in members]),
        size=size,
        left=left,
        right=right,
    )


def find_phrases(marks: Marks, size: float) -> tuple[Rows, Ints]:
    """Phrases, and the marks that belong to none because they are small beside their neighbours.

    Args:
        marks: letters, accents and punctuation of a level page.
        size: the commonest letter height in pixels.

    Returns:
        Phrases, and the indices of the small marks.
    """
    reach = 1.2 * np.maximum(marks.height, size)
    i, j = row_pairs(marks.x0, marks.y0, marks.x1, marks.y1, reach=reach, stripe=4 * size)
    small = _small(marks, i, j, size)
    core = ~small
    keep = core[i] & core[j]
    following = _link(marks, i[keep], j[keep])
    following[small] = -1
    paths = [path for path in chains(following) if core[path[0]]]
    return rows_of(marks, paths), np.flatnonzero(small)


def join_phrases(phrases: Rows, blocked: Mask, i: Ints, j: Ints) -> Rows:
    """Rows: phrases linked across gaps that no column border forbids.

    Args:
        phrases: the phrases.
        blocked: (P,) pairs with a column border between them.
        i, j: (P,) pairs of neighbouring phrases as `neighbours` gives them.
    """
    cost = _row_cost(phrases, i, j)
    fits = np.isfinite(cost) & ~blocked
    following = mutual_links(i[fits], j[fits], cost[fits], len(phrases))
    members = [np.concatenate([phrases.members[k] for k in path]) for path in chains(following)]
    return rows_of(phrases.marks, members)


def neighbours(phrases: Rows) -> tuple[Ints, Ints]:
    """Pairs (i, j) of phrases in one row with nothing between them, j right of i."""
    stripe = float(4 * np.median(phrases.size))
    reach = np.full(len(phrases), float(phrases.x1.max()) if len(phrases) else 0.0)
    i, j = row_pairs(
        phrases.x0, phrases.top, phrases.x1, phrases.bottom, reach=reach, stripe=stripe
    )
    common = overlap(
        phrases.right[i, 0], phrases.right[i, 1], phrases.left[j, 0], phrases.left[j, 1]
    )
    least = np.minimum(
        phrases.right[i, 1] - phrases.right[i, 0], phrases.left[j, 1] - phrases.left[j, 0]
    )
    gap = phrases.x0[j] - phrases.x1[i]
    fits = (common >= 0.42 * least) & (gap > -0.5 * least)
    fits &= phrases.inverted[i] == phrases.inverted[j]
    # A comma that passed for a letter must not hide the word behind it.
    few = np.array([len(chosen) <= 2 for chosen in phrases.members])
    dwarf = phrases.size[i] < phrases.size[j]
    lesser, larger = np.where(dwarf, i, j), np.where(dwarf, j, i)
    fits &= ~(few[lesser] & (phrases.size[lesser] < 0.7 * phrases.size[larger]))
    i, j, gap = i[fits], j[fits], gap[fits]
    nearest = np.full(len(phrases), np.inf)
    np.minimum.at(nearest, i, gap)
    # Anything that starts well behind the nearest neighbour stands behind it.
    seen = gap <= nearest[i] + phrases.size[i]
    return i[seen], j[seen]


def _row_cost(phrases: Rows, i: Ints, j: Ints) -> Floats:
    """Cost of continuing phrase i with phrase j; infinite where they are no common row."""
    taller = np.maximum(phrases.size[i], phrases.size[j])
    lower = np.minimum(phrases.size[i], phrases.size[j])
    a0, a1 = phrases.right[i].T
    b0, b1 = phrases.left[j].T
    common = overlap(a0, a1, b0, b1)
    least = np.minimum(a1 - a0, b1 - b0)
    gap = phrases.x0[j] - phrases.x1[i]
    fits = (common >= 0.45 * least) & (gap <= ROW_GAP * taller) & (taller <= 2.2 * lower)
    cost = np.maximum(gap, 0) + 2 * (1 - common / np.maximum(least, 1)) * taller
    return np.where(fits, cost, np.inf)


def _small(marks: Marks, i: Ints, j: Ints, size: float) -> Mask:
    """Dots, accents, dashes: marks much lower than most of their neighbours."""
    height = marks.height
    apart = -overlap(marks.y0[i], marks.y1[i], marks.y0[j], marks.y1[j])
    beside = (marks.inverted[i] == marks.inverted[j]) & (
        apart < 0.5 * np.minimum(height[i], height[j]) + 0.15 * size
    )
    owner = np.concatenate((i[beside], j[beside]))
    beheld = height[np.concatenate((j[beside], i[beside]))]
    usual = grouped_median(owner, beheld, len(marks))
    small = (height < 0.4 * size) | (height < 0.58 * usual)
    # Quotes hang and commas stand low: they reach no further than the middle of a letter.
    middle = (marks.y0 + marks.y1) / 2
    common = -apart
    for a, b in ((i, j), (j, i)):
        off = (marks.y1[a] < middle[b]) | (marks.y0[a] > middle[b])
        off &= (height[a] < 0.7 * height[b]) & (common >= 0.25 * height[a])
        small[a[off & beside & (height[a] < 0.75 * size)]] = True
    return np.asarray(small)


def _link(marks: Marks, i: Ints, j: Ints) -> Ints:
    height, width = marks.height, marks.width
    taller, lower = np.maximum(height[i], height[j]), np.minimum(height[i], height[j])
    common = overlap(marks.y0[i], marks.y1[i], marks.y0[j], marks.y1[j])
    gap = marks.x0[j] - marks.x1[i]
    fits = (common >= 0.4 * lower) & (taller <= 2.8 * lower)
    # Two letters of different lines that touch are tall, but reach no further for that.
    reach = _PHRASE_GAP * np.where(taller > 1.9 * lower, lower, taller)
    # An f or a slanted letter hangs over the next one.
    kerned = np.maximum(0.6 * np.minimum(width[i], width[j]), 0.45 * width[i])
    fits &= (gap <= reach) & (gap >= -kerned)
    fits &= marks.inverted[i] == marks.inverted[j]
    i, j, gap, common, lower = i[fits], j[fits], gap[fits], common[fits], lower[fits]
    cost = np.maximum(gap, 0) + 0.5 * (lower - common)
    return mutual_links(i, j, cost, len(marks))


def _band(marks: Marks, chosen: Ints) -> tuple[float, float]:
    return median(marks.y0[chosen]), median(marks.y1[chosen])
