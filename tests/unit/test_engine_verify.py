"""Verification keeps a draft exactly up to its first difference."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.engine.verify import count_accepted, cut_at_stop

ROWS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), min_size=7)),
    max_size=6,
)


@given(ROWS)
def test_accepted_is_the_common_prefix_of_draft_and_choice(
    rows: list[tuple[list[int], list[int]]],
) -> None:
    drafts = [draft for draft, _ in rows]
    chosen = [choice[: len(draft) + 1] for draft, choice in rows]
    accepted = count_accepted(
        np.array([t for c in chosen for t in c], dtype=np.int64),
        np.array([t for d in drafts for t in d], dtype=np.int64),
        np.array([len(d) for d in drafts], dtype=np.int64),
    )
    for draft, choice, num in zip(drafts, chosen, accepted.tolist(), strict=True):
        assert draft[:num] == choice[:num]
        assert num == len(draft) or draft[num] != choice[num]


@given(st.lists(st.integers(0, 5), min_size=1), st.sets(st.integers(0, 5)), st.integers(1, 10))
def test_nothing_is_kept_behind_a_stop_token_or_the_limit(
    tokens: list[int], stops: set[int], limit: int
) -> None:
    num, is_stopped = cut_at_stop(tokens, frozenset(stops), limit)
    assert 1 <= num <= min(limit, len(tokens))
    assert is_stopped == (tokens[num - 1] in stops)
    assert not set(tokens[: num - 1]) & stops
    assert is_stopped or num == min(limit, len(tokens))
