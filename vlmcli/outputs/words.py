"""Where the words of a line stand, for formats that want a box for each.

A line with a strip has the places of its words, whichever way it runs; where the print did not tell
them, and in lines of which only the box is known, each word has its share of the line's length:
good enough to mark a word that was searched for, not to measure it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vlmcli.outputs.base import plain
from vlmcli.results import Line, PageRecord, Strip
from vlmcli.strip import Box, box_of, has_area, length_of, part_of

_UNSTORABLE = re.compile("[\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word and its box, x0, y0, x1, y1 in pixels of the displayed page."""

    text: str
    bbox: Box
    span: tuple[float, float] = (0.0, 0.0)
    """Where it begins and ends along its line's strip, in pixels; of no use in lines without."""


def storable(text: str) -> str:
    """Text without what XML cannot hold: controls, lone surrogates, non-characters."""
    return _UNSTORABLE.sub("\ufffd", plain(text))


def lines_of(record: PageRecord) -> Iterator[Line]:
    """The lines of a page that have text; those of a reader without boxes share the page's height.

    A reader of whole pages says what stands there, not where. Spread over the page, its lines can
    still be searched, and they keep their order.
    """
    if record.lines:
        for line in record.lines:
            text = " ".join(storable(line.text).split())
            x0, y0, x1, y1 = line.bbox
            if text and x0 < x1 and y0 < y1:
                strip = line.strip if line.strip is not None and has_area(line.strip) else None
                yield Line(bbox=line.bbox, text=text, confidence=line.confidence, strip=strip)
        return
    texts = [" ".join(text.split()) for text in storable(record.text).splitlines()]
    texts = [text for text in texts if text]
    if not texts or not record.width or not record.height:
        return
    step = record.height / (len(texts) + 1)
    longest = max(len(text) for text in texts)
    for number, text in enumerate(texts):
        width = max(1, round(record.width * len(text) / longest))
        top = round(step * (number + 0.5))
        yield Line(bbox=(0, top, width, max(top + 1, round(top + 0.8 * step))), text=text)


def bounds_of(lines: Sequence[Line]) -> Box:
    """The box around all lines, of which there is at least one."""
    lefts, tops, rights, bottoms = zip(*(line.bbox for line in lines), strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def words_of(line: Line) -> Iterator[Word]:
    """The words of a line out of `lines_of`: its text has single spaces, its strip an area."""
    if line.strip is not None:
        yield from _along(line, line.strip)
        return
    x0, y0, x1, y1 = line.bbox
    unit = (x1 - x0) / len(line.text)
    place = 0
    for text in line.text.split(" "):
        left, right = round(x0 + unit * place), round(x0 + unit * (place + len(text)))
        yield Word(text=text, bbox=(left, y0, max(left + 1, right), y1))
        place += len(text) + 1


def _along(line: Line, strip: Strip) -> Iterator[Word]:
    texts = line.text.split(" ")
    spans: Sequence[tuple[float, float]] = strip.words
    if len(spans) != len(texts):
        length = length_of(strip)
        # Brings numpy, which a command that only says how it is used does not need.
        from vlmcli.documents.lines.words import word_shares

        spans = [(length * start, length * end) for start, end in word_shares(line.text)]
    for text, (start, end) in zip(texts, spans, strict=True):
        box = _within(box_of(part_of(strip, start, end)), line.bbox)
        yield Word(text=text, bbox=box, span=(start, end))


def _within(box: Box, outer: Box) -> Box:
    """What of a box lies in another one; a pixel of that at least."""
    left = min(max(box[0], outer[0]), outer[2] - 1)
    top = min(max(box[1], outer[1]), outer[3] - 1)
    right, bottom = min(box[2], outer[2]), min(box[3], outer[3])
    return left, top, max(left + 1, right), max(top + 1, bottom)
