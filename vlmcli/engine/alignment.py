"""Where in a known text does the newest output stand? Two answers: near the old place, or anywhere.

`align_nearby` is semi-global edit distance (Sellers, 1980) of the last few output tokens against a
window of the text: it takes dropped, doubled and replaced tokens in its stride. `SuffixIndex` finds
the longest repetition of the output's end anywhere in a text that may grow. Plain integers; nothing
here knows what a draft is for.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CONTEXT = 8
"""Newest output tokens that are aligned; 6 to 14 make no difference to speak of (measured)."""
WINDOW = 16
"""Tokens of the text searched on either side of the expected place."""
MAX_SUFFIX = 32
_MAX_CANDIDATES = 64


def align_nearby(
    text: npt.NDArray[np.int64], output: npt.NDArray[np.int64], expected: int
) -> tuple[int, int]:
    """The place in `text` behind which the output probably goes on, near `expected`.

    Args:
        text: int64 [n] known text.
        output: int64 [m] output so far, m ≥ 1; only its last `CONTEXT` tokens count.
        expected: index into `text` where the output would stand if its newest token had replaced
            one token of the text.

    Returns:
        `(place, distance)`: an index from 0 to n, and the edit distance of the aligned context. Of
        equally distant places, one whose last token is the newest output token wins, then the one
        nearest to `expected`.
    """
    context = output[-CONTEXT:]
    first = max(0, min(expected, len(text)) - WINDOW - len(context))
    window = text[first : expected + WINDOW]
    columns = np.arange(len(window) + 1)
    row = np.zeros(len(window) + 1, dtype=np.int64)
    for token in context:
        change = np.empty_like(row)
        change[0] = row[0] + 1
        np.minimum(row[:-1] + (window != token), row[1:] + 1, out=change[1:])
        row = np.minimum.accumulate(change - columns) + columns
    distance = int(row.min())
    places = np.flatnonzero(row == distance)
    ends = window[places[places > 0] - 1] == context[-1]
    if ends.any():
        places = places[places > 0][ends]
    place = places[np.abs(places + first - expected).argmin()]
    return int(place) + first, distance


class SuffixIndex:
    """Finds earlier places of a text's or an output's last tokens in a text that may grow.

    Args:
        width: tokens that must match at least.
    """

    __slots__ = ("_num_indexed", "_places", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self._places: dict[tuple[int, ...], list[int]] = {}
        self._num_indexed = 0

    def extend(self, text: Sequence[int]) -> None:
        """Index the tokens of `text` that are new since the last call; old ones must not change."""
        for end in range(max(self._num_indexed + 1, self.width), len(text) + 1):
            self._places.setdefault(tuple(text[end - self.width : end]), []).append(end)
        self._num_indexed = len(text)

    def find(self, text: Sequence[int], tail: Sequence[int], expected: int) -> int | None:
        """The place in `text` behind the longest suffix of `tail`, nearest to `expected`.

        Args:
            text: the indexed text.
            tail: the last tokens of the output, at least `width` of them to find anything.
            expected: decides between equally long matches.

        Returns:
            Index into `text` right behind the match, less than its length, or None.
        """
        if len(tail) < self.width:
            return None
        places = self._places.get(tuple(tail[-self.width :]), [])
        if len(places) > _MAX_CANDIDATES:
            places = sorted(places, key=lambda place: abs(place - expected))[:_MAX_CANDIDATES]
        best: tuple[int, int] | None = None
        found = None
        for place in places:
            if place >= len(text):
                continue
            score = (_common_suffix(text, place, tail), -abs(place - expected))
            if best is None or score > best:
                best, found = score, place
        return found


def _common_suffix(text: Sequence[int], end: int, tail: Sequence[int]) -> int:
    """Tokens, at most `MAX_SUFFIX`, in which `text[:end]` and `tail` agree at their ends."""
    limit = min(end, len(tail), MAX_SUFFIX)
    for length in range(limit):
        if text[end - 1 - length] != tail[-1 - length]:
            return length
    return limit
