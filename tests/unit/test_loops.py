"""The loop guard: real loops are seen soon after they start, honest repetition is left alone."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.loops import MAX_PERIOD, find_loop, tail_period


def decode(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode("latin-1")


def test_a_prose_loop_is_found_soon_after_it_starts() -> None:
    head = b"The minutes of the meeting were read and approved. "
    text = head + b"a b c " * 40
    first = next(n for n in range(len(text)) if find_loop(text[:n], decode))
    assert first <= len(head) + 60
    loop = find_loop(text[:first], decode)
    assert loop is not None
    assert text[: loop.keep].startswith(head)
    assert len(text[: loop.keep]) <= len(head) + 2 * len("a b c ")


@pytest.mark.parametrize("unit", ["and the ", "I am sorry, but I cannot help with that. ", "ab"])
def test_the_kept_text_ends_after_one_round(unit: str) -> None:
    text = ("Chapter 1\n" + unit * 60).encode()
    loop = find_loop(text, decode)
    assert loop is not None
    assert loop.period == len(unit)
    assert len(text[: loop.keep]) <= len("Chapter 1\n") + 2 * len(unit)


@pytest.mark.parametrize(
    "honest",
    [
        "| 0.00 | 0.00 | 0.00 |\n" * 60,
        "0.00\n" * 60,
        "<td>0.00</td>" * 60,
        "Contents " + "." * 200 + " 12",
        "Contents" + " ." * 150,
        "_" * 300,
        "- " * 120,
        "ha ha ha ha ha ha ha ha",
        "no, no, no, no, no",
    ],
)
def test_tables_leaders_and_rules_are_not_loops(honest: str) -> None:
    text = honest.encode()
    assert all(find_loop(text[:n], decode) is None for n in range(0, len(text) + 1, 7))
    assert find_loop(text, decode) is None


def test_endless_leaders_and_cells_are_loops_in_the_end() -> None:
    assert find_loop(b"." * 2000, decode) is not None
    assert find_loop(b"| 0 " * 400, decode) is not None


@given(
    st.lists(st.integers(0, 255), max_size=60),
    st.lists(st.integers(0, 255), min_size=1, max_size=MAX_PERIOD),
    st.integers(2, 5),
)
def test_tail_period_covers_every_planted_repeat(
    head: list[int], unit: list[int], repeats: int
) -> None:
    tokens = head + unit * repeats
    found = tail_period(tokens)
    assert found is not None
    period, length = found
    assert length >= len(unit) * repeats
    tail = tokens[len(tokens) - length :]
    assert all(tail[i] == tail[i + period] for i in range(length - period))


@given(st.lists(st.integers(0, 3), max_size=80))
def test_tail_period_never_claims_what_is_not_there(tokens: list[int]) -> None:
    found = tail_period(tokens)
    if found is not None:
        period, length = found
        assert 2 * period <= length <= len(tokens)
        tail = tokens[len(tokens) - length :]
        assert all(tail[i] == tail[i + period] for i in range(length - period))
