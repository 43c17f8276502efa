"""The fallback reader: whatever transformers can load as image-text-to-text, one page at a time.

Slower than our engine and without its caches, batches and drafts, for families that have no file
there. Runs transformers' own code and never a checkpoint's, loads safetensors and never pickles,
and downloads nothing. Greedy first; what loops is tried again warmer, and cut at last, as in
`guard`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from vlmcli.answering import Answer, page_reading
from vlmcli.engine.models.prompts import Task
from vlmcli.engine.tokenizer import is_markup
from vlmcli.errors import ModelError, PageError, first_line
from vlmcli.loops import Loop, LoopSearch, temperature_of
from vlmcli.readers.one_by_one import IsStopped
from vlmcli.readers.shortage import device_bytes, is_shortage, release_device
from vlmcli.reading import DEFAULT_MAX_TOKENS, OutOfMemoryError, PageJob, PageReading
from vlmcli.results import Seconds, TokenCounts

_FAULTS = (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError)
"""What processors and models of all families raise where they do not like a picture or a prompt."""


class TransformersModel:
    """A `one_by_one.PageModel` around transformers.

    Args:
        path: directory of the checkpoint.
        device: `cpu`, `cuda` or `cuda:N`.
        dtype: of the weights; `auto` for the checkpoint's own.
        num_threads: of torch.
        prompts: what every page is asked, in order.
        questions: the user's, if `prompts` are questions; none to have a page's text.
        task: what the text is tidied for.
        max_tokens: output tokens of an answer at the most; None for `DEFAULT_MAX_TOKENS`.
        retries: attempts after the first where an answer loops.

    Raises:
        ModelError: transformers cannot load it, or a library is missing that it needs.
    """

    def __init__(
        self,
        path: Path,
        *,
        device: str,
        dtype: str,
        num_threads: int,
        prompts: Sequence[str],
        questions: Sequence[str] = (),
        task: Task = "text",
        max_tokens: int | None,
        retries: int,
    ) -> None:
        torch.set_num_threads(num_threads)
        self._device = device
        self._prompts, self._questions = tuple(prompts), tuple(questions)
        self._task = task
        self._max_tokens, self._retries = max_tokens or DEFAULT_MAX_TOKENS, retries
        with _load_errors_named(path):
            self._processor, self._model = _load(path, device, dtype)
        self._tokenizer = getattr(self._processor, "tokenizer", self._processor)
        self._hidden = _hidden_tokens(self._tokenizer)
        self._image_token = _image_token_id(self._model.config)
        self._num_tokens = 0
        with _load_errors_named(path):
            self._inputs(np.full((64, 64, 3), 255, np.uint8), self._prompts[0])

    def read(self, job: PageJob, is_stopped: IsStopped) -> PageReading:
        """The page's answers to all prompts, one after another.

        Raises:
            PageError: the processor or the model refuses the picture.
            OutOfMemoryError: an allocation failed.
        """
        assert job.picture is not None, "a page reader needs the page's picture"
        answers = []
        for prompt in self._prompts:
            with _page_faults_named():
                answers.append(self._answer(job.picture, prompt, is_stopped))
        return page_reading(job.key, self._questions, answers, task=self._task)

    def drop_caches(self) -> None:
        """Give back what torch keeps of a GPU without using it."""
        release_device(self._device)

    def device_bytes(self) -> int:
        """What torch holds of a GPU; 0 on a CPU."""
        return device_bytes(self._device)

    def stats(self) -> dict[str, float]:
        """Tokens written."""
        return {"output_tokens": self._num_tokens}

    def _answer(
        self, picture: "np.typing.NDArray[np.uint8]", prompt: str, is_stopped: IsStopped
    ) -> Answer:
        started = time.perf_counter()
        inputs = self._inputs(picture, prompt)
        ids = inputs["input_ids"][0].tolist()
        prepared = time.perf_counter()
        room = min(self._max_tokens, max(1, _max_positions(self._model.config) - len(ids)))
        num_output = attempt = 0
        while True:
            attempt += 1
            watch = _Watch(self._decode, is_stopped)
            tokens = self._generate(inputs, ids, room, attempt, watch)
            watch.check(tokens, is_cut=len(tokens) >= room)
            num_output += len(tokens)
            if watch.loop is None or attempt > self._retries or is_stopped():
                break
        self._num_tokens += num_output
        kept = tokens if watch.loop is None else tokens[: watch.loop.keep]
        visual = ids.count(self._image_token)
        return Answer(
            text=self._decode(kept).strip(),
            confidence=None,
            is_looped=watch.loop is not None,
            is_truncated=watch.loop is None and len(tokens) >= room,
            attempts=attempt,
            tokens=TokenCounts(visual=visual, prompt=len(ids) - visual, output=num_output),
            seconds=Seconds(encode=prepared - started, decode=time.perf_counter() - prepared),
        )

    def _inputs(self, picture: "np.typing.NDArray[np.uint8]", prompt: str) -> Any:
        """What the processor makes of a picture and a prompt, on the model's device."""
        image = Image.fromarray(picture).convert("RGB")
        inputs = self._processor(
            text=[_chat(self._processor, prompt)], images=[image], return_tensors="pt"
        )
        moved = inputs.to(self._device)
        for name, value in moved.items():
            if torch.is_tensor(value) and value.is_floating_point():
                moved[name] = value.to(self._model.dtype)
        return moved

    def _generate(
        self, inputs: Any, ids: list[int], room: int, attempt: int, watch: "_Watch"
    ) -> list[int]:
        """New tokens, the end mark left out: greedy at first, then ever warmer."""
        warmth: dict[str, Any] = {"do_sample": False}
        if attempt > 1:
            torch.manual_seed(attempt)
            warmth = {"do_sample": True, "temperature": temperature_of(attempt)}
        watch.num_prompt = 0 if self._model.config.is_encoder_decoder else len(ids)
        with torch.inference_mode():
            output = self._model.generate(
                **inputs, **warmth, num_beams=1, max_new_tokens=room, stopping_criteria=[watch]
            )
        tokens: list[int] = output[0].tolist()
        # Models that take embeddings give back their own tokens alone.
        if tokens[: len(ids)] == ids:
            tokens = tokens[len(ids) :]
        ends = _end_tokens(self._model)
        first = 1 if self._model.config.is_encoder_decoder else 0
        stop = next((i for i in range(first, len(tokens)) if tokens[i] in ends), len(tokens))
        return tokens[:stop]

    def _decode(self, tokens: Sequence[int]) -> str:
        shown = [token for token in tokens if token not in self._hidden]
        return str(self._tokenizer.decode(shown, skip_special_tokens=False))


class _Watch:
    """A stopping criterion of one attempt: nobody waits, or the answer repeats itself."""

    def __init__(self, decode: Callable[[Sequence[int]], str], is_stopped: IsStopped) -> None:
        self._search, self._is_stopped = LoopSearch(decode), is_stopped
        self.num_prompt = 0
        self.loop: Loop | None = None

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Whether to stop, bool [1]; `input_ids` int64 [1, T] is everything so far."""
        if self._search.is_due(input_ids.shape[1] - self.num_prompt):
            self.check(input_ids[0, self.num_prompt :].tolist(), is_cut=False)
        is_over = self.loop is not None or self._is_stopped()
        return torch.full((1,), is_over, dtype=torch.bool, device=input_ids.device)

    def check(self, tokens: Sequence[int], *, is_cut: bool) -> None:
        """Look for a loop, if none was found before."""
        if self.loop is None:
            self.loop = self._search.look(tokens, is_cut=is_cut)


def _load(path: Path, device: str, dtype: str) -> tuple[Any, Any]:
    from transformers import AutoModelForImageTextToText, AutoProcessor
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    safe = {"local_files_only": True, "trust_remote_code": False}
    processor = AutoProcessor.from_pretrained(path, **safe)
    model = AutoModelForImageTextToText.from_pretrained(
        path,
        dtype=dtype if dtype == "auto" else getattr(torch, dtype),
        use_safetensors=True,
        **safe,
    )
    return processor, model.eval().to(device)


@contextmanager
def _load_errors_named(path: Path) -> Iterator[None]:
    """What transformers says of a checkpoint that it cannot load, as our error, in one line."""
    try:
        yield
    except ImportError as error:
        raise ModelError(
            f"{path.name} needs a library that is missing: {first_line(error)}",
            remedy="install it beside vlmcli",
        ) from error
    except (OSError, *_FAULTS) as error:
        if is_shortage(error):
            raise OutOfMemoryError(str(error)) from error
        raise ModelError(f"transformers cannot read with {path.name}: {first_line(error)}") from (
            error
        )


@contextmanager
def _page_faults_named() -> Iterator[None]:
    """A picture that a processor or a model refuses costs its page; failed allocations do not."""
    try:
        yield
    except _FAULTS as error:
        if is_shortage(error):
            raise OutOfMemoryError(str(error)) from error
        raise PageError(f"transformers failed: {first_line(error)}", code="read") from error


def _chat(processor: Any, prompt: str) -> str:
    """One question about one picture in the checkpoint's own chat format, or in none it has."""
    tokenizer = getattr(processor, "tokenizer", processor)
    if getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None):
        parts = [{"type": "image"}, *([{"type": "text", "text": prompt}] if prompt else [])]
        messages = [{"role": "user", "content": parts}]
        speaker = processor if getattr(processor, "chat_template", None) else tokenizer
        return str(
            speaker.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        )
    mark = getattr(processor, "image_token", None) or getattr(tokenizer, "image_token", None)
    return f"{mark}\n{prompt}" if mark else prompt


def _hidden_tokens(tokenizer: Any) -> frozenset[int]:
    """Special tokens, which are not shown, but for those that are the page's markup."""
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    added = tokenizer.added_tokens_decoder.items()
    special = {i: token.content for i, token in added if token.special} | dict(named)
    return frozenset(i for i, text in special.items() if not is_markup(text))


def _image_token_id(config: Any) -> int | None:
    for name in ("image_token_id", "image_token_index"):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    return None


def _max_positions(config: Any) -> int:
    """Positions of the language model; without a word on that, as many as are wanted."""
    text = config.get_text_config(decoder=True)
    value = getattr(text, "max_position_embeddings", None)
    return value if isinstance(value, int) and value > 0 else 1 << 30


def _end_tokens(model: Any) -> frozenset[int]:
    value = model.generation_config.eos_token_id
    return frozenset(value if isinstance(value, list) else () if value is None else (value,))
