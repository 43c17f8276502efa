"""Greedy tokens of the whole engine equal those of transformers' generate, every way of running."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_checkpoints import (
    EOS,
    FACTS,
    Prompt,
    as_input,
    load_reference,
    make_prompt,
    random_picture,
    reference_inputs,
    write_checkpoint,
)

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.request import DraftSource, Request, SamplingParams

MAX_TOKENS = 16


class Codes:
    """A tokenizer for checkpoints that have none: ids in angle brackets."""

    def encode(self, text: str) -> list[int]:
        return [int(code) for code in text.strip("<>").split("><")]

    def decode(self, token_ids) -> str:
        return "".join(f"<{i}>" for i in token_ids)

    def stream(self) -> "Codes":
        return self

    def push(self, token_ids) -> str:
        return self.decode(token_ids)

    def finish(self) -> str:
        return ""


def engine_for(runner: ModelRunner, **config) -> Engine:
    """An engine on already loaded weights."""
    runner.config = EngineConfig(block_size=8, **config)
    return Engine(runner, Codes(), runner.config)


def requests_of(prompts: list[Prompt], **sampling) -> list[Request]:
    return [
        Request(
            request_id=f"{i}",
            prompt_token_ids=prompt.ids,
            images=tuple(as_input(picture) for picture in prompt.pictures),
            placeholders=prompt.placeholders,
            sampling=SamplingParams(**{"max_tokens": MAX_TOKENS, **sampling}),
        )
        for i, prompt in enumerate(prompts)
    ]


def random_prompts(runner: ModelRunner, num: int) -> list[Prompt]:
    """Texts with none to three pictures of many sizes, some of them repeated."""
    rng, choose = np.random.default_rng(3), random.Random(3)
    unit = 28
    pictures = [
        random_picture(rng, unit * rows, unit * columns, grey=(rows == 1))
        for rows, columns in [(1, 1), (1, 7), (2, 3), (3, 2), (4, 4), (1, 12), (2, 2), (2, 2)]
    ]
    prompts = []
    for _ in range(num):
        parts: list = []
        for _ in range(choose.randint(0, 3)):
            parts += choose.choices(range(80), k=choose.randint(0, 4))
            parts.append(choose.choice(pictures))
        parts += choose.choices(range(80), k=choose.randint(1, 9))
        prompts.append(make_prompt(runner, parts))
    return prompts


def generate(model, runner: ModelRunner, prompt: Prompt) -> list[int]:
    with torch.no_grad():
        out = model.generate(
            **reference_inputs(runner, prompt),
            max_new_tokens=MAX_TOKENS,
            do_sample=False,
            eos_token_id=EOS,
            pad_token_id=0,
        )
    return out[0, len(prompt.ids) :].tolist()


@pytest.fixture(scope="module", params=sorted(FACTS))
def case(request, tmp_path_factory):
    path = write_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    runner = ModelRunner.from_checkpoint(path, EngineConfig(block_size=8))
    prompts = random_prompts(runner, 10)
    reference = load_reference(path)
    return runner, prompts, [generate(reference, runner, prompt) for prompt in prompts]


def tokens(outputs) -> list[list[int]]:
    return [list(output.token_ids) for output in outputs]


@pytest.mark.check("greedy")
@pytest.mark.parametrize(
    "config",
    [
        {},
        pytest.param({"max_num_seqs": 1}, marks=pytest.mark.slow),
        pytest.param(
            {"enable_prefix_caching": False, "enable_drafts": False, "enable_graphs": False},
            marks=pytest.mark.slow,
        ),
        {"max_num_batched_tokens": 16, "max_num_seqs": 4},
        {"encoder_cache_bytes": 0, "vision_cache_bytes": 0, "max_encoder_tokens": 1},
    ],
    ids=["batched", "alone", "nothing cached", "chunked", "one image at a time"],
)
def test_tokens_of_transformers(case, config):
    runner, prompts, want = case
    engine = engine_for(runner, **config)
    requests = requests_of(prompts)
    assert tokens(engine.generate(requests)) == want
    assert tokens(engine.generate(requests)) == want, "the second time, with warm caches"
    engine.check_integrity()


def test_preempted_sequences(case):
    runner, prompts, want = case
    longest = max(len(prompt.ids) for prompt in prompts) + MAX_TOKENS
    size = runner.bytes_per_block() * (2 + 2 * longest // 8)
    engine = engine_for(runner, kv_cache_bytes=size, vision_cache_bytes=0, enable_drafts=False)
    assert tokens(engine.generate(requests_of(prompts))) == want


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["perfect", "noisy", "shifted", "unrelated", "empty"])
def test_drafts_of_every_quality(case, kind):
    runner, prompts, want = case
    rng = random.Random(5)
    drafts = {
        "perfect": lambda answer: answer,
        "noisy": lambda answer: [rng.randrange(90) if rng.random() < 0.2 else t for t in answer],
        "shifted": lambda answer: [7, 8, *answer[3:]],
        "unrelated": lambda answer: [rng.randrange(90) for _ in range(30)],
        "empty": lambda answer: [],
    }
    requests = [
        replace(
            request,
            drafts=(DraftSource(name=kind, token_ids=tuple(drafts[kind](answer)), weight=0.95),),
        )
        for request, answer in zip(requests_of(prompts), want, strict=True)
    ]
    engine = engine_for(runner, max_num_seqs=3)
    assert tokens(engine.generate(requests)) == want
    accepted = engine.stats()["accepted_tokens"]
    assert (accepted > 60) if kind == "perfect" else (accepted >= 0)


@pytest.mark.slow
def test_sampling_alone_and_in_a_batch(case):
    runner, prompts, _ = case
    requests = requests_of(prompts, temperature=0.8, top_p=0.9, seed=11)
    engine = engine_for(runner)
    together = tokens(engine.generate(requests))
    assert together == [tokens(engine.generate([request]))[0] for request in requests]
    assert together != tokens(engine.generate(requests_of(prompts, temperature=0.8, seed=12)))


def test_log_probabilities_are_those_of_the_model(case):
    """A token's log-probability does not depend on whether it was drafted."""
    runner, prompts, want = case
    plain = engine_for(runner, enable_drafts=False).generate(requests_of(prompts))
    requests = [
        replace(request, drafts=(DraftSource(name="d", token_ids=tuple(answer)),))
        for request, answer in zip(requests_of(prompts), want, strict=True)
    ]
    for one, other in zip(plain, engine_for(runner).generate(requests), strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
