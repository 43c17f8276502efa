"""Reads whole pages: one picture, one instruction, one answer.

For published vision-language checkpoints. The prompt is the family's own chat format around the
picture; equal pages of a job are not looked for here, that is the pipeline's reuse layer.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vlmcli.engine.models.registry import find_family
from vlmcli.engine.preprocess import resize
from vlmcli.engine.request import (
    ImageInput,
    PlaceholderRange,
    Request,
    SamplingParams,
)
from vlmcli.errors import PageError
from vlmcli.readers.guard import Answer, Guard
from vlmcli.readers.shortage import device_bytes, memory_errors_translated
from vlmcli.reading import PageJob, PageReading

Pixels = npt.NDArray[np.uint8]

DEFAULT_MAX_TOKENS = 4096
INSTRUCTION = "Read the text of this page. Write it down exactly, in reading order."
_BEFORE = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
)
_AFTER = "<|vision_end|>{instruction}<|im_end|>\n<|im_start|>assistant\n"


class PageReader:
    """A `reading.Reader` for models that read a page at a time.

    Args:
        guard: the engine behind the loop guard.
        max_tokens: output tokens of a page at the most; None for `DEFAULT_MAX_TOKENS`, or what the
            model's positions leave.
    """

    def __init__(self, guard: Guard, *, max_tokens: int | None) -> None:
        self._guard = guard
        self._config = guard.engine.model_config
        self._family = find_family(self._config.model_type)
        self._max_tokens = max_tokens or DEFAULT_MAX_TOKENS
        self._keys: dict[int, int] = {}
        self._finished: list[PageReading] = []

    def submit(self, job: PageJob) -> None:
        """Queue a page. One that the model cannot take comes back as an error from `step`.

        Raises:
            OutOfMemoryError: there is no room for it; the page has not been taken.
        """
        assert job.picture is not None, "a page reader needs the page's picture"
        try:
            with memory_errors_translated():
                ticket = self._guard.start(self._builder(job.picture))
        except PageError as error:
            self._finished.append(
                PageReading(key=job.key, status="error", code=error.code, message=str(error))
            )
            return
        self._keys[ticket] = job.key

    def step(self) -> Sequence[PageReading]:
        """One engine step; the pages that it finished.

        Raises:
            OutOfMemoryError: the step has not been done.
        """
        if self._guard.has_work():
            with memory_errors_translated():
                answers = self._guard.step()
            self._finished += [
                _reading(self._keys.pop(ticket), answer) for ticket, answer in answers
            ]
        finished, self._finished = self._finished, []
        return finished

    def abort(self, key: int) -> None:
        """Forget a page."""
        self._finished = [reading for reading in self._finished if reading.key != key]
        for ticket, owner in list(self._keys.items()):
            if owner == key:
                self._guard.abort(ticket)
                del self._keys[ticket]

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""
        return bool(self._keys or self._finished)

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
        for key in list(self._keys.values()):
            self.abort(key)

    def _builder(self, picture: Pixels) -> "_PageRequest":
        processor = self._config.processor
        height, width = picture.shape[:2]
        geometry = self._family.geometry(width, height, processor)
        pixels = resize(picture, geometry.width, geometry.height, processor.resample)
        merge = self._config.vision.merge_size
        frames, rows, columns = geometry.grid_thw
        encode = self._guard.engine.encode
        before, after = encode(_BEFORE), encode(_AFTER.format(instruction=INSTRUCTION))
        prompt = [*before, *[self._config.image_token_id] * geometry.num_tokens, *after]
        room = self._config.text.max_position_embeddings - len(prompt)
        return _PageRequest(
            prompt=prompt,
            image=ImageInput(pixels=pixels, mm_hash=picture_digest(pixels)),
            placeholder=PlaceholderRange(
                offset=len(before),
                length=geometry.num_tokens,
                grid=(frames, rows // merge, columns // merge),
            ),
            max_tokens=max(1, min(self._max_tokens, room)),
        )


class _PageRequest:
    """Builds the request of each attempt at one page."""

    def __init__(
        self,
        *,
        prompt: list[int],
        image: ImageInput,
        placeholder: PlaceholderRange,
        max_tokens: int,
    ) -> None:
        self._prompt, self._image, self._placeholder = prompt, image, placeholder
        self._max_tokens = max_tokens

    def __call__(self, request_id: str, temperature: float, seed: int) -> Request:
        return Request(
            request_id=request_id,
            prompt_token_ids=self._prompt,
            images=(self._image,),
            placeholders=(self._placeholder,),
            sampling=SamplingParams(
                max_tokens=self._max_tokens, temperature=temperature, seed=seed
            ),
        )


def _reading(key: int, answer: Answer) -> PageReading:
    return PageReading(
        key=key,
        status="looped" if answer.is_looped else "ok",
        text=answer.text,
        message="the model repeated itself; the text is cut there" if answer.is_looped else "",
        suspect=("truncated",) if answer.is_truncated else (),
        attempts=answer.attempts,
        tokens=answer.tokens,
        seconds=answer.seconds,
    )


def picture_digest(pixels: Pixels) -> bytes:
    """SHA-256 over mode, size and pixels of an RGB or grey picture: 32 bytes."""
    mode = "L" if pixels.ndim == 2 else "RGB"
    digest = hashlib.sha256(f"{mode} {pixels.shape[1]} {pixels.shape[0]}\0".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()
