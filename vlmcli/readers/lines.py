"""Reads pages line by line: every crop of a page is a request, a page ends with its last crop.

Equal crops (running heads, table headings, labels of forms) are read once per job: same pixels,
same question, same answer. What a crop costs in tokens is booked on every page that has it, so that
a resumed job's records equal an uninterrupted one's; its seconds are booked once.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from vlmcli.answering import Answer
from vlmcli.engine.config import ModelConfig
from vlmcli.engine.request import (
    DraftSource,
    ImageInput,
    PlaceholderRange,
    Request,
    SamplingParams,
)
from vlmcli.errors import PageError
from vlmcli.readers.crops import Pixels, column_width, crop_digest, pad_crop
from vlmcli.readers.drafts import crop_drafts
from vlmcli.readers.guard import Build, Guard
from vlmcli.readers.looks import Looks, Seen
from vlmcli.readers.shortage import device_bytes, memory_errors_translated
from vlmcli.readers.spelling import Words
from vlmcli.reading import CropText, OutOfMemoryError, PageJob, PageReading
from vlmcli.results import Seconds, TokenCounts, add_seconds, add_tokens

_KNOWN_CROPS = 16_384
"""Crops whose answer is remembered: some hundred bytes each, a few MiB in all."""
_BYTES_PER_COLUMN = 8
"""Output bytes that one visual column can hold: narrow letters, or accents as two bytes each."""


@dataclass(slots=True)
class _Page:
    """A page in work: answers by crop, and the seconds they took."""

    answers: list[Answer | None]
    num_missing: int
    seconds: Seconds = field(default_factory=Seconds)


@dataclass(slots=True)
class _Crop:
    """A crop in the engine, and everybody who waits for it: (page, index of the crop)."""

    digest: bytes
    waiting: list[tuple[int, int]]
    pixels: Pixels

    def forget(self, key: int) -> bool:
        """Wait no more for a page; whether nobody waits any more."""
        self.waiting = [place for place in self.waiting if place[0] != key]
        return not self.waiting


class LineReader:
    """A `reading.Reader` for models that read one text line at a time.

    Args:
        guard: the engine behind the loop guard.
        max_tokens: cap on the output tokens of a line; None derives it from the line's width.
        share_equal_crops: read equal crops once.
        reread_below: confidence below which a crop is looked at again, drawn otherwise; 0 for
            never.
        words: that lines in doubt may be mended by; see `spelling`.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        max_tokens: int | None,
        share_equal_crops: bool,
        reread_below: float = 0.0,
        words: Words | None = None,
    ) -> None:
        self._guard = guard
        self._config = guard.engine.model_config
        self._max_tokens = max_tokens
        self._share = share_equal_crops
        self._looks = Looks(guard.engine, reread_below, words)
        self._pages: dict[int, _Page] = {}
        self._crops: dict[int, _Crop] = {}
        self._doubtful: list[tuple[_Crop, Seen]] = []
        self._open: dict[bytes, _Crop] = {}
        self._known: OrderedDict[bytes, Answer] = OrderedDict()
        self._finished: list[PageReading] = []
        self._num_read = 0
        self._num_shared = 0
        self._num_looks = 0

    def submit(self, job: PageJob) -> None:
        """Queue the crops of a page. One that can never fit makes the page an error from `step`.

        Raises:
            OutOfMemoryError: there is no room for them; the page has not been taken.
        """
        self._pages[job.key] = _Page(answers=[None] * len(job.crops), num_missing=len(job.crops))
        try:
            with memory_errors_translated():
                for index in range(len(job.crops)):
                    self._submit_crop(job, index)
        except OutOfMemoryError:
            self.abort(job.key)
            raise
        except PageError as error:
            self.abort(job.key)
            failure = PageReading(
                key=job.key, status="error", code=error.code, message=error.message
            )
            self._finished.append(failure)
        if not job.crops:
            self._close_page(job.key)

    def step(self) -> Sequence[PageReading]:
        """One engine step; the pages that it finished.

        Raises:
            OutOfMemoryError: the step has not been done.
        """
        if self._guard.has_work():
            with memory_errors_translated():
                answers = self._guard.step()
            for ticket, answer in answers:
                self._take(self._crops.pop(ticket), answer)
        if self._doubtful:
            with memory_errors_translated():
                self._look_again()
        finished, self._finished = self._finished, []
        return finished

    def abort(self, key: int) -> None:
        """Forget a page; crops that another page waits for go on."""
        self._pages.pop(key, None)
        self._finished = [reading for reading in self._finished if reading.key != key]
        for ticket, crop in list(self._crops.items()):
            if crop.forget(key):
                self._guard.abort(ticket)
                del self._crops[ticket]
                self._open.pop(crop.digest, None)
        for crop, _ in self._doubtful:
            if crop.forget(key):
                self._open.pop(crop.digest, None)
        self._doubtful = [pair for pair in self._doubtful if pair[0].waiting]

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""
        return bool(self._pages or self._finished)

    def drop_caches(self) -> None:
        """Forget answers and embeddings that only save time."""
        self._known.clear()
        self._guard.drop_caches()

    def device_bytes(self) -> int:
        """What torch holds of a GPU; 0 on a CPU."""
        return device_bytes(self._guard.engine.config.device)

    def stats(self) -> dict[str, float]:
        """The engine's counters, and how many crops were read and shared."""
        own = {
            "crops_read": self._num_read,
            "crops_shared": self._num_shared,
            "crops_reread": self._num_looks,
        }
        return {**self._guard.engine.stats(), **own}

    def close(self) -> None:
        """Forget all pages."""
        for key in list(self._pages):
            self.abort(key)

    def _submit_crop(self, job: PageJob, index: int) -> None:
        crop, place = job.crops[index], (job.key, index)
        pixels = pad_crop(crop.pixels, column_width(self._config))
        digest = crop_digest(pixels)
        known = self._known.get(digest)
        if known is not None:
            self._known.move_to_end(digest)
            self._num_shared += 1
            self._deliver(known, place)
        elif self._share and digest in self._open:
            self._num_shared += 1
            self._open[digest].waiting.append(place)
        else:
            self._num_read += 1
            ticket = self._guard.start(
                line_request(
                    self._config,
                    pixels,
                    digest,
                    max_tokens=self._max_tokens,
                    drafts=crop_drafts(job.drafts, crop.bbox, self._guard.engine.encode),
                    rank=job.key,
                )
            )
            crop_in_work = _Crop(digest=digest, waiting=[place], pixels=pixels)
            self._crops[ticket] = crop_in_work
            if self._share:
                self._open[digest] = crop_in_work

    def _take(self, crop: _Crop, answer: Answer) -> None:
        """Settle a crop with its answer, or keep it for another look."""
        self._settle_or_doubt(crop, self._looks.seen(crop.pixels, crop.digest, answer))

    def _look_again(self) -> None:
        """Another look at crops in doubt, as many as go together."""
        count = self._looks.look([seen for _, seen in self._doubtful])
        self._num_looks += count
        looked, self._doubtful = self._doubtful[:count], self._doubtful[count:]
        for crop, seen in looked:
            self._settle_or_doubt(crop, seen)

    def _settle_or_doubt(self, crop: _Crop, seen: Seen) -> None:
        if self._looks.is_doubtful(seen):
            self._doubtful.append((crop, seen))
        else:
            self._settle(crop, seen.answer)

    def _settle(self, crop: _Crop, answer: Answer) -> None:
        self._open.pop(crop.digest, None)
        if self._share:
            self._known[crop.digest] = answer
            if len(self._known) > _KNOWN_CROPS:
                self._known.popitem(last=False)
        first = self._pages[crop.waiting[0][0]]
        first.seconds = add_seconds(first.seconds, answer.seconds)
        for place in crop.waiting:
            self._deliver(answer, place)

    def _deliver(self, answer: Answer, place: tuple[int, int]) -> None:
        key, index = place
        page = self._pages[key]
        assert page.answers[index] is None, f"crop {index} of page {key} was read twice"
        page.answers[index] = answer
        page.num_missing -= 1
        if page.num_missing == 0:
            self._close_page(key)

    def _close_page(self, key: int) -> None:
        page = self._pages.pop(key)
        answers = [answer for answer in page.answers if answer is not None]
        is_looped = any(answer.is_looped for answer in answers)
        tokens = TokenCounts()
        for answer in answers:
            tokens = add_tokens(tokens, answer.tokens)
        self._finished.append(
            PageReading(
                key=key,
                status="looped" if is_looped else "ok",
                crops=tuple(CropText(text=a.text, confidence=a.confidence) for a in answers),
                message="the model repeated itself; the text is cut there" if is_looped else "",
                suspect=("truncated",) if any(a.is_truncated for a in answers) else (),
                attempts=max((answer.attempts for answer in answers), default=1),
                tokens=tokens,
                seconds=page.seconds,
            )
        )


def line_request(
    config: ModelConfig,
    pixels: Pixels,
    digest: bytes,
    *,
    max_tokens: int | None = None,
    drafts: tuple[DraftSource, ...] = (),
    rank: int = 0,
) -> Build:
    """How to ask for the text of one line: the picture alone, in the built-in model's format.

    Args:
        config: of the checkpoint.
        pixels: uint8 (H, W) grey, W a multiple of `column_width(config)`.
        digest: SHA-256 of the crop, 32 bytes; see `crop_digest`.
        max_tokens: cap on the output; None derives it from the width.
        drafts: guesses at the text.
        rank: as in `Request`: lines of a page before those of later ones, whatever is read again.
    """
    columns = pixels.shape[1] // column_width(config)
    limit = _BYTES_PER_COLUMN * columns + 16
    image = ImageInput(pixels=pixels, mm_hash=digest)
    prompt = [
        config.vision_start_token_id,
        *[config.image_token_id] * columns,
        config.vision_end_token_id,
    ]

    def build(request_id: str, temperature: float, seed: int) -> Request:
        return Request(
            request_id=request_id,
            prompt_token_ids=prompt,
            images=(image,),
            placeholders=(PlaceholderRange(offset=1, length=columns, grid=(1, 1, columns)),),
            sampling=SamplingParams(
                max_tokens=min(limit, max_tokens or limit), temperature=temperature, seed=seed
            ),
            drafts=drafts,
            rank=rank,
        )

    return build
