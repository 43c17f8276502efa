"""Sampling: right distribution, and a row is drawn the same alone and among others."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.engine.sampler import sample, uniform


def arrays(rows: int, temperature: float, top_p: float) -> tuple[np.ndarray, np.ndarray]:
    return np.full(rows, temperature, np.float32), np.full(rows, top_p, np.float32)


def test_uniform_numbers_are_spread_evenly_and_do_not_repeat() -> None:
    seeds = np.repeat(np.arange(100, dtype=np.uint64), 100)
    steps = np.tile(np.arange(100, dtype=np.uint64), 100)
    numbers = uniform(seeds, steps)
    assert len(set(numbers.tolist())) == 10_000
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert abs(counts - 500).max() < 120
    neighbours = np.corrcoef(numbers[:-1], numbers[1:])[0, 1]
    assert abs(neighbours) < 0.04


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_tempered_distribution(temperature: float) -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    n = 20_000
    numbers = uniform(np.full(n, 7, np.uint64), np.arange(n, dtype=np.uint64))
    tokens, _ = sample(logits.expand(n, 4), *arrays(n, temperature, 1.0), numbers, logprobs=False)
    want = torch.softmax(logits / temperature, dim=0).numpy()
    assert np.abs(np.bincount(tokens, minlength=4) / n - want).max() < 0.015


def test_top_p_keeps_the_smallest_sufficient_set() -> None:
    logits = torch.log(torch.tensor([0.05, 0.5, 0.3, 0.15]))
    n = 2000
    numbers = (np.arange(n) + 0.5) / n
    for top_p, kept in [(0.4, {1}), (0.6, {1, 2}), (0.9, {1, 2, 3}), (1.0, {0, 1, 2, 3})]:
        tokens, _ = sample(logits.expand(n, 4), *arrays(n, 1.0, top_p), numbers, logprobs=False)
        assert set(tokens.tolist()) == kept


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(0, 5))
def test_a_row_is_drawn_alike_alone_and_in_a_batch(seed: int, rows: int, which: int) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(rows, 11)).astype(np.float32))
    temperatures = rng.choice([0.0, 0.7, 1.3], rows).astype(np.float32)
    top_ps = rng.choice([0.3, 0.9, 1.0], rows).astype(np.float32)
    numbers = rng.random(rows)
    tokens, logprobs = sample(logits, temperatures, top_ps, numbers, logprobs=True)
    i = slice(which % rows, which % rows + 1)
    alone, logprob = sample(logits[i], temperatures[i], top_ps[i], numbers[i], logprobs=True)
    assert tokens[i] == alone
    assert logprobs is not None and logprob is not None
    want = torch.log_softmax(logits[i], dim=-1)[0, int(alone[0])]
    np.testing.assert_allclose([logprobs[i][0], logprob[0]], want, rtol=1e-5, atol=1e-6)


def test_greedy_rows_ignore_their_random_numbers() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    for number in (0.0, 0.5, 0.999999):
        tokens, _ = sample(logits, *arrays(1, 0.0, 0.1), np.array([number]), logprobs=False)
        assert tokens.tolist() == [1]


def test_numbers_near_one_still_choose_a_possible_token() -> None:
    logits = torch.tensor([[0.0, 0.0, -80.0]])
    number = np.array([1 - 2.0**-53])
    tokens, _ = sample(logits, *arrays(1, 1.0, 1.0), number, logprobs=False)
    assert tokens[0] in (0, 1)
