"""Both sides of the benchmark of page-reading models, each a function for a process of its own.

What a process has imported counts as its memory: neither side loads what the other needs. The clock
starts at the pictures, behind a warm-up on a small one, and stops at the last token.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from vlmcli.bench.page_peer import PagePeer
from vlmcli.bench.page_work import Done, PageTask
from vlmcli.bench.planned import planned
from vlmcli.bench.requests import endless
from vlmcli.bench.rss import own_peak
from vlmcli.engine.engine import Engine
from vlmcli.engine.loader import read_model_config
from vlmcli.engine.request import Request
from vlmcli.memory.allocator import keep_heap_small
from vlmcli.readers.pages import page_requests, prompt_ending

_QUESTION = "Read the page."
_WARM_UP = PageTask(picture=np.full((64, 64, 3), 255, np.uint8), num_tokens=4)
T = TypeVar("T")


def run_ours(path: Path, tasks: Sequence[PageTask], threads: int, *, together: bool) -> Done:
    """Our engine on all pages at once, or on one after the other; pools as a job would have them.

    Drafts are off, and nothing is kept from one page for another.
    """
    keep_heap_small()
    most = max(task.num_tokens for task in tasks)
    sizes = [task.size for task in tasks]
    _, config = planned(
        sizes, path, most, "cpu", "float32", in_flight=len(tasks) if together else 1
    )
    engine = Engine.from_checkpoint(path, replace(config, num_threads=threads))
    engine.generate([_request(engine, _WARM_UP, "warm-up")])
    engine.drop_caches()

    def work() -> tuple[list[Request], list[tuple[int, ...]]]:
        requests = [_request(engine, task, f"{i}") for i, task in enumerate(tasks)]
        groups = [requests] if together else [[request] for request in requests]
        outputs = [output for group in groups for output in engine.generate(group)]
        return requests, [output.token_ids for output in outputs]

    (requests, answers), cpu, clock = _timed(work)
    return Done(
        prompts=tuple(tuple(request.prompt_token_ids) for request in requests),
        answers=tuple(answers),
        cpu_seconds=cpu,
        clock_seconds=clock,
        peak_bytes=own_peak(),
    )


def run_theirs(
    path: Path,
    tasks: Sequence[PageTask],
    prompts: Sequence[Sequence[int]],
    threads: int,
    *,
    batch_size: int,
) -> Done:
    """transformers on the same prompts and pictures, in batches of prompts of like length.

    A batch runs until its longest answer is done; what it writes beyond the others is cut off.
    """
    torch.set_num_threads(threads)
    config = read_model_config(path)
    peer = PagePeer(path, config.image_token_id, torch.device("cpu"), torch.float32)
    order = sorted(range(len(tasks)), key=lambda i: len(prompts[i]))
    peer.answer([prompts[order[0]]], [tasks[order[0]].picture], _WARM_UP.num_tokens)

    def work() -> dict[int, tuple[int, ...]]:
        answers: dict[int, tuple[int, ...]] = {}
        for start in range(0, len(order), batch_size):
            members = order[start : start + batch_size]
            rows = peer.answer(
                [prompts[i] for i in members],
                [tasks[i].picture for i in members],
                max(tasks[i].num_tokens for i in members),
            )
            answers |= {i: row[: tasks[i].num_tokens] for i, row in zip(members, rows, strict=True)}
        return answers

    answers, cpu, clock = _timed(work)
    return Done(
        prompts=tuple(tuple(prompt) for prompt in prompts),
        answers=tuple(answers[i] for i in range(len(tasks))),
        cpu_seconds=cpu,
        clock_seconds=clock,
        peak_bytes=own_peak(),
        num_parameters=peer.num_parameters,
    )


def _request(engine: Engine, task: PageTask, name: str) -> Request:
    ending = prompt_ending(engine, _QUESTION)
    (build,) = page_requests(engine, task.picture, [ending], max_tokens=task.num_tokens)
    return endless(build(name, 0.0, 0), task.num_tokens)


def _timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """What it returns, processor seconds, and seconds on the clock."""
    cpu, clock = time.process_time(), time.perf_counter()
    found = work()
    return found, time.process_time() - cpu, time.perf_counter() - clock
