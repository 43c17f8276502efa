"""`vlmcli bench engine`: our engine against `transformers` generate on the same work.

The same line crops, the same checkpoint in fp32, the same prompts, greedy decoding, one process
and the same number of threads. transformers runs twice: in length-sorted batches, so that it pads
little, and one line at a time. All three must give the same text.
"""

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vlmcli.bench.pages import page_picture
from vlmcli.checkpoint import find_checkpoint
from vlmcli.documents.lines import crop_lines, find_lines
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.preprocess import as_channels, normalise, pack
from vlmcli.reader import line_request, pad_to_columns

_BATCH = 16

Pixels = npt.NDArray[np.uint8]


def run(model: str, *, num_lines: int, threads: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Returns:
        `ours_lines_per_s`, `ratio_batched` and `ratio_single` (ours over theirs), `same_text`.
    """
    torch.set_num_threads(threads)
    checkpoint = find_checkpoint(model)
    engine = Engine.from_checkpoint(checkpoint.path, EngineConfig(num_threads=threads))
    crops = [
        pad_to_columns(crop, engine.column)
        for crop in _crops(num_lines, checkpoint.line.height, checkpoint.line.max_width)
    ]
    engine.generate([line_request(engine, "warm-up", crops[0])])
    started = time.perf_counter()
    outputs = engine.generate(
        [line_request(engine, str(index), crop) for index, crop in enumerate(crops)]
    )
    ours = num_lines / (time.perf_counter() - started)
    texts = [output.text for output in outputs]
    stats = engine.stats()
    del engine
    gc.collect()
    theirs = _Transformers(checkpoint.path)
    theirs.read(crops[:1])
    order = sorted(range(num_lines), key=lambda index: crops[index].shape[1])
    started = time.perf_counter()
    batched: dict[int, str] = {}
    for start in range(0, num_lines, _BATCH):
        part = order[start : start + _BATCH]
        batched |= zip(part, theirs.read([crops[index] for index in part]), strict=True)
    batched_rate = num_lines / (time.perf_counter() - started)
    started = time.perf_counter()
    single = [theirs.read([crop])[0] for crop in crops]
    single_rate = num_lines / (time.perf_counter() - started)
    same = texts == [batched[index] for index in range(num_lines)] == single
    say(f"{num_lines} lines, {threads} thread(s), fp32, greedy; lines per second")
    for name, rate in (
        ("vlmcli engine", ours),
        (f"transformers, batches of {_BATCH}", batched_rate),
        ("transformers, one at a time", single_rate),
    ):
        say(f"  {name:<32} {rate:8.2f}   {ours / rate:6.2f}x")
    return {
        "lines": num_lines,
        "threads": threads,
        "ours_lines_per_s": round(ours, 2),
        "batched_lines_per_s": round(batched_rate, 2),
        "single_lines_per_s": round(single_rate, 2),
        "ratio_batched": round(ours / batched_rate, 2),
        "ratio_single": round(ours / single_rate, 2),
        "decoder_steps": stats["steps"] - stats["encoder_batches"],
        "same_text": same,
    }


def _crops(count: int, height: int, max_width: int) -> Iterator[Pixels]:
    """Line crops from made-up pages, as many as wanted."""
    seed = found = 0
    while found < count:
        picture = page_picture(seed, dpi=200)
        seed += 1
        for crop in crop_lines(picture, find_lines(picture), height=height, max_width=max_width):
            if found < count:
                found += 1
                yield crop.pixels
