"""Which drafted tokens are kept: exactly those that plain decoding would have chosen.

A draft of k tokens is computed in one forward pass whose k + 1 rows give the token that the model
chooses behind every drafted prefix. The draft is kept up to its first difference, and the model's
own token follows it. Since sampling depends only on the logits, the request's seed and the index of
the token, this is exact at every temperature and not only for greedy decoding. Pure numpy.
"""

import numpy as np
import numpy.typing as npt


def count_accepted(
    chosen: npt.NDArray[np.int64],
    drafted: npt.NDArray[np.int64],
    num_drafted: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Length of the draft prefix that equals the chosen tokens, per sequence.

    Args:
        chosen: int64 [D + S] chosen tokens, `num_drafted[s] + 1` rows for every sequence in turn.
        drafted: int64 [D] drafted tokens of all sequences in turn.
        num_drafted: int64 [S] draft lengths, ragged, 0 allowed.

    Returns:
        int64 [S] accepted tokens, each at most `num_drafted[s]`.
    """
    num_rows = num_drafted + 1
    ends = np.cumsum(num_rows)
    assert len(chosen) == len(drafted) + len(num_drafted) == int(ends[-1] if len(ends) else 0)
    if not len(num_drafted):
        return np.zeros(0, dtype=np.int64)
    starts = ends - num_rows
    index = np.arange(len(chosen)) - np.repeat(starts, num_rows)
    is_draft = np.ones(len(chosen), dtype=np.bool_)
    is_draft[ends - 1] = False
    agrees = np.zeros(len(chosen), dtype=np.bool_)
    agrees[is_draft] = chosen[is_draft] == drafted
    first_difference = np.where(agrees, len(chosen), index)
    return np.minimum.reduceat(first_difference, starts)


def cut_at_stop(
    token_ids: list[int], stop_token_ids: frozenset[int], max_tokens: int
) -> tuple[int, bool]:
    """How many of the newly chosen tokens count.

    Args:
        token_ids: chosen tokens in order, at least one.
        stop_token_ids: the first of these ends the sequence and is kept.
        max_tokens: tokens that may still be generated, at least one.

    Returns:
        The number of tokens to keep, and whether the last of them is a stop token.
    """
    for i, token in enumerate(token_ids[:max_tokens]):
        if token in stop_token_ids:
            return i + 1, True
    return min(len(token_ids), max_tokens), False
