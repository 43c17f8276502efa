"""Who stands next to whom: pairs of boxes in one row, and links between nearest neighbours.

Pure array code on boxes; knows no ink and no pages.
"""

import numpy as np

from vlmcli.documents.lines.marks import Floats, Ints


def row_pairs(
    x0: Floats, y0: Floats, x1: Floats, y1: Floats, *, reach: Floats, stripe: float
) -> tuple[Ints, Ints]:
    """All pairs (i, j) of boxes that may stand in one row, j starting right of the start of i.

    Args:
        x0, y0, x1, y1: boxes, each (N,).
        reach: (N,), how far right of its own end box i looks, in pixels.
        stripe: height in pixels of the stripes that keep the search local; about four letters.

    Returns:
        Two (P,) index arrays. Every pair whose boxes overlap in y and whose gap is at most the
        reach is among them; pairs that do not overlap in y may be, too.
    """
    if len(x0) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first = np.floor(y0 / stripe).astype(np.int64)
    last = np.maximum(first, np.floor((y1 - 1e-6) / stripe).astype(np.int64))
    repeats = last - first + 1
    owner = np.repeat(np.arange(len(x0)), repeats)
    lane = _counts_up(repeats) + first[owner]
    span = float(x1.max() - x0.min() + reach.max() + 1)
    key = (lane - lane.min()) * span + (x0[owner] - x0.min())
    by_key = np.argsort(key, kind="stable")
    owner, lane, key = owner[by_key], lane[by_key], key[by_key]
    limit = (lane - lane.min()) * span + (x1[owner] + reach[owner] - x0.min())
    stop = np.minimum(
        np.searchsorted(key, limit, side="right"),
        np.searchsorted(lane, lane, side="right"),
    )
    start = np.arange(len(key)) + 1
    counts = np.maximum(stop - start, 0)
    left = np.repeat(np.arange(len(key)), counts)
    right = _counts_up(counts) + start[left]
    i, j = owner[left], owner[right]
    # A pair that meets in several stripes counts in the first common one.
    keep = lane[left] == np.maximum(first[i], first[j])
    return i[keep], j[keep]


def mutual_links(i: Ints, j: Ints, cost: Floats, count: int) -> Ints:
    """Link each box to its cheapest right neighbour where the choice is mutual.

    Args:
        i, j: candidate pairs, (P,); i left, j right.
        cost: (P,), smaller is nearer.
        count: number of boxes N.

    Returns:
        (N,) index of the right neighbour, or -1.
    """
    following = np.full(count, -1, np.int64)
    if not len(i):
        return following
    best_right, best_left = _cheapest(i, cost, count), _cheapest(j, cost, count)
    chosen = best_right[i] == np.arange(len(i))
    chosen &= best_left[j] == np.arange(len(i))
    following[i[chosen]] = j[chosen]
    return following


def chains(following: Ints) -> list[Ints]:
    """Paths along right-neighbour links, each an index array from left to right.

    Args:
        following: (N,) index of the right neighbour, or -1; no index occurs twice.
    """
    has_left = np.zeros(len(following), bool)
    has_left[following[following >= 0]] = True
    paths = []
    links = following.tolist()
    for head in np.flatnonzero(~has_left).tolist():
        path, at = [], head
        while at >= 0:
            path.append(at)
            at = links[at]
        paths.append(np.array(path, np.int64))
    return paths


def overlap(a0: Floats, a1: Floats, b0: Floats, b1: Floats) -> Floats:
    """Length of the common part of intervals; negative is the distance between them."""
    return np.asarray(np.minimum(a1, b1) - np.maximum(a0, b0))


def grouped_median(groups: Ints, values: Floats, count: int) -> Floats:
    """Median (the lower one of two) of the values of each group, 0 for an empty group."""
    order = np.lexsort((values, groups))
    sizes = np.bincount(groups, minlength=count)
    middle = np.cumsum(sizes) - sizes + np.maximum(sizes - 1, 0) // 2
    result = np.zeros(count)
    filled = sizes > 0
    result[filled] = values[order][middle[filled]]
    return result


def _cheapest(groups: Ints, cost: Floats, count: int) -> Ints:
    """For each group the position of its cheapest pair (the first among equals), or -1."""
    best = np.full(count, -1, np.int64)
    by_cost = np.lexsort((np.arange(len(groups)), cost, groups))
    ordered = groups[by_cost]
    heads = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    best[ordered[heads]] = by_cost[heads]
    return best


def _counts_up(counts: Ints) -> Ints:
    """0, 1, … c-1 for each count c, one after another."""
    total = int(counts.sum())
    starts = np.cumsum(counts) - counts
    return np.arange(total) - np.repeat(starts, counts)
