"""From what the crops of a page say to its lines and its text. Pure; knows no reader."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from vlmcli.documents.lines import LineCrop, join_text
from vlmcli.documents.lines.words import word_columns
from vlmcli.reading import CropText
from vlmcli.results import Line, Strip

_LEAST_CONFIDENCE = 0.65
"""Mean over a page's characters, below which what was read is rubbish. Of 140 pages (public set,
samples and test data, some made worse on purpose) those with less than a fifth of their characters
wrong have 0.82 and more; photographs and drawings without text, scripts that the model does not
know, and pages blurred beyond reading have 0.57 and less."""


def doubts(lines: Sequence[Line]) -> tuple[str, ...]:
    """Whether the built-in model was so unsure of a page that there may be no such text on it."""
    known = [(line.confidence, len(line.text)) for line in lines if line.confidence is not None]
    total = sum(length for _, length in known)
    if not total:
        return ()
    mean = sum(value * length for value, length in known) / total
    return ("low-confidence",) if mean < _LEAST_CONFIDENCE else ()


def join_crops(
    crops: Sequence[LineCrop], answers: Sequence[CropText]
) -> tuple[tuple[Line, ...], str]:
    """The lines of a page and its text, from what the crops of its lines say.

    A line's confidence is the geometric mean of its crops', weighted by their lengths. It is
    rounded once, here, and to two digits: what a crop is batched with changes the seventh digit,
    and a resumed job batches otherwise than the uninterrupted one whose records it must equal.
    """
    lines: list[Line] = []
    places: list[LineCrop] = []
    pairs = zip(crops, answers, strict=True)
    for _, group in groupby(pairs, key=lambda pair: pair[0].line):
        members = list(group)
        text = " ".join(answer.text for _, answer in members if answer.text)
        if not text:
            continue
        boxes = [crop.bbox for crop, _ in members]
        places.append(members[0][0])
        lines.append(
            Line(
                bbox=(
                    min(box[0] for box in boxes),
                    min(box[1] for box in boxes),
                    max(box[2] for box in boxes),
                    max(box[3] for box in boxes),
                ),
                text=text,
                confidence=_confidence([answer for _, answer in members]),
                strip=_strip(members),
            )
        )
    return tuple(lines), join_text(places, [line.text for line in lines])


def _strip(members: Sequence[tuple[LineCrop, CropText]]) -> Strip | None:
    """Where a line lies, and its words, of which its crops' pictures tell."""
    strip = members[0][0].strip
    if strip is None:
        return None
    words: list[tuple[int, int]] = []
    for crop, answer in members:
        first, last = crop.span
        unit = (last - first) / crop.pixels.shape[1]
        for start, stop in word_columns(crop.pixels, answer.text):
            low = max(0, round(first + start * unit))
            words.append((low, max(low + 1, round(first + stop * unit))))
    return replace(strip, words=tuple(words))


def _confidence(answers: Sequence[CropText]) -> float | None:
    known = [(a.confidence, len(a.text)) for a in answers if a.confidence is not None and a.text]
    if not known:
        return None
    total = sum(length for _, length in known)
    logs = sum(math.log(max(value, 1e-9)) * length for value, length in known)
    return round(math.exp(logs / total), 2)
