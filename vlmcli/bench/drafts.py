"""`vlmcli bench drafts`: what drafts save, and that they change nothing.

With the built-in model: born-digital pages drawn as pictures, whose text layer is the draft; and
rescans of a letter with two lines changed, whose old text is the draft. Each is read without any
drafts, with the draft head alone, and with the text. To tell the machinery from the model: a random
checkpoint, whose answers are fixed, with drafts that are its own answers, perfect or with every
tenth token wrong. Steps are counted per sequence: forward passes in which it got a token. Seconds
are those of the model, the least of the rounds.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from vlmcli.bench.checkpoints import Shape, write_lively
from vlmcli.bench.jobs import WITHOUT_REUSE, Job, read
from vlmcli.bench.pages import Paper, letter_picture, write_print, write_scan
from vlmcli.bench.requests import page_questions, with_drafts
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.models.prompts import prompt_for
from vlmcli.engine.request import Request
from vlmcli.engine.tokenizer import load_tokenizer

Say = Callable[[str], None]

_MIB = 1 << 20
_PLAIN = ("--drafts", "off", *WITHOUT_REUSE)
_WRONG_EVERY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """How a random checkpoint did: tokens, steps of a sequence, processor seconds, the answers."""

    num_tokens: int
    num_steps: int
    seconds: float
    answers: tuple[tuple[int, ...], ...]

    @property
    def tokens_per_step(self) -> float:
        """Output tokens in one forward pass."""
        return self.num_tokens / self.num_steps


def run(
    num_pages: int, num_lines: int, rounds: int, shape: Shape, max_tokens: int, say: Say
) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Args:
        num_pages: pages of each document.
        num_lines: lines of a page.
        rounds: how often each is read in each way.
        shape: of the random checkpoint.
        max_tokens: of its answers.
        say: takes a line of text.

    Returns:
        `tokens_per_step_text_layer`, `tokens_per_step_near_duplicate` (built-in model, that source
        alone), `tokens_per_step` by source; `speedup_text_layer`, `speedup_near_duplicate` and
        `speedup` by source: the model's seconds without drafts over those with them;
        `fixed_tokens_per_step` and `fixed_speedup` of the random checkpoint by kind of draft;
        `same_text`: whether every run said what the plain one did.
    """
    say(f"{'':<32} {'tokens':>8} {'steps':>8} {'per step':>9} {'s/page':>8}")
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as name:
        folder = Path(name)
        born = _text_layers(folder, num_pages, num_lines, rounds, say)
        letters = _near_duplicates(folder, num_pages, num_lines, rounds, say)
        fixed = _fixed(folder, shape, num_pages, max_tokens, say)
    jobs = {way: (job, born["plain"]) for way, job in born.items()}
    jobs["old text"] = letters["old text"], letters["plain"]
    tokens = {way: round(job.tokens_per_step, 2) for way, (job, _) in jobs.items()}
    speedup = {
        way: round(plain.model_seconds / job.model_seconds, 2) for way, (job, plain) in jobs.items()
    }
    reference = fixed["plain"]
    return {
        "pages": num_pages,
        "tokens_per_step_text_layer": tokens["text layer"],
        "tokens_per_step_near_duplicate": tokens["old text"],
        "speedup_text_layer": speedup["text layer"],
        "speedup_near_duplicate": speedup["old text"],
        "tokens_per_step": tokens,
        "speedup": speedup,
        "fixed_tokens_per_step": {
            kind: round(one.tokens_per_step, 2) for kind, one in fixed.items()
        },
        "fixed_speedup": {
            kind: round(reference.seconds / one.seconds, 2) for kind, one in fixed.items()
        },
        "same_text": all(job.texts == plain.texts for job, plain in jobs.values())
        and all(one.answers == reference.answers for one in fixed.values()),
    }


def _text_layers(
    folder: Path, num_pages: int, num_lines: int, rounds: int, say: Say
) -> dict[str, Job]:
    """A born-digital document by source of drafts."""
    document = folder / "born.pdf"
    write_print(document, [Paper(width=595, height=842, lines=num_lines)] * num_pages)
    layer = (*WITHOUT_REUSE, "--text-layer", "draft")
    return _compare(
        document,
        {
            "plain": _PLAIN,
            "draft head": WITHOUT_REUSE,
            "text layer": (*layer, "--drafts", "text-layer"),
            "text layer, draft head": layer,
        },
        [folder / "store"] * rounds,
        say,
    )


def _near_duplicates(
    folder: Path, num_pages: int, num_lines: int, rounds: int, say: Say
) -> dict[str, Job]:
    """Pages of which another version was read before."""
    letter = partial(letter_picture, lines=num_lines)
    document, stores = folder / "letters.pdf", [folder / str(round) for round in range(rounds)]
    write_scan(document, (letter(page, version=1) for page in range(num_pages)))
    read(document, stores[0])
    for store in stores[1:]:
        shutil.copytree(stores[0], store)
    write_scan(document, (letter(page, version=2) for page in range(num_pages)))
    ways = {"plain": _PLAIN, "old text": ("--drafts", "near-duplicate")}
    found = _compare(document, ways, stores, say)
    kinds = {record["reuse"]["kind"] for record in found["old text"].records}
    assert kinds == {"draft"}, f"pages that differ in two lines were not read with drafts: {kinds}"
    return found


def _compare(
    document: Path, ways: Mapping[str, Sequence[str]], stores: Sequence[Path], say: Say
) -> dict[str, Job]:
    """The document read in every way in turn, once with each store; of each way the fastest job."""
    rounds = [{way: read(document, store, *ways[way]) for way in ways} for store in stores]
    best = {way: min((one[way] for one in rounds), key=attrgetter("model_seconds")) for way in ways}
    for way, job in best.items():
        say(
            f"{f'{document.stem}, {way}':<32} {job.stats['output_tokens']:>8} "
            f"{job.stats['sequence_steps']:>8} {job.tokens_per_step:>9.2f} "
            f"{job.model_seconds / len(job.records):>8.2f}"
        )
    return best


def _fixed(
    folder: Path, shape: Shape, num_pages: int, max_tokens: int, say: Say
) -> dict[str, Fixed]:
    """The random checkpoint: its plain answers, then the same with drafts made of them."""
    path = write_lively(folder, shape)
    config = EngineConfig(
        kv_cache_bytes=192 * _MIB,
        vision_cache_bytes=0,
        encoder_cache_bytes=32 * _MIB,
        enable_prefix_caching=False,
    )
    runner = ModelRunner.from_checkpoint(path, config)
    tokenizer = load_tokenizer(path)
    plain = Engine(runner, tokenizer, config)
    requests = page_questions(plain, num_pages, [prompt_for("", "text")], max_tokens)
    found: dict[str, Fixed] = {}
    for kind, wrong_every in (("plain", 0), ("perfect", max_tokens + 1), ("flawed", _WRONG_EVERY)):
        engine = Engine(runner, tokenizer, replace(config, enable_drafts=kind != "plain"))
        work = requests
        if kind != "plain":
            work = with_drafts(requests, found["plain"].answers, wrong_every)
        found[kind] = one = _answer(engine, work)
        say(
            f"{f'{shape.name} random, {kind}':<32} {one.num_tokens:>8} {one.num_steps:>8} "
            f"{one.tokens_per_step:>9.2f} {one.seconds / num_pages:>8.2f}"
        )
    return found


def _answer(engine: Engine, requests: Sequence[Request]) -> Fixed:
    """Every request alone, as drafts are worth most where there is nothing to batch."""
    started = time.process_time()
    outputs = [engine.generate([request])[0] for request in requests]
    seconds = time.process_time() - started
    stats = engine.stats()
    return Fixed(
        num_tokens=int(stats["output_tokens"]),
        num_steps=int(stats["sequence_steps"]),
        seconds=seconds,
        answers=tuple(output.token_ids for output in outputs),
    )
