"""The loop guard: notices that a model has begun to repeat itself, soon after it starts.

Pure functions on token ids and text. Periodic text is not always a loop: dot leaders, rules drawn
with underscores and tables with equal cells repeat honestly, so how many repeats are suspicious
depends on what is repeated. What this gives up: a loop whose period is longer than `MAX_PERIOD`
tokens is only stopped by the token limit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_PERIOD = 96
CHECK_EVERY = 16
"""Tokens between two checks of one sequence: the delay that the guard adds at the most."""

_TEMPERATURE_STEP = 0.3
_MIN_REPEATED_TOKENS = 48
_PROSE_REPEATS = 8
_TABLE_REPEATS = 150
_LEADER_TOKENS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A repetition at the end of a sequence: tokens from `start` on repeat with `period`.

    `keep` is the number of tokens before the second repeat begins: the text worth keeping.
    """

    start: int
    period: int
    repeats: int

    @property
    def keep(self) -> int:
        """Tokens to keep: everything before the loop and its first round."""
        return self.start + self.period


def temperature_of(attempt: int) -> float:
    """The temperature of an attempt, from 1: the first is greedy, further ones are ever warmer."""
    return _TEMPERATURE_STEP * (attempt - 1)


def tail_period(tokens: Sequence[int], max_period: int = MAX_PERIOD) -> tuple[int, int] | None:
    """The period and length of the longest periodic run that ends the sequence.

    Args:
        tokens: token ids, the newest last.
        max_period: longest period that is looked for, in tokens.

    Returns:
        `(period, length)` with length ≥ 2 × period in tokens, the candidate that covers most tokens
        (the shortest period among equals), or None.
    """
    n = len(tokens)
    best: tuple[int, int] | None = None
    for period in range(1, min(max_period, n // 2) + 1):
        i = n - 1 - period
        while i >= 0 and tokens[i] == tokens[i + period]:
            i -= 1
        length = n - 1 - i
        if length >= 2 * period and (best is None or length > best[1]):
            best = (period, length)
    return best


def find_loop(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Loop | None:
    """Whether the sequence has begun to loop.

    Args:
        tokens: the output so far.
        decode: turns token ids into text; called once, for one period, where the tail repeats.

    Returns:
        The loop, or None where the tail does not repeat, or repeats as tables and leaders do.
    """
    found = tail_period(tokens)
    if found is None:
        return None
    period, length = found
    if length < _MIN_REPEATED_TOKENS:
        return None
    unit = decode(tokens[len(tokens) - period :])
    repeats = length // period
    if not _is_suspicious(unit, repeats, length):
        return None
    return Loop(start=len(tokens) - length, period=period, repeats=repeats)


class LoopSearch:
    """Looks for a loop in a sequence that grows, at every multiple of `CHECK_EVERY` tokens.

    However many tokens come at a time, the same text is stopped at the same place.

    Args:
        decode: turns token ids into text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self.num_checked = 0
        """Tokens up to the last place that was looked at."""

    def is_due(self, num_tokens: int) -> bool:
        """Whether so many tokens reach the next place to look at."""
        return num_tokens >= self.num_checked + CHECK_EVERY

    def look(self, tokens: Sequence[int], *, is_cut: bool) -> Loop | None:
        """The first loop at a place that was not looked at before.

        Args:
            tokens: the output so far.
            is_cut: whether it was cut off, so that its end is looked at as well.
        """
        ends = [*range(self.num_checked + CHECK_EVERY, len(tokens) + 1, CHECK_EVERY)]
        if is_cut:
            ends.append(len(tokens))
        for end in ends:
            self.num_checked = end
            loop = find_loop(tokens[:end], self._decode)
            if loop is not None:
                return loop
        return None


def _is_suspicious(unit: str, repeats: int, length: int) -> bool:
    letters = sum(char.isalpha() for char in unit)
    cells = any(char.isdigit() or char in "|\t\n<>" for char in unit)
    if not letters and not cells:
        return length >= _LEADER_TOKENS
    if cells:
        return repeats >= _TABLE_REPEATS
    return repeats >= _PROSE_REPEATS
