"""Who would answer a job's pages: their text layers, nobody since they are blank, or the model.

Page workers judge them as they do for `ocr`, by the same function and on the same picture; a page
that is in doubt, or cannot be drawn in time, counts as one to read. Of many pages some are looked
at, spread evenly, and the result says so. Pages on which nothing is drawn need no worker.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from vlmcli.documents.prepared import PrepareSpec
from vlmcli.documents.source import Source, open_document
from vlmcli.report import NO_TEXT_LAYER
from vlmcli.workers import DrawnPage, Outcome, PageTask, WorkerPool

MOST_PAGES = 24
"""That are looked at."""
_PATIENCE = 5.0
"""Seconds for a page."""
_MOST_WORKERS = 4

Place = tuple[Source, int]
"""A page: its document, and its number from 0."""
Answer = Literal["text-layer", "none", "blank", "read"]
"""`none` where nobody but a text layer may answer, and there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesAhead:
    """Pages by who would answer them; estimates where not all of them were looked at."""

    text_layer: int
    blank: int
    no_text_layer: int
    """With `--text-layer only`: they will be empty."""
    to_read: int
    looked_at: int

    @property
    def total(self) -> int:
        """Pages of the job."""
        return self.text_layer + self.blank + self.no_text_layer + self.to_read

    @property
    def is_estimate(self) -> bool:
        """Whether the counts are those of a sample, scaled up."""
        return self.looked_at < self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """How documents are opened and pages judged."""

    spec: PrepareSpec
    password: str | None
    frame_interval: float
    jobs: int


def look_ahead(places: Sequence[Place], looking: Looking) -> PagesAhead:
    """Look at the pages, or at some of them."""
    sample = _sample(places)
    answers = [*_answers(sample, looking)]
    # Rounded down: what is left over counts as to be read.
    text_layer, none, blank = (
        answers.count(one) * len(places) // max(1, len(sample))
        for one in ("text-layer", "none", "blank")
    )
    return PagesAhead(
        text_layer=text_layer,
        blank=blank,
        no_text_layer=none,
        to_read=len(places) - text_layer - none - blank,
        looked_at=len(sample),
    )


def _sample(places: Sequence[Place]) -> list[Place]:
    """All pages, or some that are spread evenly, the first and the last among them."""
    if len(places) <= MOST_PAGES:
        return [*places]
    step = (len(places) - 1) / (MOST_PAGES - 1)
    return [places[round(number * step)] for number in range(MOST_PAGES)]


def _answers(sample: Sequence[Place], looking: Looking) -> Iterator[Answer]:
    """For each page, in any order."""
    waiting = []
    for source, group in groupby(sample, key=lambda place: place[0]):
        with open_document(
            source, password=looking.password, strict=False, frame_interval=looking.frame_interval
        ) as document:
            for place in group:
                if document.is_empty(place[1]):
                    yield "none" if looking.spec.text_layer == "only" else "blank"
                else:
                    waiting.append(place)
    yield from map(_answer, _drawn(waiting, looking))


def _drawn(places: Sequence[Place], looking: Looking) -> Iterator[Outcome]:
    """What page workers make of the pages."""
    pool = WorkerPool(min(looking.jobs, _MOST_WORKERS), timeout=_PATIENCE)
    tasks = [
        PageTask(
            serial=number,
            source=source,
            password=looking.password,
            index=index,
            spec=looking.spec,
            frame_interval=looking.frame_interval,
        )
        for number, (source, index) in enumerate(places)
    ]
    try:
        while tasks or pool.num_pending:
            while tasks and pool.can_take():
                pool.submit(tasks.pop(0))
            for _, outcome in pool.collect(None):
                yield outcome
    finally:
        pool.close()


def _answer(outcome: Outcome) -> Answer:
    if not isinstance(outcome, DrawnPage):
        return "read"
    found = outcome.page.outcome
    if NO_TEXT_LAYER in outcome.page.suspect:
        return "none"
    return found if found in ("text-layer", "blank") else "read"
