"""Bucketed decode steps: the same logits as without buckets, whatever the padding touches."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_checkpoints import (
    Chunk,
    load_runner,
    make_batch,
    make_prompt,
    random_picture,
    write_checkpoint,
)

from vlmcli.engine.buckets import MAX_ROWS, Bucket, find_bucket, make_buckets
from vlmcli.engine.capture import EagerCapturer
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.graph import GraphRunner

BUCKETS = (1, 2, 4, 8)
BLOCK_SIZE = 4


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("graph"), "merge2_patch14")


def prefilled(path, *, enable_graphs=True):
    """A runner whose pool holds eight sequences of unlike length, and their next decode step."""
    runner = load_runner(
        path,
        num_blocks=48,
        block_size=BLOCK_SIZE,
        decode_buckets=BUCKETS,
        verify_widths=(4, 8),
        enable_graphs=enable_graphs,
    )
    rng = np.random.default_rng(1)
    prompts = [make_prompt(runner, rng.integers(0, 90, 2 + 2 * i).tolist()) for i in range(8)]
    blocks = [tuple(range(1 + 5 * i, 6 + 5 * i)) for i in range(8)]
    pairs = list(zip(prompts, blocks, strict=True))
    runner.execute(make_batch(runner, [Chunk(p, 0, len(p.ids) - 1, b) for p, b in pairs]))
    steps = [Chunk(p, len(p.ids) - 1, len(p.ids), b) for p, b in pairs]
    return runner, steps


def chunk_of(step, num_rows):
    """The last rows of a sequence, as a drafted step has them."""
    return replace(step, start=step.end - num_rows)


@pytest.mark.parametrize("num_seqs", range(1, 9))
def test_buckets_change_nothing(path, num_seqs):
    bucketed, steps = prefilled(path)
    plain, _ = prefilled(path, enable_graphs=False)
    assert plain.graphs is None
    for cache in (bucketed.cache.keys, bucketed.cache.values):
        cache[:, 0] = float("nan")
    batch = make_batch(bucketed, steps[:num_seqs])
    ours = bucketed.execute(batch)
    torch.testing.assert_close(ours, plain.execute(batch), atol=1e-5, rtol=1e-5)
    assert bucketed.cache.keys[:, 0].isnan().all(), "padding wrote to the null block"
    torch.testing.assert_close(bucketed.cache.keys[:, 1:], plain.cache.keys[:, 1:])


def test_padding_rows_come_out_zero_before_they_are_dropped(path):
    """Attention of a padding row is zero, not whatever lies in the null block."""
    runner, steps = prefilled(path)
    runner.cache.values[:, 0] = float("nan")
    seen = []
    attention = runner.ops.paged_attention

    class Spy:
        def __getattr__(self, name):
            return getattr(runner.ops, name)

        def paged_attention(self, *arguments):
            seen.append(attention(*arguments))
            return seen[-1]

    for layer in runner.model.model.layers:
        layer.self_attn.ops = Spy()
    runner.execute(make_batch(runner, steps[:3]))
    assert len(seen) == len(runner.model.model.layers)
    assert all(out.shape[0] == 4 and not out[3].any() for out in seen)


def test_off_by_default_on_the_cpu(path):
    assert load_runner(path).graphs is None


def test_only_steps_that_want_every_row_take_buckets(path, monkeypatch):
    runner, steps = prefilled(path)
    taken = []
    run = runner.graphs.run
    monkeypatch.setattr(
        runner.graphs, "run", lambda batch: taken.append(len(batch.input_ids)) or run(batch)
    )
    runner.execute(make_batch(runner, steps[:5]))
    drafted = make_batch(runner, [chunk_of(steps[3], 4), *steps[:2]])
    runner.execute(drafted)
    runner.execute(replace(drafted, logit_rows=drafted.logit_rows[3:]))
    runner.execute(make_batch(runner, [chunk_of(steps[7], 9)]))
    picture = make_prompt(runner, [random_picture(np.random.default_rng(0), 28, 28, grey=True)])
    runner.execute(make_batch(runner, [Chunk(picture, 0, 3, steps[0].blocks)]))
    assert taken == [5, 6]


def test_more_sequences_than_the_largest_bucket(path):
    runner, steps = prefilled(path)
    assert runner.graphs.bucket_for(9) is None
    nine = [*steps, steps[0]]
    logits = runner.execute(make_batch(runner, nine))
    torch.testing.assert_close(logits[8], logits[0])


@pytest.mark.parametrize("widths", [(2, 1, 1), (4, 1, 2), (8,), (1, 6, 8, 3, 5)])
def test_rows_to_verify_in_buckets_change_nothing(path, widths):
    """Sequences with unlike numbers of rows, each padded in front, after a larger batch."""
    bucketed, steps = prefilled(path)
    plain, _ = prefilled(path, enable_graphs=False)
    for cache in (bucketed.cache.keys, bucketed.cache.values):
        cache[:, 0] = float("nan")
    bucketed.execute(make_batch(bucketed, steps))
    chunks = [chunk_of(step, rows) for step, rows in zip(steps[3:], widths, strict=False)]
    batch = make_batch(bucketed, chunks)
    assert bucketed.graphs.takes(batch)
    ours = bucketed.execute(batch)
    torch.testing.assert_close(ours, plain.execute(batch), atol=1e-5, rtol=1e-5)
    assert bucketed.cache.keys[:, 0].isnan().all(), "padding wrote to the null block"
    plain.execute(make_batch(plain, steps))
    torch.testing.assert_close(bucketed.cache.keys[:, 1:], plain.cache.keys[:, 1:])


def test_what_was_returned_stays_when_the_graph_runs_again(path):
    runner, steps = prefilled(path)
    first = runner.execute(make_batch(runner, steps[:3]))
    kept = first.clone()
    runner.execute(make_batch(runner, steps[4:7]))
    assert torch.equal(first, kept)


def test_poison_in_what_earlier_batches_left_behind_reaches_nobody(path):
    """Everything in the static inputs and in blocks of others that a batch does not set itself."""
    runner, steps = prefilled(path)
    expected = runner.execute(make_batch(runner, steps[:3]))
    runner.execute(make_batch(runner, steps))
    inputs = runner.graphs.inputs
    inputs.block_tables.fill_(47)
    inputs.input_ids.fill_(96)
    inputs.positions.fill_(400)
    for cache in (runner.cache.keys, runner.cache.values):
        cache[:, [0, *range(16, 48)]] = float("nan")
    assert torch.equal(runner.execute(make_batch(runner, steps[:3])), expected)


class Scarce(EagerCapturer):
    """From `fails_at` rows on nothing can be captured; the last graph takes 1,000 bytes a row."""

    def __init__(self, fails_at):
        self.fails_at, self.sizes, self.warm = fails_at, [], []

    def capture(self, step, *, warm_up):
        bucket = step.args[0]
        self.warm.append(warm_up)
        if bucket.num_rows >= self.fails_at:
            raise torch.OutOfMemoryError("none left")
        self.sizes.append(bucket)
        return super().capture(step, warm_up=warm_up)

    def num_bytes(self):
        return 1000 * self.sizes[-1].num_rows


def scarce_runner(path, fails_at, max_bytes):
    runner = load_runner(path, num_blocks=48, block_size=BLOCK_SIZE)
    capturer = Scarce(fails_at)
    graphs = GraphRunner(
        runner.model, runner.ops, capturer, make_buckets(BUCKETS, (4,), 8), 40, runner.device
    )
    graphs.capture(runner.cache, max_bytes)
    return graphs, capturer


def test_graphs_are_captured_largest_first_and_dropped_where_they_do_not_fit(path, caplog):
    with caplog.at_level(logging.WARNING):
        graphs, capturer = scarce_runner(path, fails_at=32, max_bytes=8500)
    rows = [bucket.num_rows for bucket in capturer.sizes]
    assert rows == sorted(rows, reverse=True) and max(rows) == 16
    assert graphs.buckets == tuple(b for b in make_buckets(BUCKETS, (4,), 8) if b.num_rows <= 8)
    assert [record.args[0] for record in caplog.records] == [Bucket(4, 8), Bucket(4, 4)]
    before = graphs.buckets
    cache = load_runner(path, num_blocks=48, block_size=BLOCK_SIZE).cache
    graphs.capture(cache, again=True)
    assert graphs.buckets == before
    assert not any(capturer.warm[-len(before) :]) and all(capturer.warm[: -len(before)])


def test_without_any_graph_steps_run_as_without_graphs(path):
    graphs, _ = scarce_runner(path, fails_at=1, max_bytes=None)
    assert graphs.buckets == () and graphs.bucket_for(1) is None


@given(
    st.sets(st.integers(1, 300), min_size=1, max_size=8),
    st.sets(st.integers(2, 64), max_size=3),
    st.integers(1, 400),
    st.integers(1, 400),
    st.integers(1, 80),
)
def test_a_batch_takes_the_smallest_bucket_that_holds_it(sizes, widths, most, num_seqs, num_query):
    buckets = make_buckets(sorted(sizes), sorted(widths), most)
    plain = {b.num_seqs for b in buckets if b.num_query == 1}
    assert plain <= sizes and all(size in plain for size in sizes if size <= most)
    assert sum(size >= most for size in plain) == any(size >= most for size in sizes)
    assert all(b.num_rows <= MAX_ROWS for b in buckets if b.num_query > 1)
    rows = [b.num_rows for b in buckets]
    assert rows == sorted(rows) and len(set(buckets)) == len(buckets)
    found = find_bucket(buckets, num_seqs, num_query)
    fitting = [b for b in buckets if b.num_seqs >= num_seqs and b.num_query >= num_query]
    assert (found is None) == (not fitting)
    if found is not None:
        assert found in fitting and found.num_rows == min(b.num_rows for b in fitting)


@pytest.mark.parametrize("name", ["decode_buckets", "verify_widths"])
def test_sizes_that_do_not_ascend_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must ascend"):
        EngineConfig(**{name: (2, 1)})
