"""Changes to a draft stand or fall by what the draft head says of the picture."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmcli.answering import Answer
from vlmcli.engine import images
from vlmcli.engine.correction import Steps, Weighed, respelled, split_steps, weighed
from vlmcli.engine.images import Drafted
from vlmcli.memory import estimate
from vlmcli.readers import lines
from vlmcli.readers.looks import witnessed
from vlmcli.results import Seconds, TokenCounts

BLANK, VOCABULARY = 260, 264


def steps_of(logits: torch.Tensor) -> Steps:
    """Of one picture."""
    return split_steps(logits, [len(logits)])[0]


def certain(spelling: str, *, doubts: dict[int, tuple[str, float]] | None = None) -> Steps:
    """Steps of a head that spells these letters, a blank behind each; `doubts` says of the letter
    at an index which other one it could be, and how likely that is.
    """
    logits = torch.full((2 * len(spelling), VOCABULARY), -20.0)
    for index, letter in enumerate(spelling):
        other, share = (doubts or {}).get(index, (letter, 0.0))
        logits[2 * index, ord(other)] = math.log(max(share, 1e-9))
        logits[2 * index, ord(letter)] = math.log(1 - share)
        logits[2 * index + 1, BLANK] = 0.0
    return steps_of(logits)


def corrected(text: str, draft: str, steps: Steps) -> str:
    return weighed(text, draft, [steps]).text


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("the cat cat sat", "the cat sat"),
        ("the ct sat", "the cat sat"),
        ("the hat sat", "the cat sat"),
        ("", "the cat sat"),
        ("the cat sat" * 9, "the cat sat"),
    ],
)
def test_what_the_head_cannot_believe_is_undone(text, right):
    assert corrected(text, "the cat sat", certain("the cat sat")) == right


def test_of_two_changes_each_is_judged_by_itself():
    steps = certain("the cat sat", doubts={4: ("h", 0.1)})
    assert corrected("the hat at", "the cat sat", steps) == "the hat sat"


@given(st.floats(0.0, 0.4))
def test_a_letter_that_the_head_is_unsure_of_is_the_decoders_to_choose(share):
    steps = certain("form", doubts={0: ("d", share)})
    is_likely = share > math.exp(-4.5)
    is_unlikely = share < math.exp(-5.5)
    read = corrected("dorm", "form", steps)
    assert read == "dorm" if is_likely else read in ("form", "dorm")
    assert not is_unlikely or read == "form"


@given(st.floats(0.0, 0.4), st.integers(1, 3))
def test_a_word_that_is_suggested_needs_a_picture_that_nearly_says_it(share, count):
    """A factor of e ** 3.5 a view, whatever the rest of the line looks like."""
    steps = certain("in the darkmess of", doubts={11: ("n", share)})
    read = respelled("in the darkmess of", [(7, 15, "darkness")], [steps] * count)
    cost = math.log(1 - share) - math.log(max(share, 1e-9))
    assert not cost < 3.3 or read.text == "in the darkness of"
    assert not cost > 3.7 or read.text == "in the darkmess of"
    assert respelled(read.text, [], [steps]).likelihood == pytest.approx(read.likelihood, abs=1e-4)


def test_of_suggestions_for_one_word_the_likeliest_counts_and_each_word_has_its_own():
    steps = certain("form anb lisl", doubts={0: ("w", 0.3), 7: ("d", 0.4), 12: ("t", 0.3)})
    changes = [(0, 4, "worm"), (0, 4, "foam"), (5, 8, "and"), (5, 8, "ant"), (9, 13, "list")]
    assert respelled("form anb lisl", changes, [steps]).text == "worm and list"
    assert respelled("form anb lisl", changes[1:2], [steps]).text == "form anb lisl"


def test_letters_of_several_bytes_are_never_torn():
    logits = torch.full((8, VOCABULARY), -20.0)
    for step, byte in zip((0, 2, 3, 5), "né!".encode(), strict=True):
        logits[step, byte] = 0.0
    logits[[1, 4, 6, 7], BLANK] = 0.0
    assert corrected("nè!", "né!", steps_of(logits)) == "né!"
    assert corrected("né!", b"n\xc3!".decode(errors="replace"), steps_of(logits)) == "né!"


def test_what_is_kept_of_a_line_is_what_a_plan_counts():
    columns, count = 32, 1000

    def keep() -> Drafted:
        (steps,) = split_steps(torch.randn(12 * columns, VOCABULARY), [12 * columns])
        return Drafted(bytes(3 * columns), steps)

    # What the libraries do once is no line's.
    keep()
    tracemalloc.start()
    drafted = {number.to_bytes(32): keep() for number in range(count)}
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(drafted) == count
    assert 0.8 < kept / count / estimate.DRAFT_KNOWN_BYTES <= 1
    assert images._MAX_DRAFTS == estimate.MOST_DRAFTS_KNOWN
    assert lines._KNOWN_CROPS == estimate.MOST_CROPS_KNOWN


LETTERS = st.text("ab ", max_size=7)


@settings(max_examples=60)
@given(LETTERS, LETTERS, st.integers(1, 20), st.integers(0, 999))
def test_nothing_comes_in_that_neither_has_read(text, draft, count, seed):
    generator = torch.Generator().manual_seed(seed)
    steps = steps_of(4 * torch.randn(count, VOCABULARY, generator=generator))
    read = corrected(text, draft, steps)
    assert len(read) <= len(text) + len(draft)
    assert set(read) <= set(text) | set(draft)
    assert corrected(text, text, steps) == text


def collapsed(path: tuple[int, ...]) -> bytes:
    return bytes(token for token, _ in itertools.groupby(path) if token < 256)


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(0, 999), st.sampled_from(["a", "b", "ab", "aa", "ba"]))
def test_likelihoods_are_sums_over_all_paths(count, seed, other):
    """Against the definition: every path of steps, and the change kept if it costs 5 nats."""
    ids = np.array([ord("a"), ord("b"), BLANK])
    generator = torch.Generator().manual_seed(seed)
    logits = torch.full((count, VOCABULARY), -30.0)
    logits[:, ids] = 4 * torch.randn(count, 3, generator=generator)
    likely = logits.log_softmax(-1).numpy()
    sums = {b"": 0.0, other.encode(): 0.0}
    for path in itertools.product(ids.tolist(), repeat=count):
        if collapsed(path) in sums:
            odds = sum(likely[step, token] for step, token in enumerate(path))
            sums[collapsed(path)] += math.exp(odds)
    for spelling, total in sums.items():
        told = weighed(spelling.decode(), spelling.decode(), [steps_of(logits)]).likelihood
        # Costs are kept in sixteenths of a nat and end at eight where no byte is named.
        assert total < math.exp(-7.5) or told == pytest.approx(math.log(total), abs=0.05 * count)
    floor = math.exp(-16.0)
    gain = math.log(max(sums[b""], floor)) - math.log(max(sums[other.encode()], floor))
    read = corrected(other, "", steps_of(logits))
    if min(sums.values()) > floor and abs(gain - 5) > 0.5:
        assert read == ("" if gain > 5 else other)


def test_steps_of_a_batch_are_those_of_each_alone():
    logits = torch.randn(12, VOCABULARY)
    parts = split_steps(logits, [5, 0, 7])
    for part, alone in zip(parts, (logits[:5], logits[5:5], logits[5:]), strict=True):
        expected = steps_of(alone)
        assert np.array_equal(part.nothing, expected.nothing)
        assert np.array_equal(part.ids, expected.ids)
        assert np.array_equal(part.costs, expected.costs)


@settings(max_examples=60)
@given(LETTERS, LETTERS, st.integers(1, 20), st.integers(0, 999))
def test_the_likelihood_told_is_that_of_the_text_told(text, draft, count, seed):
    """Whatever was undone on the way: a second look at the result says the same."""
    generator = torch.Generator().manual_seed(seed)
    steps = steps_of(4 * torch.randn(count, VOCABULARY, generator=generator))
    told = weighed(text, draft, [steps])
    again = weighed(told.text, told.text, [steps])
    assert again.text == told.text
    assert again.likelihood == pytest.approx(told.likelihood, rel=1e-4, abs=1e-4)


def test_what_one_picture_leaves_open_another_one_settles():
    """The decoder doubled a letter that the first picture showed twice as likely as once."""
    first = certain("book", doubts={2: ("o", 0.3)})
    torn = torch.full((8, VOCABULARY), -20.0)
    for step, byte in enumerate(b"bo-ok"):
        torn[step, BLANK if byte == ord("-") else byte] = 0.0
    torn[5:, BLANK] = 0.0
    assert weighed("bok", "book", [first, steps_of(torn)]).text == "book"
    # A draft that the pictures together do not bear out changes nothing.
    assert weighed("book", "bock", [first, steps_of(torn)]).text == "book"


@settings(max_examples=60)
@given(LETTERS, LETTERS, st.lists(st.integers(0, 20), min_size=1, max_size=3), st.integers(0, 99))
def test_of_several_views_the_best_one_tells_the_likelihood(text, draft, counts, seed):
    generator = torch.Generator().manual_seed(seed)
    views = [steps_of(4 * torch.randn(count, VOCABULARY, generator=generator)) for count in counts]
    told = weighed(text, draft, views)
    assert len(told.text) <= len(text) + len(draft)
    assert set(told.text) <= set(text) | set(draft)
    if all(counts):
        alone = [weighed(told.text, told.text, [view]).likelihood for view in views]
        assert told.likelihood == pytest.approx(max(alone), rel=1e-4, abs=1e-4)
    else:
        assert told == Weighed(text, 0.0)


def answer(text: str, confidence: float | None) -> Answer:
    nothing = {"tokens": TokenCounts(), "seconds": Seconds(), "attempts": 1}
    return Answer(text=text, confidence=confidence, is_looped=False, is_truncated=False, **nothing)


def test_one_letter_in_doubt_costs_a_line_more_than_the_mean_over_its_letters():
    """Lines were sorted by the decoder's mean alone, in which one letter of sixty is nothing."""
    line = "the cat sat"
    sure = weighed(line, line, [certain(line)])
    unsure = weighed(line, line, [certain(line, doubts={4: ("h", 0.45)})])
    best, less = (witnessed(answer(line, 0.99), 0.99, seen) for seen in (sure, unsure))
    assert 0.99 < best.confidence < 1
    assert less.confidence == pytest.approx(best.confidence * 0.55 ** (1 / 22), abs=0.005)


def test_a_line_that_the_head_never_saw_keeps_the_decoders_word():
    assert witnessed(answer("a", 0.5), 0.5, None) == answer("a", 0.5)
    assert witnessed(answer("a", None), None, Weighed("b", -1.0)) == answer("b", None)


def test_confidence_is_a_probability_whatever_the_head_says():
    for likelihood in (0.0, -3.0, -1e4, -math.inf):
        for text in ("", "a", "é" * 40):
            seen = witnessed(answer(text, 0.7), 0.7, Weighed(text, likelihood))
            assert 0 <= seen.confidence <= 1
