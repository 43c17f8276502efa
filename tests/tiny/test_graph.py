"""Bucketed decode steps: the same logits as without buckets, whatever the padding touches."""

import numpy as np
import pytest
import torch
from tiny_checkpoints import Chunk, load_runner, make_batch, make_prompt, write_checkpoint

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
        enable_graphs=enable_graphs,
    )
    rng = np.random.default_rng(1)
    prompts = [make_prompt(runner, rng.integers(0, 90, 2 + 2 * i).tolist()) for i in range(8)]
    blocks = [tuple(range(1 + 5 * i, 6 + 5 * i)) for i in range(8)]
    pairs = list(zip(prompts, blocks, strict=True))
    runner.execute(make_batch(runner, [Chunk(p, 0, len(p.ids) - 1, b) for p, b in pairs]))
    steps = [Chunk(p, len(p.ids) - 1, len(p.ids), b) for p, b in pairs]
    return runner, steps


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


def test_only_plain_decode_steps_take_buckets(path, monkeypatch):
    runner, steps = prefilled(path)
    sizes = []
    run = runner.graphs.run
    monkeypatch.setattr(
        runner.graphs, "run", lambda batch: sizes.append(len(batch.input_ids)) or run(batch)
    )
    runner.execute(make_batch(runner, steps[:5]))
    first = Chunk(steps[0].prompt, 0, 2, steps[0].blocks)
    runner.execute(make_batch(runner, [first, *steps[1:3]]))
    assert sizes == [5]


def test_more_sequences_than_the_largest_bucket(path):
    runner, steps = prefilled(path)
    assert runner.graphs.bucket_for(9) is None
    nine = [*steps, steps[0]]
    logits = runner.execute(make_batch(runner, nine))
    torch.testing.assert_close(logits[8], logits[0])
