"""Watches what a job really takes and compares it with its cap, while there is still time to act.

Reads numbers that somebody else supplies, twice a second at the most, and says how things stand;
acts on nothing. A plan leaves a margin below the cap: pressure means that the margin is eaten.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

INTERVAL = 0.5
"""Seconds between two looks."""
_TIGHT = 0.98
_EASY = 0.90
_CALM_LOOKS = 20
"""Looks in a row without pressure after which a bound may be widened: ten seconds."""

Pressure = Literal["none", "tight", "calm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One kind of memory: its name, the cap in bytes, and how to learn what is taken.

    Without a cap it is not looked at; `read` gives 0 where nothing can be learnt.
    """

    name: str
    cap_bytes: int | None
    read: Callable[[], int]


class MemoryGuard:
    """Looks at some kinds of memory from time to time.

    Args:
        watched: main memory, and the device's where there is one.
        clock: seconds, for tests.
    """

    def __init__(self, *watched: Watched, clock: Callable[[], float] = time.monotonic) -> None:
        self._watched = [(one, one.cap_bytes) for one in watched if one.cap_bytes is not None]
        self._clock = clock
        self._next_look = 0.0
        self._num_calm = 0
        self._peaks = {one.name: 0 for one, _ in self._watched}

    def stats(self) -> dict[str, float]:
        """Cap and highest value seen of each kind, by name, in bytes."""
        out: dict[str, float] = {}
        for one, cap in self._watched:
            out[f"{one.name}_cap_bytes"] = cap
            out[f"{one.name}_peak_bytes"] = self._peaks[one.name]
        return out

    def look(self) -> Pressure:
        """How things stand: `tight` next to a cap, `calm` when all has been well for long.

        Between two looks the answer is `none`.
        """
        if self._clock() < self._next_look:
            return "none"
        self._next_look = self._clock() + INTERVAL
        share = self.measure()
        if share >= _TIGHT:
            self._num_calm = 0
            return "tight"
        self._num_calm = self._num_calm + 1 if share < _EASY else 0
        if self._num_calm < _CALM_LOOKS:
            return "none"
        self._num_calm = 0
        return "calm"

    def measure(self) -> float:
        """The largest share of a cap that is taken now; 1 is all of it."""
        shares = [0.0]
        for one, cap in self._watched:
            taken = one.read()
            self._peaks[one.name] = max(self._peaks[one.name], taken)
            shares.append(taken / max(1, cap))
        return max(shares)

    @property
    def is_tight(self) -> bool:
        """Whether a cap is near, looked at now."""
        return self.measure() >= _TIGHT
