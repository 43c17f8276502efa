"""The whole engine on families with tiles: tokens of transformers, and each distinct tile once."""

import hashlib
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiled_checkpoints import (
    EOS,
    KINDS,
    pictures_of,
    reference_inputs,
    tiled_prompt,
    write_tiled_checkpoint,
)
from tiny_checkpoints import Prompt, load_reference, random_picture

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.request import Request, SamplingParams
from vlmcli.engine.tokenizer import load_tokenizer

MAX_TOKENS = 12


@pytest.fixture(scope="module", params=sorted(KINDS))
def case(request, tmp_path_factory):
    """A runner, its tokenizer, prompts of unlike pictures, and what transformers makes of them."""
    path = write_tiled_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    runner = ModelRunner.from_checkpoint(path, EngineConfig(block_size=8))
    reference = load_reference(path)
    rng = np.random.default_rng(3)
    sizes = [(50, 150), (170, 90), (56, 56), (130, 130), (60, 119)]
    pictures = [random_picture(rng, *size, grey=i == 4) for i, size in enumerate(sizes)]
    parts = [
        [5, 6, 7],
        [1, pictures[0], 2],
        [pictures[1], 3, 4],
        [8, pictures[2], 9, pictures[3], 10, 11],
        [1, pictures[0], 12, pictures[4]],
    ]
    prompts = [tiled_prompt(runner, some) for some in parts]
    want = [
        generate(request.param, reference, some, prompt)
        for some, prompt in zip(parts, prompts, strict=True)
    ]
    return runner, load_tokenizer(path), prompts, want


def generate(kind: str, model, parts: list, prompt: Prompt) -> list[int]:
    with torch.no_grad():
        out = model.generate(
            **reference_inputs(kind, prompt.ids, pictures_of(parts)),
            max_new_tokens=MAX_TOKENS,
            do_sample=False,
            eos_token_id=EOS,
            pad_token_id=0,
        )
    return out[0, len(prompt.ids) :].tolist()


def engine_for(case, **config) -> Engine:
    """An engine on already loaded weights."""
    runner, tokenizer = case[:2]
    runner.config = EngineConfig(**{"block_size": 8, "num_threads": 1, **config})
    return Engine(runner, tokenizer, runner.config)


def requests_of(prompts: list[Prompt]) -> list[Request]:
    return [
        Request(
            request_id=f"{i}",
            prompt_token_ids=prompt.ids,
            images=prompt.pictures,
            placeholders=prompt.placeholders,
            sampling=SamplingParams(max_tokens=MAX_TOKENS),
        )
        for i, prompt in enumerate(prompts)
    ]


def tokens(outputs) -> list[list[int]]:
    return [list(output.token_ids) for output in outputs]


@pytest.mark.check("greedy")
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"max_num_seqs": 1, "enable_drafts": False},
        {"max_num_batched_tokens": 16, "max_num_seqs": 4},
        {"encoder_cache_bytes": 0, "vision_cache_bytes": 0, "max_encoder_tokens": 1},
        {"enable_prefix_caching": False, "enable_encoder_cache": False},
    ],
    ids=["batched", "alone", "chunked", "one tile at a time", "nothing cached"],
)
def test_tokens_of_transformers(case, config):
    _, _, prompts, want = case
    engine = engine_for(case, **config)
    assert tokens(engine.generate(requests_of(prompts))) == want
    assert tokens(engine.generate(requests_of(prompts))) == want, "with warm caches"
    engine.check_integrity()


def repeated_prompts(case) -> list[Prompt]:
    """A picture of equal tiles, one that shares tiles with it, and the first once more."""
    runner = case[0]
    size = runner.model_config.processor.geometry.tile_size
    rng = np.random.default_rng(5)
    equal = np.full((2 * size, 2 * size, 3), 180, np.uint8)
    shared = equal.copy()
    shared[:5, :5] = random_picture(rng, 5, 5, grey=False)
    parts = [[1, equal, 2], [3, shared, 4, 5], [6, 7, equal, 8]]
    return [tiled_prompt(runner, some) for some in parts]


def told_apart(prompts: list[Prompt]) -> list[Prompt]:
    """The same prompts with a name for every tile that no other has, so that none is reused."""
    count = itertools.count()
    return [
        replace(
            prompt,
            pictures=tuple(
                replace(image, mm_hash=hashlib.sha256(f"{next(count)}".encode()).digest())
                for image in prompt.pictures
            ),
        )
        for prompt in prompts
    ]


@pytest.mark.parametrize(
    "config",
    [{}, {"max_num_seqs": 1}, {"max_encoder_tokens": 1}, {"max_num_batched_tokens": 16}],
    ids=["together", "one after the other", "one tile at a time", "chunked"],
)
def test_each_distinct_tile_is_encoded_once(case, config, monkeypatch):
    prompts = repeated_prompts(case)
    shown = [image.mm_hash for prompt in prompts for image in prompt.pictures]
    assert len(set(shown)) < len(shown), "a case of repetition"
    encoded = []
    engine = engine_for(case, enable_prefix_caching=False, **{"max_num_seqs": 4, **config})
    encode = engine._runner.encode

    def watched(images):
        encoded.extend(image.mm_hash for image in images)
        return encode(images)

    with monkeypatch.context() as patch:
        patch.setattr(engine._runner, "encode", watched)
        reused = tokens(engine.generate(requests_of(prompts)))
    assert sorted(encoded) == sorted(set(shown))
    stats = engine.stats()
    assert stats["images_encoded"] == len(set(shown))
    assert stats["images_reused"] == len(shown) - len(set(shown))
    plain = engine_for(case, enable_prefix_caching=False, **{"max_num_seqs": 4, **config})
    assert tokens(plain.generate(requests_of(told_apart(prompts)))) == reused
    assert plain.stats()["images_encoded"] == len(shown)
    assert plain.stats()["images_reused"] == 0


def test_a_tile_gives_the_same_tokens_in_every_picture(case):
    """What reuse rests on: a tile's neighbours in the batch, or in its picture, have no say."""
    runner = case[0]
    images = [image for prompt in repeated_prompts(case) for image in prompt.pictures]
    alone = {image.mm_hash: runner.encode([image])[0] for image in images}
    for image, together in zip(images, runner.encode(images), strict=True):
        torch.testing.assert_close(together, alone[image.mm_hash], atol=1e-5, rtol=0)
