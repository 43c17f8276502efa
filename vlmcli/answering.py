"""Answers to requests, all attempts counted, and what they make of a page.

For readers of whole pages, whoever answers them: knows no engine and no server.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vlmcli.markup import tidy
from vlmcli.options import TaskName
from vlmcli.reading import PageReading
from vlmcli.results import PageAnswer, Seconds, TokenCounts, add_seconds, add_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a request, all attempts counted."""

    text: str
    confidence: float | None
    """Geometric mean of the tokens' probabilities, 0 to 1; None where they are not known."""
    is_looped: bool
    is_truncated: bool
    """Whether the token limit ended it."""
    attempts: int
    tokens: TokenCounts
    seconds: Seconds


def page_reading(
    key: int, questions: Sequence[str], answers: Sequence[Answer], *, task: TaskName
) -> PageReading:
    """A page whose questions, or whose one instruction, have all been answered.

    Args:
        key: of the page.
        questions: the user's, whose answers stay as they are; none where the task was given.
        answers: to all questions, or to the instruction.
        task: that the text is tidied for.
    """
    is_looped = any(answer.is_looped for answer in answers)
    asked = tuple(
        PageAnswer(question=question, text=answer.text)
        for question, answer in zip(questions, answers, strict=False)
    )
    return PageReading(
        key=key,
        status="looped" if is_looped else "ok",
        text=joined(answers) if questions else tidy(joined(answers), task),
        answers=asked if questions else None,
        message="the model repeated itself; the text is cut there" if is_looped else "",
        suspect=("truncated",) if any(answer.is_truncated for answer in answers) else (),
        attempts=max(answer.attempts for answer in answers),
        tokens=tokens_of_page([answer.tokens for answer in answers]),
        seconds=_seconds(answers),
    )


def joined(answers: Iterable[Answer | PageAnswer]) -> str:
    """The text of a page that was asked something."""
    return "\n\n".join(answer.text for answer in answers if answer.text)


def tokens_of_page(counts: Sequence[TokenCounts]) -> TokenCounts:
    """What a page took in tokens. Its picture counts once, however many questions share it."""
    total = TokenCounts()
    for one in counts:
        total = add_tokens(total, one)
    return replace(total, visual=max(one.visual for one in counts))


def _seconds(answers: Sequence[Answer]) -> Seconds:
    total = Seconds()
    for answer in answers:
        total = add_seconds(total, answer.seconds)
    return total
