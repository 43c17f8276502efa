"""Draft sources: they follow the output through any difference, and useless ones fall silent."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.engine.alignment import SuffixIndex, align_nearby
from vlmcli.engine.drafts import AcceptanceRates, Drafter, best_length
from vlmcli.engine.request import DraftSource

STOP = 999
TEXT = (
    "The quick brown fox jumps over the lazy dog while seventeen grey geese watch from the far "
    "bank of the river, and nobody says a word until the sun has gone down behind the old mill."
)


def ids(text: str) -> list[int]:
    return [ord(char) for char in text]


def simulate(
    drafter: Drafter, answer: list[int], *, limit: int = 64, overhead: float = 1000.0
) -> tuple[int, int]:
    """Generate `answer` with the drafter's help; returns steps and drafted tokens."""
    done, steps, drafted = 0, 0, 0
    output = np.array(answer)
    while done < len(answer):
        room = len(answer) - done - 1
        draft = drafter.propose(min(limit, room), overhead) if room else None
        tokens = draft.token_ids if draft else []
        num_accepted = next((i for i, t in enumerate(tokens) if t != answer[done + i]), len(tokens))
        done += num_accepted + 1
        drafted += len(tokens)
        steps += 1
        if draft:
            drafter.observe(draft, num_accepted, output[:done], num_accepted + 1)
    return steps, drafted


def drafter_for(text: str, *, weight: float = 0.9) -> Drafter:
    source = DraftSource(name="source", token_ids=tuple(ids(text)), weight=weight)
    return Drafter([source], stop_token_id=STOP, own_output=False)


def test_a_perfect_draft_that_fits_costs_one_step_end_included() -> None:
    steps, drafted = simulate(drafter_for(TEXT[:60], weight=1.0), [*ids(TEXT[:60]), STOP])
    assert (steps, drafted) == (1, 60)


def test_a_perfect_long_draft_is_followed_to_the_end() -> None:
    answer = [*ids(TEXT * 3), STOP]
    steps, _ = simulate(drafter_for(TEXT * 3), answer)
    assert len(answer) / steps > 40


def damaged(text: str, kind: str, every: int) -> str:
    out = []
    for i, char in enumerate(text):
        if i % every != every // 2:
            out.append(char)
        elif kind == "replaced":
            out.append("#")
        elif kind == "doubled":
            out.append(char * 2)
        elif kind == "inserted":
            out.append(char + "#")
    return "".join(out)


@pytest.mark.parametrize("kind", ["replaced", "dropped", "doubled", "inserted"])
def test_one_difference_costs_about_one_step(kind: str) -> None:
    """Two where the draft lacks a token: the first looks like a replacement."""
    noisy = damaged(TEXT, kind, 15)
    num_errors = len(TEXT) // 15
    steps, _ = simulate(drafter_for(noisy, weight=0.99), [*ids(TEXT), STOP])
    assert steps <= (2 if kind == "dropped" else 1) * num_errors + 3


@pytest.mark.parametrize("shift", [20, 60, 120])
def test_a_missing_or_surplus_passage_is_jumped_over(shift: int) -> None:
    """What the draft lacks must be decoded; what it has too much costs a few steps."""
    for draft, answer, num_new in (
        (TEXT[shift:], TEXT, shift),
        ("x" * shift + TEXT, TEXT, 0),
        (TEXT, TEXT[shift:], 0),
    ):
        steps, _ = simulate(drafter_for(draft), [*ids(answer), STOP])
        assert steps <= num_new + 12


def test_an_unrelated_source_falls_silent() -> None:
    rng = random.Random(0)
    draft = "".join(rng.choice("abcdefgh") for _ in range(400))
    answer = [rng.randrange(300, 400) for _ in range(400)]
    steps, drafted = simulate(drafter_for(draft), answer, overhead=4)
    assert steps == 400 and drafted < 60


def test_a_source_that_turns_useful_late_is_found_again() -> None:
    rng = random.Random(1)
    answer = [rng.randrange(300, 400) for _ in range(60)] + ids(TEXT * 2)
    steps, _ = simulate(drafter_for(TEXT * 2), answer)
    assert steps < 60 + len(TEXT)


def test_the_better_source_is_used() -> None:
    rng = random.Random(2)
    noise = tuple(rng.randrange(300, 400) for _ in range(200))
    drafter = Drafter(
        [
            DraftSource(name="bad", token_ids=noise, weight=0.9),
            DraftSource(name="good", token_ids=tuple(ids(TEXT)), weight=0.8),
        ],
        own_output=False,
    )
    steps, _ = simulate(drafter, ids(TEXT))
    assert steps < 20
    guessed, right = drafter.agreement()["good"]
    assert right == guessed == len(TEXT)


def test_repeating_output_drafts_itself() -> None:
    row = ids("| 12.50 | total |\n")
    drafter = Drafter()
    steps, _ = simulate(drafter, row * 20)
    assert steps < 40
    assert drafter.counts()["ngram"][1] > 300


def test_sources_without_tokens_and_a_zero_weight_propose_nothing() -> None:
    assert not Drafter([DraftSource(name="empty", token_ids=())]).propose(10, 100).token_ids
    assert not drafter_for(TEXT, weight=0.0).propose(10, 100).token_ids


TOKENS = st.lists(st.integers(0, 3), max_size=30)


@given(TOKENS.filter(len), TOKENS, TOKENS, st.data())
def test_what_a_source_knows_depends_on_the_output_alone(
    answer: list[int], one: list[int], two: list[int], data: st.DataObject
) -> None:
    """However the output is cut into steps, agreement and the next proposal are the same."""
    sources = [DraftSource(name=str(i), token_ids=tuple(t)) for i, t in enumerate((one, two))]
    whole, cut = Drafter(sources, stop_token_id=9), Drafter(sources, stop_token_id=9)
    output = np.array(answer)
    done = 0
    while done < len(answer):
        num_new = data.draw(st.integers(1, len(answer) - done))
        done += num_new
        cut.observe(cut.propose(0, 0.0), 0, output[:done], num_new)
    for n in range(1, len(answer) + 1):
        whole.observe(whole.propose(0, 0.0), 0, output[:n], 1)
    assert whole.agreement() == cut.agreement()
    assert whole.propose(8, 100.0) == cut.propose(8, 100.0)


def test_rates_learnt_in_one_sequence_set_the_reach_of_the_next() -> None:
    rates = AcceptanceRates()

    def first_length() -> int:
        source = DraftSource(name="s", token_ids=tuple(ids(TEXT)), weight=0.5)
        return len(Drafter([source], rates=rates).propose(200, 50.0).token_ids)

    before = first_length()
    rates.record("s", right=900, wrong=3)
    after = first_length()
    rates.record("s", right=0, wrong=5000)
    assert first_length() < before < after


@given(st.floats(0, 0.99), st.floats(0, 200))
def test_best_length_yields_most_tokens_per_row(rate: float, overhead: float) -> None:
    rate, overhead = round(rate * 200) / 200, round(overhead * 4) / 4

    def yield_of(length: int) -> float:
        return sum(rate**i for i in range(length + 1)) / (overhead + 1 + length)

    best = best_length(rate, overhead)
    assert yield_of(best) >= max(yield_of(length) for length in range(best + 50)) * (1 - 1e-9)


def test_best_length_grows_with_rate_and_overhead() -> None:
    assert best_length(0.0, 100) == 0 == best_length(0.9, 0)
    assert best_length(0.5, 50) < best_length(0.9, 50) < best_length(0.99, 50)
    assert best_length(0.9, 1) < best_length(0.9, 10) < best_length(0.9, 100)


def test_alignment_places() -> None:
    text = np.array(ids("the letter was long"))
    for output, place in [
        ("the letter", 10),
        ("the leter", 10),
        ("the lettter", 10),
        ("the le#", 7),
    ]:
        aligned, distance = align_nearby(text, np.array(ids(output)), len(output))
        assert aligned == place and distance == (output != "the letter")


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=12))
def test_suffix_index_finds_a_longest_match(text: list[int], tail: list[int]) -> None:
    index = SuffixIndex(2)
    index.extend(text[: len(text) // 2])
    index.extend(text)
    found = index.find(text, tail, 0)

    def common(place: int) -> int:
        n = 0
        while n < min(place, len(tail)) and text[place - 1 - n] == tail[-1 - n]:
            n += 1
        return n

    longest = max((common(place) for place in range(len(text))), default=0)
    assert (found is None) == (longest < 2)
    assert found is None or (found < len(text) and common(found) == longest)
