"""A tiny page-reading checkpoint with the built-in tokenizer, pages to ask about, and a watched
engine. Imported by the tests of this directory; nothing here asserts."""

import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tiny_checkpoints import random_picture, write_checkpoint

from vlmcli.checkpoint import built_in_path
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.request import PlaceholderRange, RequestOutput
from vlmcli.readers.guard import Guard
from vlmcli.readers.pages import PageReader
from vlmcli.reading import PageJob, PageReading

QUESTIONS = ("What is the total?", "Who wrote this, and when?", "How many pages?")


def write_page_checkpoint(path: Path, kind: str = "merge2_patch14") -> Path:
    """A random checkpoint whose tokenizer knows every byte."""
    write_checkpoint(path, kind, first_special=256, vocab_size=272)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(built_in_path() / name, path / name)
    return path


def pictures(num: int, seed: int = 0) -> list[np.ndarray]:
    """Pages, every one of a size of its own."""
    rng = np.random.default_rng(seed)
    return [random_picture(rng, 84 + 28 * i, 140 - 28 * i, grey=False) for i in range(num)]


@dataclass
class Asked:
    """What came of asking: readings by page, finished requests by prompt, and the counters."""

    readings: dict[int, PageReading] = field(default_factory=dict)
    outputs: dict[bytes, RequestOutput] = field(default_factory=dict)
    stats: dict[str, float] = field(default_factory=dict)
    encoded: list[bytes] = field(default_factory=list)
    places: dict[bytes, tuple[bytes, PlaceholderRange]] = field(default_factory=dict)
    """By prompt: which picture stands in it, and where."""


def ask(
    checkpoint: Path,
    questions: tuple[str, ...],
    pages: list[np.ndarray],
    *,
    max_tokens: int = 12,
    **config: object,
) -> Asked:
    """Ask every page everything, in one job. Loops are let be: one attempt, and no cutting."""
    values: dict = {"block_size": 8, "max_num_seqs": 16, "num_threads": 1, **config}
    engine = Engine.from_checkpoint(checkpoint, EngineConfig(**values))
    reader = PageReader(Guard(engine, retries=0), max_tokens=max_tokens, questions=questions)
    asked = Asked()
    prompts: dict[str, bytes] = {}
    add, step, encode = engine.add_request, engine.step, engine._runner.encode

    def watched_add(request):
        prompts[request.request_id] = hashlib.sha256(
            repr(request.prompt_token_ids).encode() + request.images[0].mm_hash
        ).digest()
        place = request.images[0].mm_hash, request.placeholders[0]
        asked.places[prompts[request.request_id]] = place
        add(request)

    def watched_step():
        outputs = step()
        asked.outputs |= {prompts[o.request_id]: o for o in outputs if o.finished}
        engine.check_integrity()
        return outputs

    def watched_encode(images):
        asked.encoded += [image.mm_hash for image in images]
        return encode(images)

    engine.add_request, engine.step = watched_add, watched_step
    engine._runner.encode = watched_encode
    for key, picture in enumerate(pages):
        reader.submit(PageJob(key=key, picture=picture))
    while reader.has_work():
        for reading in reader.step():
            asked.readings[reading.key] = reading
    asked.stats = engine.stats()
    return asked
