"""A page reader whose answers have to be data: those that are not are asked for again.

Wraps any reader that takes questions. An answer that does not satisfy the schema is asked for once
more, with what was wrong with it, as often as `--retries` says; a page that still has no data then
is an error, and its record keeps the answers. Pages without answers (loops, errors) pass as they
are.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vlmcli.answering import joined, tokens_of_page
from vlmcli.answers import AnswerChecker
from vlmcli.reading import PageJob, PageReading, Reader
from vlmcli.results import PageAnswer, add_seconds

MAX_AGAIN_BYTES = 400
"""What a question asked again is longer by, at the most."""
_MARKS = re.compile(r"[<|>{}]")
"""Of these are the words that stand for pictures and turns in prompts made, and templates."""


@dataclass(slots=True)
class _Page:
    """A page in work: the job, its answers so far, and which of them are asked for again."""

    job: PageJob
    attempt: int = 1
    first: PageReading | None = None
    """The readings so far, added up."""
    open: tuple[int, ...] = ()


class CheckedReader:
    """A `reading.Reader` around another.

    Args:
        reader: answers `questions`, or a job's own.
        checker: says what is wrong with answers.
        questions: what every page is asked.
        retries: how often an answer is asked for again.
    """

    def __init__(
        self, reader: Reader, checker: AnswerChecker, *, questions: Sequence[str], retries: int
    ) -> None:
        self._reader, self._checker = reader, checker
        self._questions = tuple(questions)
        self._retries = retries
        self._pages: dict[int, _Page] = {}
        self._again: deque[int] = deque()
        """Pages whose questions are to be put once more; there may be no memory for it yet."""

    def submit(self, job: PageJob) -> None:
        """Take a page.

        Raises:
            OutOfMemoryError: the page has not been taken.
        """
        self._reader.submit(job)
        self._pages[job.key] = _Page(job=job)

    def step(self) -> Sequence[PageReading]:
        """Advance the work; the pages that have their data, or will get none.

        Raises:
            OutOfMemoryError: nothing has been advanced.
        """
        while self._again:
            self._reader.submit(self._pages[self._again[0]].job)
            self._again.popleft()
        finished = []
        for reading in self._reader.step() if self._reader.has_work() else ():
            page = self._pages[reading.key]
            page.first = _added(page.first, reading, page.open)
            settled = self._settle(page, page.first)
            if settled is not None:
                del self._pages[reading.key]
                finished.append(settled)
        return finished

    def abort(self, key: int) -> None:
        """Forget a page."""
        del self._pages[key]
        if key in self._again:
            self._again.remove(key)
        else:
            self._reader.abort(key)

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""
        return bool(self._pages)

    def drop_caches(self) -> None:
        """Give up whatever only saves time."""
        self._reader.drop_caches()

    def device_bytes(self) -> int:
        """What the reader takes of the memory of a device of its own."""
        return self._reader.device_bytes()

    def stats(self) -> dict[str, float]:
        """Counters of the whole run, by name."""
        return self._reader.stats()

    def close(self) -> None:
        """Release the model."""
        self._reader.close()

    def _settle(self, page: _Page, reading: PageReading) -> PageReading | None:
        """The page's last word, or None where it is asked again."""
        if reading.status != "ok" or reading.answers is None:
            return reading
        verdict = self._checker.check([answer.text for answer in reading.answers])
        if verdict.data is not None:
            return replace(reading, data=verdict.data)
        if page.attempt > self._retries:
            number, fault = min(verdict.faults.items())
            message = f"the answer to question {number + 1} is of no use: {fault}"
            return replace(reading, status="error", code="answers", message=message)
        page.attempt += 1
        page.open = tuple(sorted(verdict.faults))
        questions = tuple(
            _asked_again(self._questions[number], verdict.faults[number]) for number in page.open
        )
        page.job = replace(page.job, questions=questions)
        self._again.append(page.job.key)
        return None


def _asked_again(question: str, fault: str) -> str:
    plain = _MARKS.sub(" ", fault).encode()[: MAX_AGAIN_BYTES // 2].decode(errors="ignore")
    return (
        f"{question}\n\nAn earlier answer could not be used: {plain}. Give the JSON object alone."
    )


def _added(before: PageReading | None, reading: PageReading, numbers: Sequence[int]) -> PageReading:
    """All that a page was asked and took so far; new answers in the place of old ones."""
    if before is None or before.answers is None:
        return reading
    answers = list(before.answers)
    for number, answer in zip(numbers, reading.answers or (), strict=False):
        answers[number] = PageAnswer(question=answers[number].question, text=answer.text)
    return replace(
        reading,
        answers=tuple(answers),
        text=joined(answers),
        attempts=before.attempts + reading.attempts,
        tokens=tokens_of_page((before.tokens, reading.tokens)),
        seconds=add_seconds(before.seconds, reading.seconds),
        suspect=tuple(dict.fromkeys((*before.suspect, *reading.suspect))),
    )
