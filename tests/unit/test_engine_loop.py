"""The engine's own surface: ids, streaming text, cancellation, shares of time, statistics."""

from dataclasses import replace

import pytest
from engine_fakes import expected_tokens, fake_engine, make_request, picture, runner_of

from vlmcli.engine.request import (
    DraftSource,
    PlaceholderRange,
    Request,
    RequestTooLargeError,
)
from vlmcli.errors import WillNotFitError


def test_text_grows_step_by_step_to_the_whole() -> None:
    engine = fake_engine(enable_drafts=False)
    request = make_request("r", [1, 2], max_tokens=15)
    engine.add_request(request)
    texts, lengths = [""], [0]
    while engine.has_unfinished():
        for output in engine.step():
            assert output.text.startswith(texts[-1])
            texts.append(output.text)
            lengths.append(len(output.token_ids))
    want = expected_tokens(request)
    assert lengths == list(range(len(want) + 1))
    assert texts[-1] == engine.decode(want)


def test_generate_answers_in_the_order_of_the_requests() -> None:
    requests = [make_request(f"{i}", [i, 1], max_tokens=20 - i) for i in range(10)]
    outputs = fake_engine().generate(requests)
    assert [output.request_id for output in outputs] == [r.request_id for r in requests]
    assert all(output.finished for output in outputs)


def test_a_lower_rank_is_older_whenever_it_comes() -> None:
    """One after the other, what is left of the first page goes before the second page."""
    engine = fake_engine(max_num_seqs=1, enable_drafts=False)
    for name, rank in (("first", 1), ("second", 2), ("third", 2), ("again", 1)):
        request = make_request(name, [len(name), 3], max_tokens=5)
        engine.add_request(replace(request, rank=rank))
    done = []
    while engine.has_unfinished():
        done += [output.request_id for output in engine.step() if output.finished]
    assert done == ["first", "again", "second", "third"]


def test_an_id_can_be_used_again_only_when_it_is_free() -> None:
    engine = fake_engine()
    engine.add_request(make_request("r", [1]))
    with pytest.raises(ValueError, match="in use"):
        engine.add_request(make_request("r", [2]))
    engine.abort_request("r")
    engine.generate([make_request("r", [2])])


def test_an_aborted_request_leaves_nothing_behind() -> None:
    engine = fake_engine(vision_cache_bytes=0)
    for i in range(6):
        engine.add_request(make_request(f"{i}", [1, picture(i, 2, 8), 2], max_tokens=30))
    for _ in range(4):
        engine.step()
    for i in range(6):
        output = engine.abort_request(f"{i}")
        assert output is not None and output.finish_reason == "aborted" and output.finished
        engine.check_integrity()
    stats = engine.stats()
    assert stats["blocks_used"] == stats["blocks_retained"] == 0
    assert not engine.has_unfinished() and engine.step() == []
    assert engine.abort_request("0") is None


def test_generate_leaves_nothing_behind_when_a_request_is_refused() -> None:
    engine = fake_engine(pool_tokens=40)
    with pytest.raises(RequestTooLargeError):
        engine.generate([make_request("a", [1]), make_request("b", [1] * 100)])
    assert not engine.has_unfinished()


def test_a_pool_without_room_for_a_block_is_refused() -> None:
    with pytest.raises(WillNotFitError):
        fake_engine(kv_cache_bytes=150)


def test_shares_of_time_are_booked_on_every_stage() -> None:
    engine = fake_engine(enable_drafts=False)
    (output,) = engine.generate([make_request("r", [1, picture(0, 2, 6), 2], max_tokens=9)])
    seconds = output.seconds
    assert seconds.encode > 0 and seconds.prefill > 0 and seconds.decode > 0


def test_log_probabilities_are_left_out_on_request() -> None:
    requests = [make_request("a", [1, 2], logprobs=False), make_request("b", [1, 2])]
    without, with_them = fake_engine().generate(requests)
    assert without.logprobs == () and len(with_them.logprobs) == len(with_them.token_ids)
    assert without.token_ids == with_them.token_ids


def test_the_draft_head_reads_every_image_and_saves_passes() -> None:
    request = make_request("r", [1, picture(0, 2, 6), 2], max_tokens=40, stop_token_ids=(99,))
    answer = expected_tokens(request)
    plain = fake_engine(enable_drafts=False)
    drafted = fake_engine(draft=lambda embeds: answer, max_draft_tokens=64)
    assert plain.generate([request])[0].token_ids == drafted.generate([request])[0].token_ids
    assert runner_of(plain).num_passes == 40
    assert runner_of(drafted).num_passes <= 4


def test_statistics_add_up_over_requests_and_name_the_sources() -> None:
    plain = [make_request(f"{i}", [1, i, 3, 4, 5], max_tokens=20) for i in range(4)]
    requests = [
        replace(r, drafts=(DraftSource(name="layer", token_ids=tuple(expected_tokens(r)[:-1])),))
        for r in plain
    ]
    engine = fake_engine()
    outputs = engine.generate(requests)
    stats = engine.stats()
    assert stats["requests_finished"] == 4 and stats["prompt_tokens"] == 20
    assert stats["output_tokens"] == sum(len(o.token_ids) for o in outputs)
    assert stats["drafts.layer.right"] == sum(o.num_accepted for o in outputs) > 20
    assert stats["drafts.layer.drafted"] >= stats["drafts.layer.accepted"] > 20
    assert stats["drafts.layer.accepted"] == stats["accepted_tokens"]
    assert sum(o.num_cached_tokens for o in outputs) == stats["cached_tokens"]


def test_a_wrong_number_of_visual_tokens_is_an_error_that_names_both() -> None:
    engine = fake_engine()
    request = make_request("r", [picture(0, 2, 3), 1])
    place = PlaceholderRange(offset=0, length=5, grid=(1, 1, 5))
    engine.add_request(replace(request, placeholders=(place,)))
    with pytest.raises(ValueError, match="6 visual tokens, its placeholder 5"):
        engine.step()
    engine.abort_request("r")
    engine.check_integrity()


def test_agreement_counts_do_not_depend_on_the_batch() -> None:
    def request(code: int) -> Request:
        plain = make_request(f"{code}", [1, code, 3], max_tokens=30, stop_token_ids=(99,))
        guess = expected_tokens(plain)
        guess[10] = (guess[10] + 1) % 20
        return replace(plain, drafts=(DraftSource(name="layer", token_ids=tuple(guess)),))

    requests = [request(i) for i in range(6)]
    alone = [fake_engine().generate([request])[0] for request in requests]
    together = fake_engine(max_num_batched_tokens=12).generate(requests)
    for one, other in zip(alone, together, strict=True):
        assert one.agreement == other.agreement
        assert (one.num_drafted, one.num_accepted) == (other.num_drafted, other.num_accepted)
        assert one.num_accepted >= 25
