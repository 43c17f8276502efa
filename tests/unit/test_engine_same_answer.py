"""The same tokens every way: alone or batched, cached, chunked, preempted, drafted, sampled."""

import random

import pytest
from engine_fakes import (
    STOP,
    expected_tokens,
    fake_engine,
    make_request,
    picture,
    runner_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmcli.engine.request import DraftSource, Request

IMAGES = st.builds(picture, st.integers(0, 3), st.integers(1, 3), st.integers(1, 7))
PARTS = st.lists(st.one_of(st.integers(0, 3), IMAGES), min_size=1, max_size=10)
DRAFTS = st.lists(
    st.builds(
        DraftSource,
        name=st.sampled_from(["text-layer", "near-duplicate"]),
        token_ids=st.lists(st.integers(0, 21), max_size=20).map(tuple),
        weight=st.floats(0, 1),
    ),
    max_size=2,
).map(tuple)
CONFIGS = st.fixed_dictionaries(
    {
        "pool_tokens": st.sampled_from([280, 400, 2000]),
        "block_size": st.sampled_from([1, 3, 4, 16]),
        "max_num_seqs": st.sampled_from([1, 3, 8]),
        "max_num_batched_tokens": st.sampled_from([8, 17, 200]),
        "max_encoder_tokens": st.sampled_from([1, 30, 200]),
        "encoder_cache_bytes": st.sampled_from([0, 100, 5000]),
        "vision_cache_bytes": st.sampled_from([0, 700, 5000]),
        "max_draft_tokens": st.sampled_from([0, 3, 16]),
        "enable_prefix_caching": st.booleans(),
        "enable_encoder_cache": st.booleans(),
        "enable_drafts": st.booleans(),
    }
)


@st.composite
def request_lists(draw: st.DrawFn) -> list[Request]:
    prompts = draw(st.lists(PARTS, min_size=1, max_size=8))
    return [
        make_request(
            f"r{i}",
            parts,
            max_tokens=draw(st.integers(1, 20)),
            temperature=draw(st.sampled_from([0.0, 0.0, 0.7])),
            top_p=draw(st.sampled_from([1.0, 0.8])),
            seed=draw(st.integers(0, 3)),
            drafts=draw(DRAFTS),
        )
        for i, parts in enumerate(prompts)
    ]


def some_requests(num: int, *, prefix: str = "", seed: int = 0) -> list[Request]:
    rng = random.Random(seed)
    return [
        make_request(f"{prefix}{i}", [1, picture(i, 2, 6), 2, rng.randrange(20)], max_tokens=40)
        for i in range(num)
    ]


def right(requests: list[Request]) -> list[list[int]]:
    return [expected_tokens(request) for request in requests]


def tokens_of(outputs: list) -> list[list[int]]:
    return [list(output.token_ids) for output in outputs]


@settings(max_examples=120)
@given(request_lists(), CONFIGS)
def test_every_configuration_gives_the_tokens_of_the_plain_model(
    requests: list[Request], config: dict[str, object]
) -> None:
    engine = fake_engine(**config)  # type: ignore[arg-type]
    outputs = engine.generate(requests)
    for request, output in zip(requests, outputs, strict=True):
        want = expected_tokens(request, seed=request.sampling.seed or 0)
        assert list(output.token_ids) == want
        assert len(output.logprobs) == len(want) and max(output.logprobs) <= 0
        assert output.finish_reason == ("stop" if want[-1] == STOP else "length")
    engine.check_integrity()
    assert engine.stats()["blocks_used"] == 0


def test_a_batch_is_really_batched() -> None:
    requests = some_requests(8)
    engine = fake_engine(enable_drafts=False)
    assert tokens_of(engine.generate(requests)) == right(requests)
    longest = max(len(tokens) for tokens in right(requests))
    assert runner_of(engine).num_passes <= longest + 3


def test_images_of_one_size_under_one_prompt_keep_apart_in_the_prefix_cache() -> None:
    engine = fake_engine(vision_cache_bytes=10_000)
    for code in (0, 1, 0, 2, 1):
        request = make_request("q", [5, 6, picture(code, 4, 6), 7])
        (output,) = engine.generate([request])
        assert list(output.token_ids) == expected_tokens(request)
    assert engine.stats()["images_encoded"] == 3
    assert (
        len({tuple(expected_tokens(make_request("q", [picture(c, 4, 6)]))) for c in range(3)}) == 3
    )


def test_an_image_moved_within_equal_placeholders_is_not_taken_for_the_old_one() -> None:
    one, two = picture(0, 1, 6), picture(1, 1, 6)
    engine = fake_engine(block_size=2, vision_cache_bytes=10_000)
    for parts in ([one, two, 3], [two, one, 3], [one, one, 3], [two, two, 3]):
        request = make_request("q", parts)
        assert list(engine.generate([request])[0].token_ids) == expected_tokens(request)


@pytest.mark.parametrize("vision_cache_bytes", [0, 600, 10_000])
def test_questions_on_one_page_share_its_encoding_and_its_blocks(vision_cache_bytes: int) -> None:
    page = picture(9, 4, 8)
    questions = [make_request(f"q{i}", [1, page, i, i + 1]) for i in range(5)]
    engine = fake_engine(vision_cache_bytes=vision_cache_bytes)
    together = engine.generate(questions)
    assert tokens_of(together) == right(questions)
    assert runner_of(engine).encoded == [page.mm_hash]
    assert [output.num_cached_tokens > 0 for output in together] == [False, True, True, True, True]
    later = make_request("later", [1, page, 9])
    (output,) = engine.generate([later])
    assert list(output.token_ids) == expected_tokens(later)
    assert (output.num_cached_tokens >= 32) == (vision_cache_bytes == 10_000)


@pytest.mark.parametrize("chunk", [8, 9, 13])
def test_chunks_that_end_inside_an_image_change_nothing(chunk: int) -> None:
    requests = [
        make_request(f"{i}", [1, picture(i, 3, 7), 2, picture(i + 1, 5, 5), 3]) for i in range(3)
    ]
    engine = fake_engine(max_num_batched_tokens=chunk)
    assert tokens_of(engine.generate(requests)) == right(requests)


def test_preempted_sequences_go_on_with_the_same_tokens() -> None:
    requests = [
        make_request(f"{i}", [1, i, 3], max_tokens=40, stop_token_ids=(99,)) for i in range(8)
    ]
    engine = fake_engine(pool_tokens=120, enable_drafts=False)
    assert tokens_of(engine.generate(requests)) == right(requests)
    assert engine.stats()["preemptions"] > 0


def test_greedy_ignores_the_seed_and_sampling_obeys_it() -> None:
    def run(temperature: float, seed: int, companions: int = 0) -> tuple[int, ...]:
        request = make_request(
            "r", [1, 2, 3], max_tokens=30, temperature=temperature, seed=seed, stop_token_ids=(99,)
        )
        others = some_requests(companions, prefix="other")
        return fake_engine().generate([*others, request])[-1].token_ids

    assert run(0.0, 1) == run(0.0, 2)
    assert run(0.9, 1) == run(0.9, 1, companions=5) != run(0.9, 2)


@given(st.integers(1, 30), st.integers(0, 20))
def test_max_tokens_is_never_exceeded(max_tokens: int, num_draft: int) -> None:
    request = make_request("r", [1, 2], max_tokens=max_tokens, stop_token_ids=(99,))
    draft = DraftSource(name="perfect", token_ids=tuple(expected_tokens(request))[:num_draft])
    drafted = make_request(
        "r", [1, 2], max_tokens=max_tokens, stop_token_ids=(99,), drafts=(draft,)
    )
    (output,) = fake_engine().generate([drafted])
    assert list(output.token_ids) == expected_tokens(request)
    assert len(output.token_ids) == max_tokens and output.finish_reason == "length"


@pytest.mark.parametrize("stops", [(STOP,), (1, 2, 3, 4, 5, 6)])
def test_a_stop_token_in_the_middle_of_a_draft_ends_the_sequence(stops: tuple[int, ...]) -> None:
    endless = make_request("r", [4, 4], max_tokens=60, stop_token_ids=(99,))
    draft = DraftSource(name="perfect", token_ids=tuple(expected_tokens(endless)), weight=1.0)
    request = make_request("r", [4, 4], max_tokens=60, stop_token_ids=stops, drafts=(draft,))
    (output,) = fake_engine().generate([request])
    assert list(output.token_ids) == expected_tokens(request)
    assert output.token_ids[-1] in stops and output.finish_reason == "stop"
    assert len(output.text) == len(output.token_ids) - 1
