"""From what workers and readers say about a page to its record. Pure functions, no state."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vlmcli.documents.prepared import PreparedPage
from vlmcli.joining import doubts, join_crops
from vlmcli.reading import PageReading
from vlmcli.results import ErrorInfo, Line, PageAnswer, PageRecord, Seconds, Status
from vlmcli.strip import moved

_MIN_TRIPLES = 20
_MIN_LIKENESS = 0.5
"""Dice's coefficient over triples of letters. See `docs/records.md`."""

_STATUS: dict[str, Status] = {
    "text-layer": "ok",
    "read": "ok",
    "blank": "blank",
    "error": "error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageIdentity:
    """Which page a record is about: document name, number from 1, pages in the document.

    `time` is that of a frame of a video, in seconds.
    """

    document: str
    page: int
    pages: int
    time: float | None = None

    def failed(
        self,
        code: str,
        message: str,
        *,
        attempts: int = 0,
        status: Literal["error", "timeout"] = "error",
    ) -> PageRecord:
        """The record of a page that came to nothing."""
        return PageRecord(
            document=self.document,
            page=self.page,
            pages=self.pages,
            status=status,
            attempts=attempts,
            error=ErrorInfo(code=code, message=message),
            time=self.time,
        )


def unreadable_document(name: str, error_code: str, message: str) -> PageRecord:
    """The one record of a document that could not be opened: page 0 of 0."""
    return PageIdentity(document=name, page=0, pages=0).failed(error_code, message)


def prepared_record(identity: PageIdentity, page: PreparedPage) -> PageRecord:
    """The record of a page that needed no model: text layer, blank, faulty, or without any text."""
    record = own_record(identity, page)
    if page.outcome != "read":
        return record
    return replace(record, suspect=(*page.suspect, "no-text-found"))


def own_record(identity: PageIdentity, page: PreparedPage) -> PageRecord:
    """What a page's record says before anybody has read it."""
    return PageRecord(
        document=identity.document,
        page=identity.page,
        pages=identity.pages,
        status=_STATUS[page.outcome],
        text=page.text if page.outcome == "text-layer" else "",
        source="text-layer" if page.outcome == "text-layer" else None,
        width=page.width,
        height=page.height,
        dpi=page.dpi,
        downscaled=page.downscaled,
        blank=page.outcome == "blank",
        suspect=page.suspect,
        lines=page.lines if page.outcome == "text-layer" else (),
        attempts=1,
        seconds=Seconds(render=round(page.render_seconds, 4)),
        error=page.error,
        time=identity.time,
    )


def read_record(
    identity: PageIdentity,
    page: PreparedPage,
    reading: PageReading,
    *,
    model: str,
) -> PageRecord:
    """The record of a page that a model has read."""
    crops = page.crops
    failed = reading.status != "ok"
    is_empty = reading.status in ("error", "timeout")
    lines: tuple[Line, ...] = () if is_empty else reading.lines
    text = reading.text
    doubtful: tuple[str, ...] = ()
    if crops and not is_empty:
        lines, text = join_crops(crops, reading.crops)
        doubtful = doubts(lines)
    return PageRecord(
        document=identity.document,
        page=identity.page,
        pages=identity.pages,
        status=reading.status,
        text="" if is_empty else text,
        source="model",
        model=model,
        width=page.width,
        height=page.height,
        dpi=page.dpi,
        downscaled=page.downscaled,
        suspect=(*page.suspect, *reading.suspect, *doubtful, *layer_suspects(page, text)),
        lines=lines,
        answers=reading.answers,
        data=reading.data,
        tokens=reading.tokens,
        attempts=reading.attempts,
        seconds=Seconds(
            render=round(page.render_seconds, 4),
            encode=round(reading.seconds.encode, 4),
            prefill=round(reading.seconds.prefill, 4),
            decode=round(reading.seconds.decode, 4),
        ),
        error=ErrorInfo(code=reading.code or reading.status, message=reading.message)
        if failed
        else None,
        time=identity.time,
    )


def with_answers(record: PageRecord, questions: Sequence[str]) -> PageRecord:
    """The record with an answer for every question of the job, whatever became of the page.

    A line reader cannot be asked anything: its answer is the page's text. A page without a text has
    empty answers.
    """
    if not questions or record.answers is not None:
        return record
    answers = tuple(PageAnswer(question=question, text=record.text) for question in questions)
    return replace(record, answers=answers)


def layer_suspects(page: PreparedPage, text: str) -> tuple[str, ...]:
    """Whether the page's own text, where it was a draft, is another than what was read.

    Measured in letters and digits alone, three at a time and in any order: reading order, line
    breaks and single misread letters count little; a broken font map, or text that is not to be
    seen, counts much.
    """
    layer = _triples(page.text)
    if page.outcome != "read" or layer.total() < _MIN_TRIPLES:
        return ()
    read = _triples(text)
    common = (layer & read).total()
    likeness = 2 * common / (layer.total() + read.total())
    return ("text-layer-disagrees",) if likeness < _MIN_LIKENESS else ()


def _triples(text: str) -> Counter[str]:
    letters = "".join(char for char in text.casefold() if char.isalnum())
    return Counter(letters[i : i + 3] for i in range(len(letters) - 2))


def scaled_lines(
    lines: Sequence[Line], size: tuple[int, int], new_size: tuple[int, int]
) -> tuple[Line, ...]:
    """Lines of a page of `size` (width, height in pixels) as they lie on one of another size."""
    if size == new_size or not all(size):
        return tuple(lines)
    across, down = new_size[0] / size[0], new_size[1] / size[1]
    matrix = (across, 0.0, 0.0), (0.0, down, 0.0)
    return tuple(
        replace(
            line,
            bbox=(
                round(line.bbox[0] * across),
                round(line.bbox[1] * down),
                round(line.bbox[2] * across),
                round(line.bbox[3] * down),
            ),
            strip=None if line.strip is None else moved(line.strip, matrix),
        )
        for line in lines
    )
