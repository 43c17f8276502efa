"""Scheduling decisions: budgets, order, fairness between encoder and decoder, single flight."""

import subprocess
import sys
from itertools import pairwise

import pytest
from engine_fakes import (
    EMBEDDING_BYTES,
    OutOfMemory,
    expected_tokens,
    fake_engine,
    make_request,
    picture,
    runner_of,
)

from vlmcli.engine.engine import Engine
from vlmcli.engine.request import RequestTooLargeError
from vlmcli.engine.step import SchedulerOutput

ENDLESS = (99,)


def watch(engine: Engine) -> list[SchedulerOutput]:
    """Every step that the scheduler decides from now on."""
    seen: list[SchedulerOutput] = []
    schedule = engine._scheduler.schedule

    def spy() -> SchedulerOutput:
        output = schedule()
        seen.append(output)
        return output

    engine._scheduler.schedule = spy  # type: ignore[method-assign]
    return seen


def drain(engine: Engine, limit: int = 2000) -> None:
    for _ in range(limit):
        if not engine.has_unfinished():
            return
        engine.step()
        engine.check_integrity()
    raise AssertionError("the engine does not come to an end")


def test_what_decides_needs_no_torch() -> None:
    modules = (
        "scheduler",
        "block_manager",
        "encoder_cache",
        "drafts",
        "verify",
        "positions",
        "batch",
    )
    code = "; ".join(f"import vlmcli.engine.{module}" for module in modules)
    check = "import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", f"{code}; {check}"], check=True)


def test_a_step_encodes_or_computes_and_respects_every_budget() -> None:
    engine = fake_engine(
        max_encoder_tokens=30, max_num_batched_tokens=40, encoder_cache_bytes=50 * EMBEDDING_BYTES
    )
    steps = watch(engine)
    for i in range(12):
        engine.add_request(make_request(f"{i}", [1, picture(i, 2, 6), 2], max_tokens=10))
    drain(engine)
    for step in steps:
        assert bool(step.encode) != bool(step.batch)
        assert sum(job.num_tokens for job in step.encode) <= 30
        assert sum(item.num_query_tokens for item in step.batch) <= 40
        assert len(step.batch) <= 8
    assert any(len(step.encode) == 2 for step in steps)
    assert any(len(step.batch) == 8 for step in steps)


def test_requests_with_the_same_image_encode_it_once() -> None:
    engine = fake_engine()
    for i in range(6):
        engine.add_request(make_request(f"{i}", [i, picture(0, 3, 5), 2]))
    drain(engine)
    assert len(runner_of(engine).encoded) == 1


@pytest.mark.parametrize("enable_encoder_cache", [True, False])
def test_embeddings_outlive_their_request_only_if_they_may(enable_encoder_cache: bool) -> None:
    engine = fake_engine(
        enable_encoder_cache=enable_encoder_cache, enable_prefix_caching=False, vision_cache_bytes=0
    )
    for i in range(3):
        engine.generate([make_request(f"{i}", [picture(0, 3, 5), i])])
    assert len(runner_of(engine).encoded) == (1 if enable_encoder_cache else 3)


def test_an_image_larger_than_the_cache_is_read_all_the_same() -> None:
    engine = fake_engine(encoder_cache_bytes=10 * EMBEDDING_BYTES)
    requests = [make_request(f"{i}", [1, picture(i, 4, 10), 2]) for i in range(3)]
    outputs = engine.generate(requests)
    assert [list(o.token_ids) for o in outputs] == [expected_tokens(r) for r in requests]
    assert engine.stats()["embedding_bytes"] == 0


def test_many_images_in_one_prompt_pass_through_a_small_cache() -> None:
    engine = fake_engine(encoder_cache_bytes=20 * EMBEDDING_BYTES)
    parts = [part for i in range(6) for part in (picture(i, 3, 6), i)]
    request = make_request("r", parts)
    assert list(engine.generate([request])[0].token_ids) == expected_tokens(request)


def test_decoding_waits_for_one_encoder_batch_at_most() -> None:
    engine = fake_engine(max_encoder_tokens=12, enable_drafts=False)
    engine.add_request(make_request("long", [1, 2], max_tokens=40, stop_token_ids=ENDLESS))
    steps = watch(engine)
    for i in range(30):
        engine.add_request(make_request(f"{i}", [picture(i, 2, 6), 2], max_tokens=3))
    drain(engine)
    kinds = ["encode" if step.encode else "batch" for step in steps]
    names = [{item.sequence.request_id for item in step.batch} for step in steps]
    last = max(i for i, present in enumerate(names) if "long" in present)
    assert ("encode", "encode") not in list(pairwise(kinds[:last]))


def test_encoding_goes_on_while_others_decode() -> None:
    engine = fake_engine(max_encoder_tokens=12, enable_drafts=False)
    for i in range(4):
        engine.add_request(make_request(f"d{i}", [1, i], max_tokens=60, stop_token_ids=ENDLESS))
    engine.step()
    for i in range(4):
        engine.add_request(make_request(f"{i}", [picture(i, 2, 6), 2], max_tokens=60))
    steps = watch(engine)
    for _ in range(10):
        engine.step()
    assert sum(bool(step.encode) for step in steps) == 4


def test_every_decoding_sequence_is_in_every_batch() -> None:
    engine = fake_engine(max_num_batched_tokens=10, max_num_seqs=5, enable_drafts=False)
    for i in range(4):
        engine.add_request(make_request(f"d{i}", [1, i], max_tokens=30, stop_token_ids=ENDLESS))
    for _ in range(3):
        engine.step()
    engine.add_request(make_request("prompt", list(range(20)) * 6, max_tokens=2))
    steps = watch(engine)
    for _ in range(12):
        engine.step()
    for step in steps:
        assert {"d0", "d1", "d2", "d3"} <= {item.sequence.request_id for item in step.batch}


def test_prompts_are_admitted_strictly_in_order() -> None:
    """A huge page in front is not overtaken for ever by small ones behind it."""
    engine = fake_engine(pool_tokens=200, enable_drafts=False)
    engine.add_request(make_request("first", [1] * 80, max_tokens=20, stop_token_ids=ENDLESS))
    engine.step()
    engine.add_request(make_request("huge", [2] * 150, max_tokens=2))
    for i in range(20):
        engine.add_request(make_request(f"{i}", [3, i], max_tokens=20, stop_token_ids=ENDLESS))
    steps = watch(engine)
    drain(engine)
    order = list(dict.fromkeys(i.sequence.request_id for s in steps for i in s.batch))
    assert order[:3] == ["first", "huge", "0"]


def test_the_youngest_is_preempted_and_the_oldest_never() -> None:
    engine = fake_engine(pool_tokens=100, enable_drafts=False)
    for i in range(6):
        engine.add_request(make_request(f"{i}", [1, i], max_tokens=60, stop_token_ids=ENDLESS))
    oldest = engine._live["0"].sequence
    youngest = engine._live["5"].sequence
    drain(engine)
    assert oldest.num_preemptions == 0 < youngest.num_preemptions


@pytest.mark.parametrize(
    "parts", [[1] * 100, [picture(0, 10, 10), 1]], ids=["tokens", "vision blocks"]
)
def test_a_request_that_can_never_fit_is_refused_at_admission(parts: list) -> None:
    engine = fake_engine(pool_tokens=108)
    with pytest.raises(RequestTooLargeError, match="pool holds"):
        engine.add_request(make_request("r", parts, max_tokens=9))
    assert not engine.has_unfinished()
    engine.check_integrity()


def test_the_largest_request_that_fits_is_read() -> None:
    engine = fake_engine(pool_tokens=108)
    request = make_request("r", [1] * 100, max_tokens=8, stop_token_ids=ENDLESS)
    assert list(engine.generate([request])[0].token_ids) == expected_tokens(request)


def test_positions_beyond_the_model_are_refused() -> None:
    engine = fake_engine(pool_tokens=20_000)
    with pytest.raises(RequestTooLargeError, match="positions"):
        engine.add_request(make_request("r", [1], max_tokens=4096))


def test_holders_of_embeddings_and_holders_of_blocks_do_not_wait_for_each_other_for_ever() -> None:
    """The first holds blocks and needs embeddings, the others the reverse."""
    engine = fake_engine(
        pool_tokens=120,
        max_num_batched_tokens=20,
        max_num_seqs=20,
        encoder_cache_bytes=40 * EMBEDDING_BYTES,
    )
    requests = [make_request("0", [picture(0, 3, 10), picture(1, 3, 10), 1])]
    requests += [make_request(f"{i}", [picture(1 + i, 2, 8), 1]) for i in range(1, 8)]
    outputs = engine.generate(requests)
    assert [list(o.token_ids) for o in outputs] == [expected_tokens(r) for r in requests]


def test_a_holder_of_blocks_and_a_holder_of_an_embedding_are_told_apart() -> None:
    """The older has its only embedding but no blocks, the younger blocks but no room to encode."""
    engine = fake_engine(
        pool_tokens=60,
        block_size=1,
        encoder_cache_bytes=20 * EMBEDDING_BYTES,
        enable_prefix_caching=False,
    )
    known = picture(0, 2, 6)
    engine.generate([make_request("first", [known, 1])])
    older = make_request("older", [picture(1, 4, 6), *[1] * 17])
    younger = make_request("younger", [known, picture(2, 3, 7), 1])
    engine.add_request(older)
    engine.add_request(younger)
    runner_of(engine).fail = True
    with pytest.raises(OutOfMemory):
        engine.step()
    engine.step()
    holders = {name for name, live in engine._live.items() if live.sequence.block_table}
    assert holders == {"younger"}
    drain(engine, limit=60)


def test_a_failed_step_can_be_tried_again() -> None:
    engine = fake_engine()
    requests = [make_request(f"{i}", [1, picture(i, 2, 6), 2]) for i in range(4)]
    for request in requests:
        engine.add_request(request)
    outputs = {}
    num_failures = 0
    while engine.has_unfinished():
        runner_of(engine).fail = num_failures < 5 and engine.stats()["steps"] % 2 == 1
        try:
            outputs |= {o.request_id: o for o in engine.step()}
        except OutOfMemory:
            num_failures += 1
        engine.check_integrity()
    assert num_failures >= 3
    for request in requests:
        assert list(outputs[request.request_id].token_ids) == expected_tokens(request)
