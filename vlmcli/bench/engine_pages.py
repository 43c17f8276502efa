"""`vlmcli bench engine` for models that read whole pages: our engine against `transformers`.

The same checkpoint in float32, the same prompts and pictures, greedy, without drafts; answers of
lengths that are fixed beforehand. One page at a time; and sixteen pages of unlike sizes with
unlike answers, ours all at once, transformers in batches of several sizes, of which the one that
does best counts. Tokens are counted that were asked for. Every run is a process of its own, whose
highest resident memory is told. Linux only.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlmcli.bench.apart import apart
from vlmcli.bench.checkpoints import REUSE, TINY, write_lively
from vlmcli.bench.page_sides import run_ours, run_theirs
from vlmcli.bench.page_work import Done, PageTask, first_difference, page_work
from vlmcli.bench.tiled_checkpoint import SMOLVLM_256M, SMOLVLM_TINY, write_smolvlm
from vlmcli.engine.loader import read_model_config

_PAGES = 16
_ALONE = slice(0, None, 8)
"""Pages that are read one at a time as well: two, or batch 1 would take most of the time."""
_PEER_BATCHES = (16, 8)
_MIB = 1 << 20
Say = Callable[[str], None]
RANDOM: Mapping[str, Callable[[Path, bool], Path]] = {
    "random-qwen2-vl": lambda folder, quick: write_lively(folder, TINY if quick else REUSE),
    "random-smolvlm": lambda folder, quick: apart(
        write_smolvlm, folder, SMOLVLM_TINY if quick else SMOLVLM_256M
    ),
}
"""Checkpoints that the benchmark writes itself, by name: 210 million parameters of Qwen2-VL's kind,
and the shape of SmolVLM-256M; `quick` ones are tiny."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One row of the table; `batch` is that of transformers, None for ours."""

    name: str
    done: Done
    pages: Sequence[int]
    batch: int | None = None


def run_random(name: str, *, quick: bool, threads: int, say: Say) -> dict[str, Any]:
    """`run` on one of `RANDOM`; a quick one has answers of a few tokens."""
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as folder:
        path = RANDOM[name](Path(folder), quick)
        return run(path, name, quick=quick, threads=threads, say=say)


def run(path: Path, name: str, *, quick: bool, threads: int, say: Say) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Args:
        path: checkpoint directory of a native family that reads pages.
        name: what the user calls it.
        quick: answers of 2 to 12 tokens instead of 20 to 400: whether it works, no figures.
        threads: of either side.
        say: takes a line of text.

    Returns:
        `ratio_single` and `ratio_ragged16` (our tokens per processor second over theirs),
        `same_tokens` and, where they part, `parted`; `rss_ratio` and `rss_ratio_single` (our
        highest resident memory over theirs), and the figures that these are made of.

    Raises:
        ModelError: the engine has no family for the checkpoint.
    """
    read_model_config(path)
    tasks = page_work(_PAGES, *((2, 12) if quick else (20, 400)))
    alone = range(_PAGES)[_ALONE]
    answers = [task.num_tokens for task in tasks]
    say(
        f"{name}: float32, greedy, {threads} thread(s), "
        f"answers of {min(answers)} to {max(answers)} tokens"
    )
    say(f"  {'':<30} {'tokens':>7} {'CPU s':>8} {'per CPU s':>10} {'peak':>10}")
    runs = []
    for one in _runs(path, tasks, alone, threads):
        runs.append(one)
        say(_row(one))
    ours_alone, theirs_alone, ours, *batched = runs
    best = max(batched, key=lambda one: one.done.tokens_per_cpu_second)
    parted = list(_parted(runs))
    for line in parted:
        say(f"  page {line['page']} parts at token {line['token']} in {line['run']}")
    return {
        "model": name,
        "parameters": theirs_alone.done.num_parameters,
        "threads": threads,
        "prompt_tokens": [len(prompt) for prompt in ours.done.prompts],
        "output_tokens": answers,
        "pages": _PAGES,
        "pages_alone": len(alone),
        "ratio_single": _ratio(ours_alone, theirs_alone),
        "ratio_ragged16": _ratio(ours, best),
        "same_tokens": not parted,
        "parted": parted,
        "rss_ratio": round(ours.done.peak_bytes / best.done.peak_bytes, 3),
        "rss_ratio_single": round(ours_alone.done.peak_bytes / theirs_alone.done.peak_bytes, 3),
        "best_batch": best.batch,
        "runs": [_figures(one) for one in runs],
    }


def _runs(
    path: Path, tasks: Sequence[PageTask], alone: Sequence[int], threads: int
) -> Iterator[_Run]:
    """Ours and theirs one at a time, ours together, theirs in batches of each size."""
    few = [tasks[i] for i in alone]
    done = apart(run_ours, path, few, threads, together=False)
    yield _Run(name="vlmcli, one at a time", done=done, pages=alone)
    done = apart(run_theirs, path, few, done.prompts, threads, batch_size=1)
    yield _Run(name="transformers, one at a time", done=done, pages=alone, batch=1)
    pages = range(len(tasks))
    done = apart(run_ours, path, tasks, threads, together=True)
    yield _Run(name=f"vlmcli, {len(tasks)} at once", done=done, pages=pages)
    prompts = done.prompts
    for size in _PEER_BATCHES:
        done = apart(run_theirs, path, tasks, prompts, threads, batch_size=size)
        yield _Run(name=f"transformers, batches of {size}", done=done, pages=pages, batch=size)


def _parted(runs: Sequence[_Run]) -> Iterator[dict[str, Any]]:
    """Where answers differ from those of our run of all pages."""
    reference = next(one.done.answers for one in runs if len(one.pages) == _PAGES)
    for one in runs:
        for page, answer in zip(one.pages, one.done.answers, strict=True):
            token = first_difference(answer, reference[page])
            if token is not None:
                yield {"run": one.name, "page": page, "token": token}


def _row(one: _Run) -> str:
    done = one.done
    num_tokens, peak = sum(map(len, done.answers)), f"{done.peak_bytes / _MIB:.0f} MiB"
    return (
        f"  {one.name:<30} {num_tokens:>7} {done.cpu_seconds:8.1f} "
        f"{done.tokens_per_cpu_second:10.2f} {peak:>10}"
    )


def _figures(one: _Run) -> dict[str, Any]:
    return {
        "name": one.name,
        "tokens": sum(map(len, one.done.answers)),
        "cpu_s": round(one.done.cpu_seconds, 2),
        "clock_s": round(one.done.clock_seconds, 2),
        "tokens_per_cpu_s": round(one.done.tokens_per_cpu_second, 2),
        "peak_rss_bytes": one.done.peak_bytes,
    }


def _ratio(ours: _Run, theirs: _Run) -> float:
    return round(ours.done.tokens_per_cpu_second / theirs.done.tokens_per_cpu_second, 2)
