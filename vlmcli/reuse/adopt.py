"""The record of a page that takes over another page's result. Pure."""

from dataclasses import replace

import numpy as np

from vlmcli.results import Line, PageRecord, Reuse, TokenCounts
from vlmcli.reuse.registration import Motion
from vlmcli.strip import moved as moved_strip

_NOT_OF_THE_PIXELS = ("text-layer-disagrees",)
"""Suspicions that do not follow from what is to be seen: they are not taken over."""


def adopted(
    source: PageRecord, own: PageRecord, reuse: Reuse, motion: Motion | None = None
) -> PageRecord:
    """`own` with the text of `source`.

    Args:
        source: the result that is taken over.
        own: the page's own record so far: identity, size, resolution, rendering time.
        reuse: how the two pages came to count as one.
        motion: how the page lies on the source's (`difference.compare`); None if just as it.
    """
    theirs = (word for word in source.suspect if word not in _NOT_OF_THE_PIXELS)
    return replace(
        own,
        status=source.status,
        text=source.text,
        source="reuse",
        model=source.model,
        blank=source.blank,
        suspect=tuple(dict.fromkeys((*own.suspect, *theirs))),
        answers=source.answers,
        data=source.data,
        lines=tuple(_moved(line, motion, own) for line in source.lines) if motion else source.lines,
        reuse=reuse,
        tokens=TokenCounts(),
        attempts=0,
        error=None,
    )


def _moved(line: Line, motion: Motion, own: PageRecord) -> Line:
    """A line of the source's where it lies on the page: its corners' box, kept on the page."""
    x0, y0, x1, y1 = line.bbox
    corners = np.array([[x, y, 1.0] for x in (x0, x1) for y in (y0, y1)])
    matrix = motion.inverse().matrix
    moved = corners @ matrix.T
    low = np.clip(np.rint(moved.min(0)), 0, (own.width, own.height)).astype(int)
    high = np.clip(np.rint(moved.max(0)), 0, (own.width, own.height)).astype(int)
    return replace(
        line,
        bbox=(int(low[0]), int(low[1]), int(high[0]), int(high[1])),
        strip=None if line.strip is None else moved_strip(line.strip, matrix.tolist()),
    )
