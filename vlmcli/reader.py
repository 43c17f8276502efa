"""Reads pages with our own engine. The only file outside `engine/` that imports it.

A line reader turns every crop of a page into one request; a page is finished when its last crop is.
Equal crops (running heads, table headings, form labels) are read once per job. Looping requests are
stopped, tried again with some temperature, and cut at last.
"""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vlmcli.checkpoint import Checkpoint
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.request import (
    ImageInput,
    PlaceholderRange,
    Request,
    RequestOutput,
    SamplingParams,
)
from vlmcli.loops import CHECK_EVERY, Loop, find_loop
from vlmcli.options import OcrOptions
from vlmcli.reading import CropText, PageJob, PageReading
from vlmcli.results import Seconds, TokenCounts

_KNOWN_CROPS = 16_384
"""Crops whose text is remembered: some hundred bytes each, a few MiB in all."""
_TEMPERATURE_STEP = 0.3
_BYTES_PER_COLUMN = 8
"""Output tokens that one visual column can hold at the most: narrow letters, accents as two bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CropResult:
    text: str
    confidence: float | None
    is_looped: bool
    is_truncated: bool
    attempts: int
    tokens: TokenCounts
    """What reading the crop takes. Every page that has the crop counts them, whoever came first, so
    that a resumed job's records equal an uninterrupted one's."""


@dataclass(slots=True)
class _CropRequest:
    """A crop in the engine, and everybody who waits for it."""

    digest: bytes
    image: ImageInput
    columns: int
    waiting: list[tuple[int, int]]
    attempt: int = 1
    checked: int = 0
    tokens: TokenCounts = field(default_factory=TokenCounts)


@dataclass(slots=True)
class _Page:
    """A page in work: results by crop, and what they have cost."""

    results: list[_CropResult | None]
    num_missing: int
    tokens: TokenCounts = field(default_factory=TokenCounts)
    seconds: Seconds = field(default_factory=Seconds)


class LineReader:
    """A `reading.Reader` for models that read one text line at a time.

    Args:
        engine: loaded with the checkpoint.
        max_tokens: cap on the output tokens of a line; None derives it from the line's width.
        retries: further attempts at a line that loops.
        share_equal_crops: read equal crops once.
    """

    def __init__(
        self, engine: Engine, *, max_tokens: int | None, retries: int, share_equal_crops: bool
    ) -> None:
        self._engine = engine
        config = engine.model_config
        self._column = config.vision.patch_size * config.vision.merge_size
        self._prefix = [config.vision_start_token_id]
        self._image_token = config.image_token_id
        self._suffix = [config.vision_end_token_id]
        self._max_tokens = max_tokens
        self._retries = retries
        self._share = share_equal_crops
        self._pages: dict[int, _Page] = {}
        self._requests: dict[str, _CropRequest] = {}
        self._by_digest: dict[bytes, str] = {}
        self._known: OrderedDict[bytes, _CropResult] = OrderedDict()
        self._finished: list[PageReading] = []
        self._num_requests = 0
        self._num_shared = 0

    def submit(self, job: PageJob) -> None:
        """Queue the crops of a page."""
        page = _Page(results=[None] * len(job.crops), num_missing=len(job.crops))
        self._pages[job.key] = page
        for index, crop in enumerate(job.crops):
            self._submit_crop(crop.pixels, job.key, index)
        if not job.crops:
            self._close_page(job.key)

    def step(self) -> Sequence[PageReading]:
        """One engine step; the pages that it finished."""
        if self._requests:
            for output in self._engine.step():
                self._take(output)
        finished, self._finished = self._finished, []
        return finished

    def abort(self, key: int) -> None:
        """Forget a page; crops that another page waits for go on."""
        del self._pages[key]
        for request_id, request in list(self._requests.items()):
            request.waiting = [place for place in request.waiting if place[0] != key]
            if not request.waiting:
                self._engine.abort_request(request_id)
                self._drop(request_id)

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""
        return bool(self._pages or self._finished)

    def stats(self) -> dict[str, float]:
        """The engine's counters, and how many crops were read and shared."""
        own = {"crops_read": self._num_requests, "crops_shared": self._num_shared}
        return {**self._engine.stats(), **own}

    def close(self) -> None:
        """Let go of the engine."""
        self._pages.clear()
        self._requests.clear()

    def _submit_crop(self, pixels: npt.NDArray[np.uint8], key: int, index: int) -> None:
        pixels = pad_to_columns(pixels, self._column)
        digest = crop_digest(pixels)
        if self._share:
            known = self._known.get(digest)
            if known is not None:
                self._known.move_to_end(digest)
                self._num_shared += 1
                self._deliver(known, key, index)
                return
            running = self._by_digest.get(digest)
            if running is not None:
                self._num_shared += 1
                self._requests[running].waiting.append((key, index))
                return
        request = _CropRequest(
            digest=digest,
            image=ImageInput(pixels=pixels, mm_hash=digest),
            columns=pixels.shape[1] // self._column,
            waiting=[(key, index)],
        )
        self._start(request)

    def _start(self, request: _CropRequest) -> None:
        """Hand the request to the engine; the first attempt is greedy."""
        self._num_requests += request.attempt == 1
        request_id = f"{self._num_requests}.{request.attempt}"
        request.checked = 0
        self._requests[request_id] = request
        if self._share:
            self._by_digest[request.digest] = request_id
        limit = _BYTES_PER_COLUMN * request.columns + 16
        start = len(self._prefix)
        self._engine.add_request(
            Request(
                request_id=request_id,
                prompt_token_ids=[
                    *self._prefix,
                    *[self._image_token] * request.columns,
                    *self._suffix,
                ],
                images=(request.image,),
                placeholders=(
                    PlaceholderRange(
                        offset=start, length=request.columns, grid=(1, 1, request.columns)
                    ),
                ),
                sampling=SamplingParams(
                    max_tokens=min(limit, self._max_tokens or limit),
                    temperature=_TEMPERATURE_STEP * (request.attempt - 1),
                    seed=request.attempt,
                ),
            )
        )

    def _take(self, output: RequestOutput) -> None:
        request = self._requests[output.request_id]
        is_due = len(output.token_ids) - request.checked >= CHECK_EVERY
        loop = None
        if output.finished or is_due:
            request.checked = len(output.token_ids)
            loop = find_loop(output.token_ids, self._engine.decode)
        is_looped = loop is not None and output.finish_reason != "stop"
        if output.finished or is_looped:
            self._charge(request, output)
        if loop is not None and is_looped:
            self._handle_loop(request, output, loop)
        elif output.finished:
            self._drop(output.request_id)
            self._settle(
                request,
                _CropResult(
                    text=output.text.strip(),
                    confidence=mean_probability(output.logprobs),
                    is_looped=False,
                    is_truncated=output.finish_reason == "length",
                    attempts=request.attempt,
                    tokens=request.tokens,
                ),
            )

    def _handle_loop(self, request: _CropRequest, output: RequestOutput, loop: Loop) -> None:
        if not output.finished:
            self._engine.abort_request(output.request_id)
        self._drop(output.request_id)
        if request.attempt <= self._retries:
            request.attempt += 1
            self._start(request)
            return
        kept = output.token_ids[: loop.keep]
        self._settle(
            request,
            _CropResult(
                text=self._engine.decode(kept).strip(),
                confidence=mean_probability(output.logprobs[: loop.keep]),
                is_looped=True,
                is_truncated=False,
                attempts=request.attempt,
                tokens=request.tokens,
            ),
        )

    def _drop(self, request_id: str) -> None:
        request = self._requests.pop(request_id)
        self._by_digest.pop(request.digest, None)

    def _settle(self, request: _CropRequest, result: _CropResult) -> None:
        if self._share:
            self._known[request.digest] = result
            if len(self._known) > _KNOWN_CROPS:
                self._known.popitem(last=False)
        for key, index in request.waiting:
            self._deliver(result, key, index)

    def _deliver(self, result: _CropResult, key: int, index: int) -> None:
        page = self._pages[key]
        assert page.results[index] is None, f"crop {index} of page {key} was read twice"
        page.results[index] = result
        page.tokens = _sum(page.tokens, result.tokens)
        page.num_missing -= 1
        if page.num_missing == 0:
            self._close_page(key)

    def _close_page(self, key: int) -> None:
        page = self._pages.pop(key)
        results = [result for result in page.results if result is not None]
        is_looped = any(result.is_looped for result in results)
        is_truncated = any(result.is_truncated for result in results)
        self._finished.append(
            PageReading(
                key=key,
                status="looped" if is_looped else "ok",
                crops=tuple(CropText(text=r.text, confidence=r.confidence) for r in results),
                message="the model repeated itself; the text is cut there" if is_looped else "",
                suspect=("truncated",) if is_truncated else (),
                attempts=max((result.attempts for result in results), default=1),
                tokens=page.tokens,
                seconds=page.seconds,
            )
        )

    def _charge(self, request: _CropRequest, output: RequestOutput) -> None:
        """Book an attempt's tokens on the crop, and its seconds on the page that asked first."""
        request.tokens = _sum(
            request.tokens,
            TokenCounts(
                visual=output.num_visual_tokens,
                prompt=output.num_prompt_tokens - output.num_visual_tokens,
                output=len(output.token_ids),
                drafted=output.num_drafted,
                accepted=output.num_accepted,
            ),
        )
        page = self._pages[request.waiting[0][0]]
        page.seconds = Seconds(
            encode=page.seconds.encode + output.seconds.encode,
            prefill=page.seconds.prefill + output.seconds.prefill,
            decode=page.seconds.decode + output.seconds.decode,
        )


def _sum(a: TokenCounts, b: TokenCounts) -> TokenCounts:
    return TokenCounts(
        visual=a.visual + b.visual,
        prompt=a.prompt + b.prompt,
        output=a.output + b.output,
        drafted=a.drafted + b.drafted,
        accepted=a.accepted + b.accepted,
    )


def load_reader(checkpoint: Checkpoint, options: OcrOptions) -> LineReader:
    """The reader for a checkpoint, its weights loaded.

    Raises:
        ModelError: the checkpoint is incomplete, unsupported, or does not match its config.
    """
    config = EngineConfig(
        device=options.device,
        enable_drafts=options.drafts != "off",
        num_threads=options.threads,
    )
    return LineReader(
        Engine.from_checkpoint(checkpoint.path, config),
        max_tokens=options.max_tokens,
        retries=options.retries,
        share_equal_crops=options.reuse != "off",
    )


def pad_to_columns(pixels: npt.NDArray[np.uint8], column: int) -> npt.NDArray[np.uint8]:
    """The crop widened on the right with its background to whole columns.

    Args:
        pixels: uint8 (H, W) grey.
        column: width of one visual token in pixels.

    Returns:
        uint8 (H, W') with W' the next multiple of `column`.
    """
    missing = -pixels.shape[1] % column
    if not missing:
        return np.ascontiguousarray(pixels)
    ground = round(float(pixels[:, -1].mean()))
    return np.pad(pixels, ((0, 0), (0, missing)), constant_values=ground)


def crop_digest(pixels: npt.NDArray[np.uint8]) -> bytes:
    """SHA-256 over mode, size and pixels: 32 bytes, equal only for equal pictures."""
    height, width = pixels.shape
    digest = hashlib.sha256(f"L {width} {height}\0".encode())
    digest.update(np.ascontiguousarray(pixels))
    return digest.digest()


def mean_probability(logprobs: Sequence[float]) -> float | None:
    """Geometric mean of the tokens' probabilities, 0 to 1, to three digits; None without tokens."""
    if not logprobs:
        return None
    return round(math.exp(sum(logprobs) / len(logprobs)), 3)
