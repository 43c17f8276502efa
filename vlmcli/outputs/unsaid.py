"""What was read of a page less what the page says itself, for text that goes behind it.

A page that the model had to read may have text of its own beside a picture: a caption, the values
of a form, a stamp with a date. Such words would be found twice. Invisible text does not count: it
is an earlier reading of the same picture.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from vlmcli.documents.base import Fragment
from vlmcli.outputs.words import Word, bounds_of, words_of
from vlmcli.results import Line
from vlmcli.strip import part_of, quarter_of

_Sides = tuple[float, float, float, float]
_MOST_OF_A_LINE = 0.6
"""Share of a line's words that the page says, from which on the others are misread words of it."""


def unsaid(lines: Iterable[Line], fragments: Sequence[Fragment]) -> Iterator[Line]:
    """The lines, less the words that visible text of the page says in the same place.

    Args:
        lines: with single spaces, boxes in pixels of the displayed page.
        fragments: the page's own text, boxes in the same pixels.
    """
    visible = [fragment for fragment in fragments if not fragment.invisible]
    for line in lines:
        said = Counter(_key(word) for word in _words_under(line, visible))
        if not said:
            yield line
        else:
            yield from _rest(line, said)


def _rest(line: Line, said: Counter[str]) -> Iterator[Line]:
    words = list(words_of(line))
    is_said = []
    for word in words:
        key = _key(word.text)
        is_said.append(said[key] > 0)
        said[key] -= 1
    if sum(is_said) >= _MOST_OF_A_LINE * len(words):
        return
    for skipped, run in groupby(zip(is_said, words, strict=True), key=lambda pair: pair[0]):
        if not skipped:
            yield _joined([word for _, word in run], line)


def _joined(words: Sequence[Word], line: Line) -> Line:
    text = " ".join(word.text for word in words)
    if line.strip is not None:
        start, end = words[0].span[0], words[-1].span[1]
        places = ((word.span[0] - start, word.span[1] - start) for word in words)
        strip = replace(
            part_of(line.strip, start, end),
            words=tuple((round(first), round(last)) for first, last in places),
        )
        box = bounds_of([Line(bbox=word.bbox, text=word.text) for word in words])
        return Line(bbox=box, text=text, confidence=line.confidence, strip=strip)
    _, y0, _, y1 = line.bbox
    box = words[0].bbox[0], y0, words[-1].bbox[2], y1
    return Line(bbox=box, text=text, confidence=line.confidence)


def _words_under(line: Line, fragments: Iterable[Fragment]) -> Iterator[str]:
    """Words of fragments that stand within a line's box; those of turned ones count whole."""
    runs_down = line.strip is not None and quarter_of(line.strip) % 2 == 1
    x0, y0, x1, y1 = _lying(line.bbox, runs_down)
    slack: float = y1 - y0
    if line.strip is not None:
        slack = line.strip.ascent + line.strip.descent
    for fragment in fragments:
        left, top, right, bottom = _lying(fragment.box, runs_down)
        overlap = min(y1, bottom) - max(y0, top)
        if right < x0 or left > x1 or overlap <= 0.5 * min(y1 - y0, bottom - top):
            continue
        is_level = not fragment.angle and not fragment.vertical and not runs_down
        unit = (right - left) / max(1, len(fragment.text))
        place = 0
        for word in fragment.text.split(" "):
            middle = left + unit * (place + len(word) / 2)
            if word.strip() and (not is_level or x0 - slack <= middle <= x1 + slack):
                yield word
            place += len(word) + 1


def _lying(box: _Sides, runs_down: bool) -> _Sides:
    """A box as it lies beside a line that runs from left to right."""
    x0, y0, x1, y1 = box
    return (y0, x0, y1, x1) if runs_down else box


def _key(word: str) -> str:
    """A word without case and the signs around it; signs alone stay as they are."""
    return "".join(filter(str.isalnum, word.casefold())) or word
