"""Images encoded beside decoding: the same answers, work meanwhile, no more than has room."""

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

from vlmcli.engine.encoder_cache import EncoderCache


def pages(count, tokens=20):
    """Requests that show an image of 32 tokens each, all unlike."""
    return [
        make_request(f"r{i}", [picture(i, 4, 8), 1], max_tokens=tokens, stop_token_ids=(23,))
        for i in range(count)
    ]


def run(engine, requests):
    """Answers by request, and for every step what was encoded and computed by its end."""
    for request in requests:
        engine.add_request(request)
    answers, history = {}, []
    while engine.has_unfinished():
        for output in engine.step():
            answers[output.request_id] = list(output.token_ids)
        engine.check_integrity()
        runner = runner_of(engine)
        history.append((len(runner.encoded), runner.num_passes))
    return answers, history


@pytest.mark.parametrize("delay", [None, 0, 1, 4, 50])
@pytest.mark.parametrize("seats", [1, 3])
def test_answers_do_not_depend_on_when_images_are_there(delay, seats):
    requests = pages(6)
    answers, _ = run(fake_engine(delay=delay, max_num_seqs=seats), requests)
    assert answers == {one.request_id: expected_tokens(one) for one in requests}


def test_sequences_decode_while_an_image_is_on_its_way():
    engine = fake_engine(delay=5, max_num_seqs=1)
    _, history = run(engine, pages(2, tokens=12))
    second = next(i for i, (encoded, _) in enumerate(history) if encoded == 2)
    assert history[second + 4][1] > history[second][1], "passes of the decoder in between"


def test_an_image_is_encoded_for_a_seat_that_is_not_free_yet():
    """Beside the decoder that costs it nothing; instead of it, the step would be lost."""
    encoded = {}
    for delay in (None, 1):
        engine = fake_engine(delay=delay, max_num_seqs=1, max_encoder_tokens=32)
        for request in pages(3):
            engine.add_request(request)
        for _ in range(8):
            engine.step()
        assert engine.stats()["requests_finished"] == 0
        encoded[delay] = len(runner_of(engine).encoded)
    assert encoded[None] == 1 < encoded[1]


@pytest.mark.parametrize(("room", "ahead"), [(32, 1), (64, 2), (96, 3), (1000, 6)])
def test_how_far_ahead_is_bounded_by_the_bytes_of_the_cache(room, ahead):
    """Room of embeddings in flight counts as taken; the first image is let go once it is used."""
    engine = fake_engine(
        delay=0, max_num_seqs=1, max_encoder_tokens=32, encoder_cache_bytes=room * EMBEDDING_BYTES
    )
    for request in pages(6, tokens=40):
        engine.add_request(request)
    engine.step()
    while len(runner_of(engine).encoded) < ahead:
        engine.step()
        engine.check_integrity()
    for _ in range(5):
        engine.step()
        engine.check_integrity()
    assert engine.stats()["requests_finished"] == 0
    assert len(runner_of(engine).encoded) <= ahead + 1


def test_a_batch_that_fails_on_its_way_is_encoded_again():
    engine = fake_engine(delay=2)
    (request,) = pages(1)
    engine.add_request(request)
    engine.step()
    runner_of(engine).fail = True
    with pytest.raises(OutOfMemory):
        engine.step()
    engine.check_integrity()
    answers, _ = run(engine, [])
    assert answers == {"r0": expected_tokens(request)}
    assert len(runner_of(engine).encoded) == 2


def test_nobody_is_left_to_want_an_image_that_comes():
    engine = fake_engine(delay=3)
    first, second = pages(2)
    engine.add_request(first)
    engine.step()
    engine.abort_request("r0")
    assert not engine.has_unfinished() and engine.step() == []
    engine.check_integrity()
    answers, _ = run(engine, [second])
    assert answers == {"r1": expected_tokens(second)}


def test_who_comes_later_uses_what_is_on_its_way():
    engine = fake_engine(delay=4)
    first = pages(1)[0]
    later = make_request("later", [picture(0, 4, 8), 0], max_tokens=9)
    engine.add_request(first)
    engine.step()
    answers, _ = run(engine, [later])
    assert answers["later"] == expected_tokens(later)
    assert len(runner_of(engine).encoded) == 1


def test_room_is_kept_for_what_is_expected():
    cache: EncoderCache[str] = EncoderCache(100)
    cache.put(b"a", "a", 40, ["r"])
    cache.unpin(b"a", "r")
    cache.make_room(70)
    cache.expect(b"b", 70)
    assert b"a" not in cache and cache.is_expecting
    assert cache.has_room(30) and not cache.has_room(31) and not cache.has_room(500)
    cache.put(b"c", "c", 30, ["r"])
    cache.check_integrity()
    cache.put(b"b", "b", 70, ["r"])
    assert not cache.is_expecting
    cache.check_integrity()
    cache.unpin(b"b", "r")
    cache.make_room(60)
    cache.expect(b"d", 60)
    cache.give_up(b"d")
    assert cache.has_room(70) and not cache.is_expecting
    cache.check_integrity()
