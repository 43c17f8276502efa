"""`vlmcli bench engine`: our engine against `transformers` generate on the same work.

For models that read pages see `engine_pages`. A line reader gets the same line crops, the same
checkpoint in fp32, the same prompts, greedy decoding, one process and the same number of threads.
transformers runs twice: in length-sorted batches, so that it pads little, and one line at a time.
All three must give the same text. Ratios are of processor seconds, which other jobs on the machine
hardly change; the time on the clock is told as well.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vlmcli.bench.engine_pages import RANDOM, run_random
from vlmcli.bench.engine_pages import run as run_pages
from vlmcli.bench.pages import page_picture
from vlmcli.bench.peer import TransformersPeer
from vlmcli.checkpoint import Checkpoint, find_checkpoint
from vlmcli.documents.lines import crop_lines, find_lines
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.request import RequestOutput
from vlmcli.readers.crops import column_width, crop_digest, pad_crop
from vlmcli.readers.lines import line_request

BATCH = 16

Pixels = npt.NDArray[np.uint8]


@dataclass(slots=True)
class _Stopwatch:
    """Seconds on the clock and of all processors while it runs as a context."""

    wall: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> "_Stopwatch":
        self.wall -= time.perf_counter()
        self.cpu -= time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu += time.process_time()
        self.wall += time.perf_counter()


def run(
    model: str, *, num_lines: int, quick: bool, threads: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Args:
        model: one of `engine_pages.RANDOM`, or a checkpoint of a native family.
        num_lines: that a line reader reads.
        quick: few lines or short answers: whether it works, no figures.
        threads: of either side.
        say: takes a line of text.

    Returns:
        Of a line reader `ours_lines_per_s`, `ratio_batched` and `ratio_single` (their processor
        seconds over ours), `same_text`; of a page reader what `engine_pages.run` returns.

    Raises:
        ModelError: the engine has no family for the checkpoint.
    """
    if model in RANDOM:
        return run_random(model, quick=quick, threads=threads, say=say)
    checkpoint = find_checkpoint(model)
    if checkpoint.reads != "lines":
        return run_pages(checkpoint.path, model, quick=quick, threads=threads, say=say)
    return _run_lines(checkpoint, min(num_lines, BATCH) if quick else num_lines, threads, say)


def _run_lines(
    checkpoint: Checkpoint, num_lines: int, threads: int, say: Callable[[str], None]
) -> dict[str, Any]:
    crops = list(_crops(num_lines, checkpoint))
    outputs, ours, stats = _run_ours(checkpoint, crops, threads)
    texts = [output.text for output in outputs]
    peer = TransformersPeer(checkpoint.path, threads=threads)
    prompts = peer.prompts(crops)
    peer.read(crops[:1], prompts[:1])
    order = sorted(range(num_lines), key=lambda index: crops[index].shape[1])
    batched_texts, batched = _timed(
        peer, crops, prompts, [order[i : i + BATCH] for i in range(0, num_lines, BATCH)]
    )
    single_texts, single = _timed(peer, crops, prompts, [[i] for i in range(num_lines)])
    say(f"{num_lines} lines, {threads} thread(s), fp32, greedy")
    say(f"  {'':<32} {'CPU s':>8} {'ratio':>8} {'lines/s':>8}")
    for name, taken in (
        ("vlmcli engine", ours),
        (f"transformers, batches of {BATCH}", batched),
        ("transformers, one at a time", single),
    ):
        ratio, speed = taken.cpu / ours.cpu, num_lines / taken.wall
        say(f"  {name:<32} {taken.cpu:8.2f} {ratio:8.2f} {speed:8.2f}")
    return {
        "lines": num_lines,
        "threads": threads,
        "ours_lines_per_s": round(num_lines / ours.wall, 2),
        "batched_lines_per_s": round(num_lines / batched.wall, 2),
        "single_lines_per_s": round(num_lines / single.wall, 2),
        "ours_cpu_s": round(ours.cpu, 2),
        "batched_cpu_s": round(batched.cpu, 2),
        "single_cpu_s": round(single.cpu, 2),
        "ratio_batched": round(batched.cpu / ours.cpu, 2),
        "ratio_single": round(single.cpu / ours.cpu, 2),
        "decoder_passes": stats["steps"] - stats["encoder_batches"],
        "drafted": sum(output.num_drafted for output in outputs),
        "accepted": sum(output.num_accepted for output in outputs),
        "same_text": texts == batched_texts == single_texts,
    }


def _run_ours(
    checkpoint: Checkpoint, crops: Sequence[Pixels], threads: int
) -> tuple[list[RequestOutput], _Stopwatch, dict[str, float]]:
    """Outputs, time taken, and the engine's counters. The first crop warms up and counts again."""
    engine = Engine.from_checkpoint(checkpoint.path, EngineConfig(num_threads=threads))
    config = engine.model_config

    def read(some: Sequence[Pixels], name: str) -> list[RequestOutput]:
        builds = [line_request(config, crop, crop_digest(crop)) for crop in some]
        return engine.generate(
            build(f"{name}{index}", 0.0, 0) for index, build in enumerate(builds)
        )

    warm_up = np.full((checkpoint.line.height, 4 * column_width(config)), 255, np.uint8)
    read([warm_up], "warm-up")
    before = engine.stats()
    with _Stopwatch() as taken:
        outputs = read(crops, "")
    stats = {name: value - before.get(name, 0) for name, value in engine.stats().items()}
    return outputs, taken, stats


def _timed(
    peer: TransformersPeer,
    crops: Sequence[Pixels],
    prompts: Sequence[list[int]],
    batches: Sequence[Sequence[int]],
) -> tuple[list[str], _Stopwatch]:
    """Texts in the order of the crops, and the time taken."""
    texts: dict[int, str] = {}
    with _Stopwatch() as taken:
        for batch in batches:
            some = peer.read([crops[i] for i in batch], [prompts[i] for i in batch])
            texts |= zip(batch, some, strict=True)
    return [texts[index] for index in range(len(crops))], taken


def _crops(count: int, checkpoint: Checkpoint) -> Iterator[Pixels]:
    """Line crops from made-up pages, padded to whole columns, as many as wanted."""
    from vlmcli.engine.loader import read_model_config

    column = column_width(read_model_config(checkpoint.path))
    line = checkpoint.line
    seed = found = 0
    while found < count:
        picture = page_picture(seed, dpi=200)
        seed += 1
        lines = find_lines(picture)
        for crop in crop_lines(picture, lines, height=line.height, max_width=line.max_width):
            if found < count:
                found += 1
                yield pad_crop(crop.pixels, column)
