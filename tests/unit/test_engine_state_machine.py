"""Random requests, cancellations and failures: after every step everything is accounted for.

Pools are so small that sequences are preempted and retained image blocks evicted, in one pool for
all tokens and in pools of two formats.
"""

from dataclasses import replace
from typing import ClassVar

import pytest
from engine_fakes import (
    OutOfMemory,
    completed,
    expected_tokens,
    fake_engine,
    make_request,
    picture,
    runner_of,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from vlmcli.engine.request import (
    DraftSource,
    ImageInput,
    Request,
    RequestOutput,
    RequestTooLargeError,
)

KNOWN = [picture(0, 4, 8), picture(1, 3, 4), picture(1, 2, 6)]
"""Images that come again and again, so that prefixes are found."""
IMAGES = st.builds(picture, st.integers(0, 4), st.integers(1, 4), st.integers(1, 8))
PARTS = st.lists(
    st.one_of(st.sampled_from(KNOWN), st.integers(0, 1), IMAGES), min_size=1, max_size=4
)
NUM_STEPS = 10_000


class EngineMachine(RuleBasedStateMachine):
    """Drives an engine with small pools; `num_steps` counts steps over all examples."""

    num_steps = 0
    num_failures = 0
    num_preemptions = 0.0
    num_evicted = 0.0
    num_cached = 0.0
    num_split = 0
    num_swapped: ClassVar = [0.0, 0.0]

    @initialize(
        pool=st.sampled_from([60, 90, 150]),
        block_size=st.sampled_from([4, 1]),
        batched=st.sampled_from([6, 20, 100]),
        encoder=st.sampled_from([1, 40]),
        embeddings=st.sampled_from([0, 20, 60, 500]),
        vision=st.sampled_from([0, 5, 100]),
        prefix=st.booleans(),
        retain=st.booleans(),
        guess=st.lists(st.integers(0, 21), max_size=5),
        in_prompt=st.booleans(),
        vision_block=st.sampled_from([None, None, 30, 100]),
        vision_share=st.sampled_from([0.3, 0.6]),
        swap=st.sampled_from([100_000, 2_500, 0]),
        delay=st.sampled_from([None, None, 0, 2, 9]),
    )
    def start(
        self,
        pool: int,
        block_size: int,
        batched: int,
        encoder: int,
        embeddings: int,
        vision: int,
        prefix: bool,
        retain: bool,
        guess: list[int],
        in_prompt: bool,
        vision_block: int | None,
        vision_share: float,
        swap: int,
        delay: int | None,
    ) -> None:
        pool_bytes = (pool // block_size + 1) * 100
        self.engine = fake_engine(
            pool_tokens=pool,
            block_size=block_size,
            draft=lambda embeds: guess,
            draft_in_prompt=in_prompt,
            vision_block_bytes=vision_block,
            vision_kv_bytes=int(pool_bytes * vision_share),
            swap_bytes=swap,
            delay=delay,
            max_num_seqs=6,
            max_num_batched_tokens=batched,
            max_encoder_tokens=encoder,
            encoder_cache_bytes=embeddings * 8,
            vision_cache_bytes=vision * 100,
            enable_prefix_caching=prefix,
            enable_encoder_cache=retain,
        )
        self.in_prompt = in_prompt
        self.requests: dict[str, Request] = {}
        self.answers: dict[str, list[int]] = {}
        self.num_added = 0

    @rule(
        parts=PARTS,
        max_tokens=st.integers(1, 60),
        temperature=st.sampled_from([0.0, 0.8]),
        draft=st.sampled_from(["perfect", "shifted", "reversed", "none"]),
    )
    def add(self, parts: list, max_tokens: int, temperature: float, draft: str) -> None:
        self._add(parts, max_tokens, temperature, draft)

    @rule(count=st.integers(2, 5), max_tokens=st.integers(20, 60), image=st.sampled_from(KNOWN))
    def crowd(self, count: int, max_tokens: int, image: ImageInput) -> None:
        """Many that begin small, like questions about a page, and outgrow the pool together."""
        for number in range(count):
            self._add([image, number], max_tokens, 0.0, "none")

    def _add(self, parts: list, max_tokens: int, temperature: float, draft: str) -> None:
        self.num_added += 1
        name = f"r{self.num_added}"
        request = make_request(
            name, parts, max_tokens=max_tokens, temperature=temperature, seed=self.num_added
        )
        asked = completed(request) if self.in_prompt else request
        answer = tuple(expected_tokens(asked, seed=self.num_added))
        self.answers[name] = list(answer)
        guess = {"perfect": answer, "shifted": answer[2:], "reversed": answer[::-1], "none": ()}
        source = DraftSource(name="draft", token_ids=guess[draft])
        request = replace(request, drafts=(source,))
        try:
            self.engine.add_request(request)
        except RequestTooLargeError:
            return
        self.requests[name] = request

    @precondition(lambda self: self.requests)
    @rule(num=st.integers(1, 30))
    def run(self, num: int) -> None:
        for _ in range(num):
            self._step()

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), one_in_three=st.integers(0, 2))
    def abort(self, data: st.DataObject, one_in_three: int) -> None:
        if one_in_three:
            return
        name = data.draw(st.sampled_from(sorted(self.requests)))
        output = self.engine.abort_request(name)
        assert output is not None and output.finish_reason == "aborted"
        del self.requests[name]
        assert list(output.token_ids) == self.answers[name][: len(output.token_ids)]
        assert self.engine.abort_request(name) is None

    @precondition(lambda self: self.requests)
    @rule(one_in_four=st.integers(0, 3))
    def fail(self, one_in_four: int) -> None:
        if one_in_four:
            return
        runner_of(self.engine).fail = True
        with pytest.raises(OutOfMemory):
            self.engine.step()
        EngineMachine.num_failures += 1

    @invariant()
    def everything_is_accounted_for(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check_integrity()
            assert self.engine.has_unfinished() == bool(self.requests)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        limit = 50 + 6 * sum(
            r.sampling.max_tokens + len(r.prompt_token_ids) for r in self.requests.values()
        )
        for _ in range(limit):
            if not self.requests:
                break
            self._step()
        assert not self.requests, "the engine does not come to an end"
        stats = self.engine.stats()
        assert stats["blocks_used"] == 0
        EngineMachine.num_preemptions += stats["preemptions"]
        EngineMachine.num_evicted += stats["vision_blocks_evicted"]
        EngineMachine.num_cached += stats["cached_tokens"]
        for i, name in enumerate(("swapped_out", "swapped_back")):
            EngineMachine.num_swapped[i] += stats[name]
        self.engine._scheduler.swap.take()
        assert self.engine._scheduler.swap.num_bytes == 0
        if runner_of(self.engine).has_vision_pool:
            EngineMachine.num_split += 1

    def _step(self) -> None:
        EngineMachine.num_steps += 1
        for output in self.engine.step():
            self._take(output)
        self.engine.check_integrity()

    def _take(self, output: RequestOutput) -> None:
        if output.finished:
            del self.requests[output.request_id]
            assert list(output.token_ids) == self.answers[output.request_id]


def test_engine_survives_ten_thousand_random_steps() -> None:
    """Counts its own steps, and what came up in them: examples are drawn until it is enough."""
    EngineMachine.num_steps = 0
    rounds = 0
    while EngineMachine.num_steps < NUM_STEPS or rare():
        rounds += 1
        assert rounds < 20, rare()
        run_state_machine_as_test(
            EngineMachine,
            settings=settings(
                max_examples=60,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


def rare() -> list[str]:
    """What the steps so far have not tried often enough."""
    machine = EngineMachine
    swapped_out, swapped_back = machine.num_swapped
    enough = {
        "failures": machine.num_failures > 20,
        "preemptions": machine.num_preemptions > max(20, swapped_out),
        "evictions": machine.num_evicted > 20,
        "known prefixes": machine.num_cached > 100,
        "pools of two formats": machine.num_split > 20,
        "sequences moved out": swapped_out >= swapped_back,
        "sequences moved back": swapped_back > 5,
    }
    return [name for name, is_enough in enough.items() if not is_enough]
