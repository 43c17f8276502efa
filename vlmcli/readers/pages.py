"""Reads whole pages, or puts questions to them: one picture, one prompt and one answer a question.

For published vision-language checkpoints. The prompt is the family's own chat format around the
picture, the question behind it. So all questions about a page begin with the same tokens: the
picture is encoded once, and the engine shares the KV blocks of what they have in common. Equal
pages of a job are not looked for here, that is the pipeline's reuse layer.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vlmcli.engine.engine import Engine
from vlmcli.engine.models.registry import find_family
from vlmcli.engine.preprocess import resize
from vlmcli.engine.request import (
    DraftSource,
    ImageInput,
    PlaceholderRange,
    Request,
    SamplingParams,
)
from vlmcli.errors import PageError, UsageError
from vlmcli.readers.drafts import page_drafts
from vlmcli.readers.guard import Answer, Build, Guard
from vlmcli.readers.shortage import device_bytes, memory_errors_translated
from vlmcli.reading import (
    DEFAULT_MAX_TOKENS,
    INSTRUCTION,
    OutOfMemoryError,
    PageJob,
    PageReading,
)
from vlmcli.results import PageAnswer, Seconds, TokenCounts, add_seconds, add_tokens

Pixels = npt.NDArray[np.uint8]


class PageReader:
    """A `reading.Reader` for models that read a page at a time.

    Args:
        guard: the engine behind the loop guard.
        max_tokens: output tokens of an answer at the most; None for `DEFAULT_MAX_TOKENS`, or what
            the model's positions leave.
        questions: what every page is asked; none to have its text.

    Raises:
        UsageError: a question holds the mark that stands for a picture.
    """

    def __init__(
        self, guard: Guard, *, max_tokens: int | None, questions: Sequence[str] = ()
    ) -> None:
        self._guard = guard
        self._max_tokens = max_tokens or DEFAULT_MAX_TOKENS
        self._questions = tuple(questions)
        self._endings = [prompt_ending(guard.engine, text) for text in questions or (INSTRUCTION,)]
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
                    self._endings,
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
            self._finished.append(_reading(key, self._questions, answers))


def prompt_ending(engine: Engine, instruction: str) -> list[int]:
    """What stands behind the picture in the prompt.

    Raises:
        UsageError: the instruction holds the mark that stands for a picture.
    """
    family = find_family(engine.model_config.model_type)
    tokens = engine.encode(family.chat.after.format(question=instruction))
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
    before = engine.encode(find_family(config.model_type).chat.before)
    image, placeholder = page_image(engine, picture, offset=len(before))
    for ending in endings:
        prompt = [*before, *[config.image_token_id] * placeholder.length, *ending]
        room = config.text.max_position_embeddings - len(prompt)
        yield _PageRequest(
            prompt=prompt,
            image=image,
            placeholder=placeholder,
            max_tokens=max(1, min(max_tokens, room)),
            drafts=drafts,
        )


def page_image(
    engine: Engine, picture: Pixels, *, offset: int
) -> tuple[ImageInput, PlaceholderRange]:
    """A picture as the model wants it, and its place in a prompt.

    Args:
        engine: the model.
        picture: uint8 (H, W, 3) RGB or (H, W) grey.
        offset: index of its first token.

    Raises:
        PageError: the model cannot take a picture of this size.
    """
    config = engine.model_config
    processor, merge = config.processor, config.vision.merge_size
    height, width = picture.shape[:2]
    geometry = find_family(config.model_type).geometry(width, height, processor)
    pixels = resize(picture, geometry.width, geometry.height, processor.resample)
    frames, rows, columns = geometry.grid_thw
    place = PlaceholderRange(
        offset=offset,
        length=geometry.num_tokens,
        grid=(frames, rows // merge, columns // merge),
    )
    return ImageInput(pixels=pixels, mm_hash=picture_digest(pixels)), place


class _PageRequest:
    """Builds the request of each attempt at one page."""

    def __init__(
        self,
        *,
        prompt: list[int],
        image: ImageInput,
        placeholder: PlaceholderRange,
        max_tokens: int,
        drafts: tuple[DraftSource, ...],
    ) -> None:
        self._prompt, self._image, self._placeholder = prompt, image, placeholder
        self._max_tokens = max_tokens
        self._drafts = drafts

    def __call__(self, request_id: str, temperature: float, seed: int) -> Request:
        return Request(
            request_id=request_id,
            prompt_token_ids=self._prompt,
            images=(self._image,),
            placeholders=(self._placeholder,),
            sampling=SamplingParams(
                max_tokens=self._max_tokens, temperature=temperature, seed=seed
            ),
            drafts=self._drafts,
        )


def _reading(key: int, questions: Sequence[str], answers: Sequence[Answer]) -> PageReading:
    """A page whose questions, or whose one instruction, have all been answered."""
    is_looped = any(answer.is_looped for answer in answers)
    asked = tuple(
        PageAnswer(question=question, text=answer.text)
        for question, answer in zip(questions, answers, strict=False)
    )
    return PageReading(
        key=key,
        status="looped" if is_looped else "ok",
        text="\n\n".join(answer.text for answer in answers if answer.text),
        answers=asked if questions else None,
        message="the model repeated itself; the text is cut there" if is_looped else "",
        suspect=("truncated",) if any(answer.is_truncated for answer in answers) else (),
        attempts=max(answer.attempts for answer in answers),
        tokens=_tokens(answers),
        seconds=_seconds(answers),
    )


def _tokens(answers: Sequence[Answer]) -> TokenCounts:
    """What a page took in tokens. Its picture counts once, however many questions share it."""
    total = TokenCounts()
    for answer in answers:
        total = add_tokens(total, answer.tokens)
    return replace(total, visual=max(answer.tokens.visual for answer in answers))


def _seconds(answers: Sequence[Answer]) -> Seconds:
    total = Seconds()
    for answer in answers:
        total = add_seconds(total, answer.seconds)
    return total


def picture_digest(pixels: Pixels) -> bytes:
    """SHA-256 over mode, size and pixels of an RGB or grey picture: 32 bytes."""
    mode = "L" if pixels.ndim == 2 else "RGB"
    digest = hashlib.sha256(f"{mode} {pixels.shape[1]} {pixels.shape[0]}\0".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()
