"""Reads whole pages, or puts questions to them: one picture, one prompt and one answer a question.

For published vision-language checkpoints. The prompt is the family's own chat format around the
picture, the question behind it. So all questions about a page begin with the same tokens: the
picture is encoded once, and the engine shares the KV blocks of what they have in common. Equal
pages of a job are not looked for here, that is the pipeline's reuse layer.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from vlmcli.answering import Answer, page_reading
from vlmcli.engine.engine import Engine
from vlmcli.engine.models.prompts import Task, prompt_for
from vlmcli.engine.models.registry import find_family
from vlmcli.engine.request import DraftSource, Request, SamplingParams
from vlmcli.engine.views import LaidOut, lay_out
from vlmcli.errors import PageError, UsageError
from vlmcli.readers.drafts import page_drafts
from vlmcli.readers.guard import Build, Guard
from vlmcli.readers.shortage import device_bytes, memory_errors_translated
from vlmcli.reading import DEFAULT_MAX_TOKENS, OutOfMemoryError, PageJob, PageReading

Pixels = npt.NDArray[np.uint8]


class PageReader:
    """A `reading.Reader` for models that read a page at a time.

    Args:
        guard: the engine behind the loop guard.
        max_tokens: output tokens of an answer at the most; None for `DEFAULT_MAX_TOKENS`, or what
            the model's positions leave.
        questions: what every page is asked; none to have its text.
        task: what it is asked for where there are no questions.

    Raises:
        UsageError: a question holds the mark that stands for a picture.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        max_tokens: int | None,
        questions: Sequence[str] = (),
        task: Task = "text",
    ) -> None:
        self._guard = guard
        self._max_tokens = max_tokens or DEFAULT_MAX_TOKENS
        self._questions = tuple(questions)
        self._task = task
        instruction = prompt_for(guard.engine.model_config.model_type, task)
        self._endings = [prompt_ending(guard.engine, text) for text in questions or (instruction,)]
        self._asked: dict[int, tuple[str, ...]] = {}
        """Pages with questions of their own."""
        self._pages: dict[int, dict[int, Answer | None]] = {}
        """Answers of the pages in work, by the tickets of their questions, in order."""
        self._keys: dict[int, int] = {}
        """Pages by the tickets of their questions."""
        self._finished: list[PageReading] = []

    def submit(self, job: PageJob) -> None:
        """Queue a page. One that the model cannot take comes back as an error from `step`.

        Raises:
            OutOfMemoryError: there is no room for it; the page has not been taken.
        """
        assert job.picture is not None, "a page reader needs the page's picture"
        answers: dict[int, Answer | None] = {}
        self._pages[job.key] = answers
        try:
            with memory_errors_translated():
                builds = page_requests(
                    self._guard.engine,
                    job.picture,
                    self._endings_for(job),
                    max_tokens=self._max_tokens,
                    drafts=self._drafts(job),
                )
                for build in builds:
                    ticket = self._guard.start(build)
                    answers[ticket] = None
                    self._keys[ticket] = job.key
        except OutOfMemoryError:
            self.abort(job.key)
            raise
        except PageError as error:
            self.abort(job.key)
            self._finished.append(
                PageReading(key=job.key, status="error", code=error.code, message=str(error))
            )

    def step(self) -> Sequence[PageReading]:
        """One engine step; the pages that it finished.

        Raises:
            OutOfMemoryError: the step has not been done.
        """
        if self._guard.has_work():
            with memory_errors_translated():
                answers = self._guard.step()
            for ticket, answer in answers:
                self._settle(ticket, answer)
        finished, self._finished = self._finished, []
        return finished

    def abort(self, key: int) -> None:
        """Forget a page."""
        self._finished = [reading for reading in self._finished if reading.key != key]
        self._asked.pop(key, None)
        for ticket, answer in self._pages.pop(key, {}).items():
            if answer is None:
                self._guard.abort(ticket)
                del self._keys[ticket]

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""
        return bool(self._pages or self._finished)

    def drop_caches(self) -> None:
        """Forget embeddings that only save time."""
        self._guard.drop_caches()

    def device_bytes(self) -> int:
        """What torch holds of a GPU; 0 on a CPU."""
        return device_bytes(self._guard.engine.config.device)

    def stats(self) -> dict[str, float]:
        """The engine's counters."""
        return self._guard.engine.stats()

    def close(self) -> None:
        """Forget all pages."""
        for key in list(self._pages):
            self.abort(key)

    def _endings_for(self, job: PageJob) -> list[list[int]]:
        """The endings of a page's prompts: the reader's, or those of the job's own questions."""
        if job.questions is None:
            return self._endings
        self._asked[job.key] = job.questions
        return [prompt_ending(self._guard.engine, text) for text in job.questions]

    def _drafts(self, job: PageJob) -> tuple[DraftSource, ...]:
        """Texts that the page's may be like; answers to questions are like none."""
        return () if self._questions else page_drafts(job.drafts, self._guard.engine.encode)

    def _settle(self, ticket: int, answer: Answer) -> None:
        """Take an answer; the last one of a page finishes it."""
        key = self._keys.pop(ticket)
        page = self._pages[key]
        page[ticket] = answer
        answers = [one for one in page.values() if one is not None]
        if len(answers) == len(page):
            del self._pages[key]
            questions = self._asked.pop(key, self._questions)
            self._finished.append(page_reading(key, questions, answers, task=self._task))


def prompt_ending(engine: Engine, instruction: str) -> list[int]:
    """What stands behind the picture in the prompt.

    Raises:
        UsageError: the instruction holds the mark that stands for a picture.
    """
    family = find_family(engine.model_config.model_type)
    chat = family.chat_for(engine.encode)
    tokens = engine.encode(chat.after.format(question=instruction))
    if engine.model_config.image_token_id in tokens:
        raise UsageError(f"a question holds the mark of a picture: {instruction!r}")
    return tokens


def page_requests(
    engine: Engine,
    picture: Pixels,
    endings: Sequence[list[int]],
    *,
    max_tokens: int,
    drafts: tuple[DraftSource, ...] = (),
) -> Iterator[Build]:
    """What builds the requests of a page, prompt by prompt; they share one picture.

    Args:
        engine: the model, its tokenizer and its limits.
        picture: uint8 (H, W, 3) RGB or (H, W) grey.
        endings: of the prompts, from `prompt_ending`.
        max_tokens: output tokens of each; fewer where the model's positions end before.
        drafts: guesses at the answers.

    Raises:
        PageError: the model cannot take a picture of this size.
    """
    config = engine.model_config
    family = find_family(config.model_type)
    before = engine.encode(family.chat_for(engine.encode).before)
    laid_out = lay_out(
        family.parts(picture, config),
        engine.encode,
        image_token_id=config.image_token_id,
        offset=len(before),
    )
    for ending in endings:
        prompt = [*before, *laid_out.token_ids, *ending]
        room = config.text.max_position_embeddings - len(prompt)
        yield _PageRequest(
            prompt=prompt,
            picture=laid_out,
            max_tokens=max(1, min(max_tokens, room)),
            drafts=drafts,
        )


class _PageRequest:
    """Builds the request of each attempt at one page."""

    def __init__(
        self,
        *,
        prompt: list[int],
        picture: LaidOut,
        max_tokens: int,
        drafts: tuple[DraftSource, ...],
    ) -> None:
        self._prompt, self._picture = prompt, picture
        self._max_tokens = max_tokens
        self._drafts = drafts

    def __call__(self, request_id: str, temperature: float, seed: int) -> Request:
        return Request(
            request_id=request_id,
            prompt_token_ids=self._prompt,
            images=self._picture.images,
            placeholders=self._picture.placeholders,
            sampling=SamplingParams(
                max_tokens=self._max_tokens, temperature=temperature, seed=seed
            ),
            drafts=self._drafts,
        )
