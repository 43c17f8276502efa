"""Preempted sequences: copied out and back or computed again, whichever costs less; same tokens."""

import pytest
from engine_fakes import (
    BLOCK_BYTES,
    OutOfMemory,
    expected_tokens,
    fake_engine,
    make_request,
    picture,
    runner_of,
)
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.engine.config import RopeConfig, TextConfig
from vlmcli.engine.swap import SwapCost

STOPLESS = {"stop_token_ids": (999,)}
ROOMY = 100_000


def tight_requests(count: int = 3, tokens: int = 40) -> list:
    """Sequences that fit in one by one and outgrow the pool together."""
    return [
        make_request(f"r{i}", [i, picture(i, 2, 4), 1], max_tokens=tokens, **STOPLESS)
        for i in range(count)
    ]


def run(swap_bytes: int, **config):
    engine = fake_engine(
        pool_tokens=80, swap_bytes=swap_bytes, enable_drafts=False, vision_cache_bytes=0, **config
    )
    requests = tight_requests()
    outputs = engine.generate(requests)
    for request, output in zip(requests, outputs, strict=True):
        assert list(output.token_ids) == expected_tokens(request)
    engine.check_integrity()
    assert engine.stats()["preemptions"] > 0
    return engine


@pytest.mark.parametrize("vision_block", [None, 30])
def test_what_was_copied_is_not_computed_again(vision_block):
    config = {"vision_block_bytes": vision_block, "vision_kv_bytes": 210}
    again, copied = run(0, **config), run(ROOMY, **config)
    assert again.stats()["swapped_out"] == 0
    stats = copied.stats()
    assert stats["swapped_out"] == stats["swapped_back"] > 0
    assert runner_of(copied).num_rows < runner_of(again).num_rows
    # Every token once: prompts, and all output tokens but each sequence's last.
    assert runner_of(copied).num_rows == 3 * (10 + 40 - 1)
    assert not runner_of(copied).saved


def test_the_cap_of_host_memory_holds():
    engine = fake_engine(
        pool_tokens=80, swap_bytes=7 * BLOCK_BYTES, enable_drafts=False, vision_cache_bytes=0
    )
    for request in tight_requests():
        engine.add_request(request)
    most = 0
    while engine.has_unfinished():
        engine.step()
        engine.check_integrity()
        held = sum(map(len, runner_of(engine).saved.values()))
        assert held * BLOCK_BYTES <= 7 * BLOCK_BYTES
        most = max(most, held)
    assert most <= 7


def test_a_failed_step_forgets_its_copies():
    engine = fake_engine(
        pool_tokens=80, swap_bytes=ROOMY, enable_drafts=False, vision_cache_bytes=0
    )
    requests = tight_requests()
    for request in requests:
        engine.add_request(request)
    answers, num_failures, seen = {}, 0, 0.0
    while engine.has_unfinished():
        moved = engine.stats()["swapped_out"] + engine.stats()["swapped_back"]
        if moved > seen and num_failures < 4:
            seen = moved
            runner_of(engine).fail = True
        try:
            outputs = engine.step()
        except OutOfMemory:
            num_failures += 1
            outputs = []
        engine.check_integrity()
        answers |= {o.request_id: list(o.token_ids) for o in outputs if o.finished}
    assert num_failures == 4
    assert answers == {r.request_id: expected_tokens(r) for r in requests}
    assert engine._scheduler.swap.num_bytes == 0


def test_an_aborted_sequence_leaves_nothing_behind():
    engine = fake_engine(
        pool_tokens=80, swap_bytes=ROOMY, enable_drafts=False, vision_cache_bytes=0
    )
    for request in tight_requests():
        engine.add_request(request)
    while not engine.stats()["swapped_out"]:
        engine.step()
    for name in ("r2", "r1"):
        engine.abort_request(name)
        engine.check_integrity()
    assert engine._scheduler.swap.num_bytes == 0
    while engine.has_unfinished():
        engine.step()
    engine.generate(tight_requests())
    assert not runner_of(engine).saved


def decoder(layers: int, hidden: int, kv_heads: int) -> TextConfig:
    return TextConfig(
        hidden_size=hidden,
        num_layers=layers,
        num_heads=8,
        num_kv_heads=kv_heads,
        head_dim=hidden // 8,
        intermediate_size=3 * hidden,
        vocab_size=100,
        rms_norm_eps=1e-6,
        max_position_embeddings=4096,
        rope=RopeConfig(theta=1e4, sections=None),
        qkv_bias=False,
        tie_word_embeddings=True,
    )


@given(st.integers(0, 3000), st.integers(1, 3000), st.integers(1, 1 << 30))
def test_the_cheaper_way_is_taken(start, count, num_bytes):
    cost = SwapCost.of(decoder(4, 512, 2), "cpu")
    again = sum(
        cost.per_token + cost.per_pair * seen for seen in range(start + 1, start + count + 1)
    )
    copying = 2 * num_bytes * cost.per_byte
    assert cost.favours_copying(start, start + count, num_bytes) == (copying < again)
    if cost.favours_copying(start, start + count, num_bytes):
        assert cost.favours_copying(start, start + count, num_bytes // 2)
        assert cost.favours_copying(start, start + count + 1, num_bytes)


def test_prices_follow_from_the_shapes():
    text = decoder(4, 512, 2)
    cost = SwapCost.of(text, "cuda:1")
    # q and o: 512 x 512 each; k and v: 512 x 128 each; gate, up and down: 512 x 1536 each.
    assert cost.per_token == 2 * 4 * (2 * 512 * 512 + 2 * 512 * 128 + 3 * 512 * 1536)
    assert cost.per_pair == 4 * 4 * 512
    assert cost.per_byte > SwapCost.of(text, "cpu").per_byte
