"""From texts that may resemble a page's to draft sources of the engine, for pages and for lines.

A line reader asks crop by crop, so a page's draft is cut up: a crop gets what the draft has at its
place. Wrong drafts cost time and change nothing, so the matching need not be perfect.
"""

from collections.abc import Callable, Sequence

from vlmcli.engine.request import DraftSource
from vlmcli.reading import Draft
from vlmcli.results import Line

Encode = Callable[[str], list[int]]
Box = tuple[int, int, int, int]

WEIGHTS = {"text-layer": 0.95, "near-duplicate": 0.8, "nano": 0.8, "rapidocr": 0.8}
"""Share of right tokens that is expected of a source until some have been seen."""
_OTHER_WEIGHT = 0.7
_MIN_OVERLAP = 0.5
"""Of the lower box's height, for two lines to be at the same height; of a line's width, for it to
be in a crop."""


def page_drafts(drafts: Sequence[Draft], encode: Encode) -> tuple[DraftSource, ...]:
    """The drafts of a page that is read whole."""
    return tuple(_source(draft.name, draft.text, encode) for draft in drafts if draft.text)


def crop_drafts(drafts: Sequence[Draft], box: Box, encode: Encode) -> tuple[DraftSource, ...]:
    """What the drafts of a page have where a crop with that box is."""
    found = ((draft.name, text_at(draft.lines, box)) for draft in drafts)
    return tuple(_source(name, text, encode) for name, text in found if text)


def text_at(lines: Sequence[Line], box: Box) -> str:
    """The text of the lines in a box (x0, y0, x1, y1), from left to right; empty without any.

    Where the box is a part of one line, that line's whole text: drafts find their place.
    """
    level = [line for line in lines if _is_level(line.bbox, box)]
    inside = [line for line in level if _overlap(line.bbox, box) >= _MIN_OVERLAP * _width(line)]
    if not inside:
        best = max(level, key=lambda line: _overlap(line.bbox, box), default=None)
        return best.text if best is not None and _overlap(best.bbox, box) > 0 else ""
    inside.sort(key=lambda line: line.bbox[0])
    return " ".join(line.text for line in inside)


def _source(name: str, text: str, encode: Encode) -> DraftSource:
    weight = WEIGHTS.get(name, _OTHER_WEIGHT)
    return DraftSource(name=name, token_ids=tuple(encode(text)), weight=weight)


def _is_level(one: Box, other: Box) -> bool:
    common = min(one[3], other[3]) - max(one[1], other[1])
    return common >= _MIN_OVERLAP * min(one[3] - one[1], other[3] - other[1])


def _overlap(one: Box, other: Box) -> int:
    return min(one[2], other[2]) - max(one[0], other[0])


def _width(line: Line) -> int:
    return max(1, line.bbox[2] - line.bbox[0])
