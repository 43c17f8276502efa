"""M-RoPE positions follow the published rule; compared with a per-token rendering of it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.engine.positions import mrope_positions, rope_positions
from vlmcli.engine.request import PlaceholderRange

GRIDS = st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 7))


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, list[PlaceholderRange]]:
    index, placeholders = 0, []
    for grid in draw(st.lists(GRIDS, max_size=4)):
        index += draw(st.integers(0, 4))
        length = int(np.prod(grid))
        placeholders.append(PlaceholderRange(offset=index, length=length, grid=grid))
        index += length
    return max(1, index + draw(st.integers(0, 5))), placeholders


def token_by_token(num_tokens: int, placeholders: list[PlaceholderRange]) -> list[tuple[int, ...]]:
    image_at = {p.offset: p for p in placeholders}
    out: list[tuple[int, ...]] = []
    while len(out) < num_tokens:
        start = 1 + max((max(p) for p in out), default=-1)
        image = image_at.get(len(out))
        if image is None:
            out.append((start, start, start))
            continue
        frames, rows, columns = image.grid or (0, 0, 0)
        out += [
            (start + f, start + r, start + c)
            for f in range(frames)
            for r in range(rows)
            for c in range(columns)
        ]
    return out


@given(prompts())
def test_positions_equal_the_rule_applied_token_by_token(
    prompt: tuple[int, list[PlaceholderRange]],
) -> None:
    num_tokens, placeholders = prompt
    positions, delta = mrope_positions(num_tokens, placeholders)
    expected = token_by_token(num_tokens, placeholders)
    assert positions.T.tolist() == [list(p) for p in expected]
    assert num_tokens + delta == 1 + max(max(p) for p in expected)


@given(st.integers(1, 50))
def test_text_alone_is_counted_through(num_tokens: int) -> None:
    positions, delta = mrope_positions(num_tokens, [])
    plain, plain_delta = rope_positions(num_tokens)
    assert (positions == plain).all() and delta == plain_delta == 0
    assert (plain == np.arange(num_tokens)).all()


def test_a_line_of_thirty_tokens_moves_the_text_by_thirty_columns() -> None:
    image = PlaceholderRange(offset=1, length=30, grid=(1, 1, 30))
    positions, delta = mrope_positions(32, [image])
    assert positions[:, 1:31].tolist() == [[1] * 30, [1] * 30, list(range(1, 31))]
    assert positions[:, 31].tolist() == [31, 31, 31] and delta == 0
