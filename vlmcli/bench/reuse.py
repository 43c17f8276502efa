"""`vlmcli bench reuse`: several questions per page, with one kind of reuse more in every row.

The same questions about the same pages in all rows, asked one after another as by somebody who
reads the answers: no cache, then embeddings kept, then the KV of the page's part of the prompt,
then drafts. A random checkpoint in float32, so texts mean nothing, but they must be the same in
every row. The drafts are the answers with every tenth token wrong: about what the text of a similar
page has to offer. Times are processor seconds, which other jobs on the machine hardly change and
which with one thread are those of the clock on an idle one. Peak memory: Linux only.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vlmcli.bench.checkpoints import REUSE, SMALL, Shape, write_lively
from vlmcli.bench.requests import page_questions, with_drafts
from vlmcli.bench.rss import peak_during
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.request import Request, RequestOutput
from vlmcli.engine.tokenizer import load_tokenizer
from vlmcli.memory.allocator import give_back, keep_heap_small

SIZES = {"small": SMALL, "mid": REUSE}
QUESTIONS = (
    "Who sent this letter?",
    "What is the total amount, with its currency?",
    "On which day was it written?",
    "List every name on the page.",
    "Which pages does it refer to?",
    "What is to be done, and until when?",
)
_WRONG_EVERY = 10
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A way of running: what the engine may reuse, and whether requests bring drafts."""

    name: str
    embeddings: bool = False
    prefix: bool = False
    drafts: bool = False

    def config(self, threads: int) -> EngineConfig:
        """The engine's, the same in all rows but for what is reused."""
        return EngineConfig(
            kv_cache_bytes=192 * _MIB,
            vision_cache_bytes=64 * _MIB,
            encoder_cache_bytes=32 * _MIB,
            enable_encoder_cache=self.embeddings,
            enable_prefix_caching=self.prefix,
            enable_drafts=self.drafts,
            num_threads=threads,
        )


ROWS = (
    Row(name="no cache"),
    Row(name="+ embedding cache", embeddings=True),
    Row(name="+ prefix KV", embeddings=True, prefix=True),
    Row(name="+ drafts", embeddings=True, prefix=True, drafts=True),
)


@dataclass(slots=True)
class Measured:
    """What a row took. Seconds of the processor but for `clock`."""

    row: Row
    first_tokens: list[float] = field(default_factory=list)
    """Seconds from each question to its answer's first token."""
    cpu: float = 0.0
    clock: float = 0.0
    image: float = 0.0
    """Share of the time before first tokens that went into the picture."""
    peak_bytes: int = 0
    outputs: list[RequestOutput] = field(default_factory=list)
    images_encoded: int = 0

    @property
    def ttft(self) -> float:
        """Mean seconds to the first token."""
        return sum(self.first_tokens) / len(self.first_tokens)

    def to_dict(self, num_pages: int) -> dict[str, Any]:
        """The row of the result."""
        outputs = self.outputs
        return {
            "name": self.row.name,
            "ttft_s": round(self.ttft, 3),
            "image_share": round(self.image, 3),
            "pages_per_s": round(num_pages / self.cpu, 4),
            "cpu_s": round(self.cpu, 2),
            "clock_s": round(self.clock, 2),
            "peak_rss_bytes": self.peak_bytes,
            "images_encoded": self.images_encoded,
            "prompt_tokens": sum(output.num_prompt_tokens for output in outputs),
            "cached_tokens": sum(output.num_cached_tokens for output in outputs),
            "drafted": sum(sum(output.drafted.values()) for output in outputs),
            "accepted": sum(sum(output.accepted.values()) for output in outputs),
        }


def run(
    shape: Shape,
    *,
    num_pages: int,
    num_questions: int,
    max_tokens: int,
    threads: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Returns:
        `rows`, `ttft_ratio` and `throughput_ratio` (first row against last, above 1 where the last
        is better), `same_text`.
    """
    keep_heap_small()
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as folder:
        path = write_lively(Path(folder), shape)
        runner = ModelRunner.from_checkpoint(path, ROWS[0].config(threads))
        tokenizer = load_tokenizer(path)
    num_parameters = sum(one.numel() for one in runner.model.parameters())  # type: ignore[attr-defined]
    say(
        f"{num_pages} pages × {num_questions} questions, up to {max_tokens} tokens each; "
        f"{num_parameters / 1e6:.0f} M parameters, {threads} thread(s), float32"
    )
    say(f"  {'':<20} {'TTFT s':>8} {'image':>6} {'pages/s':>8} {'CPU s':>8} {'peak':>10}")
    rows: list[Measured] = []
    for row in ROWS:
        engine = Engine(runner, tokenizer, row.config(threads))
        work = page_questions(engine, num_pages, QUESTIONS[:num_questions], max_tokens)
        if row.drafts:
            answers = [output.token_ids for output in rows[0].outputs]
            work = with_drafts(work, answers, _WRONG_EVERY)
        if not rows:
            _warm_up(engine, work[0])
        measured = _measure(row, engine, work)
        rows.append(measured)
        say(
            f"  {row.name:<20} {measured.ttft:8.2f} {measured.image:6.0%} "
            f"{num_pages / measured.cpu:8.3f} {measured.cpu:8.1f} "
            f"{measured.peak_bytes / _MIB:6.0f} MiB"
        )
    first, last = rows[0], rows[-1]
    texts = [[output.token_ids for output in measured.outputs] for measured in rows]
    return {
        "pages": num_pages,
        "questions": num_questions,
        "parameters": num_parameters,
        "visual_tokens": first.outputs[0].num_visual_tokens,
        "rows": [measured.to_dict(num_pages) for measured in rows],
        "ttft_ratio": round(first.ttft / last.ttft, 2),
        "throughput_ratio": round(first.cpu / last.cpu, 2),
        "same_text": all(one == texts[0] for one in texts),
    }


def _warm_up(engine: Engine, request: Request) -> None:
    """Every kind of step once, on a request that comes again later."""
    engine.generate([replace(request, request_id="warm-up")])
    engine.drop_caches()


def _measure(row: Row, engine: Engine, requests: Sequence[Request]) -> Measured:
    measured = Measured(row)
    before = engine.stats()["images_encoded"]

    def work() -> None:
        for request in requests:
            measured.outputs.append(_answer(engine, request, measured.first_tokens))

    give_back()
    cpu, clock = time.process_time(), time.perf_counter()
    measured.peak_bytes = peak_during(work)
    measured.cpu = time.process_time() - cpu
    measured.clock = time.perf_counter() - clock
    measured.image = _image_share(requests, measured.outputs)
    measured.images_encoded = int(engine.stats()["images_encoded"] - before)
    return measured


def _answer(engine: Engine, request: Request, first_tokens: list[float]) -> RequestOutput:
    """Run a request alone to its end."""
    started = time.process_time()
    engine.add_request(request)
    is_first = True
    while True:
        outputs = engine.step()
        if outputs and is_first:
            first_tokens.append(time.process_time() - started)
            is_first = False
        if outputs and outputs[0].finished:
            return outputs[0]


def _image_share(requests: Sequence[Request], outputs: Sequence[RequestOutput]) -> float:
    """Time for the picture over all time before decoding: its encoding and its share of prefill."""
    image = total = 0.0
    for request, output in zip(requests, outputs, strict=True):
        (place,) = request.placeholders
        computed = place.end - max(place.offset, min(place.end, output.num_cached_tokens))
        share = computed / (output.num_prompt_tokens - output.num_cached_tokens)
        image += output.seconds.encode + share * output.seconds.prefill
        total += output.seconds.encode + output.seconds.prefill
    return image / total
