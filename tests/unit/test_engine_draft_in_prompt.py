"""A prompt that ends with what the draft head reads in its images: the same tokens every way."""

import pytest
from engine_fakes import (
    DRAFT_END,
    DRAFT_LENGTH,
    completed,
    draft_of_codes,
    expected_tokens,
    fake_engine,
    image_codes,
    make_request,
    picture,
    runner_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_same_answer import CONFIGS, PARTS, request_lists

from vlmcli.engine.request import Request, RequestTooLargeError


def right(request: Request) -> list[int]:
    return expected_tokens(completed(request), seed=request.sampling.seed or 0)


def lines(num: int, **sampling: object) -> list[Request]:
    """Requests as the line reader makes them: the picture and nothing else."""
    return [make_request(f"{i}", [20, picture(i, 1, 9), 21], **sampling) for i in range(num)]


def draft_of(request: Request) -> list[int]:
    return draft_of_codes(image_codes(request.images[0].pixels))


@settings(max_examples=80)
@given(request_lists(), CONFIGS)
def test_every_configuration_asks_the_completed_question(
    requests: list[Request], config: dict[str, object]
) -> None:
    """The pools of `CONFIGS` preempt, evict and chunk; drafts and prefix caching go on and off."""
    config = {**config, "pool_tokens": max(500, int(config["pool_tokens"]))}  # type: ignore[call-overload]
    engine = fake_engine(draft_in_prompt=True, **config)  # type: ignore[arg-type]
    for request, output in zip(requests, engine.generate(requests), strict=True):
        assert list(output.token_ids) == right(request)
        assert output.num_prompt_tokens == len(completed(request).prompt_token_ids)
        assert output.num_visual_tokens == sum(place.length for place in request.placeholders)
    engine.check_integrity()
    assert engine.stats()["blocks_used"] == 0


@settings(max_examples=60)
@given(
    st.lists(PARTS, min_size=1, max_size=6),
    st.data(),
    st.sampled_from([0, 100, 5000]),
    st.sampled_from([8, 200]),
)
def test_aborted_at_any_moment_everything_is_free(
    prompts: list, data: st.DataObject, encoder_cache_bytes: int, batched: int
) -> None:
    engine = fake_engine(
        draft_in_prompt=True,
        max_encoder_tokens=20,
        encoder_cache_bytes=encoder_cache_bytes,
        max_num_batched_tokens=batched,
    )
    requests = {f"r{i}": make_request(f"r{i}", parts) for i, parts in enumerate(prompts)}
    for request in requests.values():
        engine.add_request(request)
    alive = dict(requests)
    while alive:
        if data.draw(st.booleans()):
            name = data.draw(st.sampled_from(sorted(alive)))
            output = engine.abort_request(name)
            assert output is not None
            assert list(output.token_ids) == right(alive.pop(name))[: len(output.token_ids)]
        for output in engine.step():
            if output.finished:
                assert list(output.token_ids) == right(alive.pop(output.request_id))
        engine.check_integrity()
    assert engine.stats()["blocks_used"] == 0
    assert engine.images.embeddings.num_pinned_bytes == 0


def test_the_prompt_and_its_draft_take_one_pass() -> None:
    """What the head read is verified in the step that computes the prompt."""
    request = next(
        request
        for i in range(500)
        if (request := make_request("r", [20, picture(i, 1, 2), 21], max_tokens=2))
        and draft_of(request)[:1] == right(request)[:1]
    )
    engine = fake_engine(draft_in_prompt=True)
    (output,) = engine.generate([request])
    assert len(output.token_ids) == 2
    assert runner_of(engine).num_passes == 1
    assert output.accepted == {"draft-head": 1}


def test_without_speculation_the_question_is_the_same() -> None:
    requests = lines(5)
    on, off = (
        fake_engine(draft_in_prompt=True, enable_drafts=enable).generate(requests)
        for enable in (True, False)
    )
    for a, b in zip(on, off, strict=True):
        assert a.token_ids == b.token_ids
        assert a.num_prompt_tokens == b.num_prompt_tokens
        assert not b.drafted


def test_preempted_sequences_keep_their_prompt() -> None:
    requests = lines(8, max_tokens=40, stop_token_ids=(99,))
    engine = fake_engine(draft_in_prompt=True, pool_tokens=160, encoder_cache_bytes=200)
    outputs = engine.generate(requests)
    assert [list(output.token_ids) for output in outputs] == [right(r) for r in requests]
    assert engine.stats()["preemptions"] > 0


@pytest.mark.parametrize("encoder_cache_bytes", [0, 10_000])
def test_the_same_image_asked_again(encoder_cache_bytes: int) -> None:
    """Whole blocks of its image are found again, and no second encoding is needed for the draft."""
    engine = fake_engine(
        draft_in_prompt=True,
        block_size=1,
        vision_cache_bytes=10_000,
        encoder_cache_bytes=encoder_cache_bytes,
    )
    for name in "abc":
        request = make_request(name, [20, picture(3, 2, 6), 21])
        (output,) = engine.generate([request])
        assert list(output.token_ids) == right(request)
    assert engine.stats()["images_encoded"] == 1
    assert output.num_cached_tokens == 13


def test_two_at_once_share_one_encoding() -> None:
    engine = fake_engine(draft_in_prompt=True)
    same = [make_request(name, [20, picture(3, 2, 6), 21]) for name in "abc"]
    outputs = engine.generate(same)
    assert {output.token_ids for output in outputs} == {tuple(right(same[0]))}
    assert engine.stats()["images_encoded"] == 1


def test_refused_if_it_does_not_fit_with_its_draft() -> None:
    request = make_request("r", [20, picture(0, 1, 40), 21], max_tokens=10)
    needed = 42 + DRAFT_LENGTH + 1 + 10
    fake_engine(draft_in_prompt=True, pool_tokens=needed + 20).add_request(request)
    with pytest.raises(RequestTooLargeError):
        fake_engine(draft_in_prompt=True, pool_tokens=needed - 4).add_request(request)
    positions = make_request("r", [20, picture(0, 1, 40), 21], max_tokens=4096 - 42 - DRAFT_LENGTH)
    with pytest.raises(RequestTooLargeError, match="positions"):
        fake_engine(draft_in_prompt=True, pool_tokens=10_000).add_request(positions)
    assert fake_engine(pool_tokens=10_000).generate([positions])


def test_a_prompt_without_images_stays_as_it_is() -> None:
    request = make_request("r", [1, 2, 3])
    (output,) = fake_engine(draft_in_prompt=True).generate([request])
    assert output.num_prompt_tokens == 3
    assert DRAFT_END not in request.prompt_token_ids
    assert list(output.token_ids) == expected_tokens(request)
