"""How long to wait before asking a server again, and how often. Pure but for the dice."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Literal

Cause = Literal["busy", "unreachable", "server"]
"""Told to come back; nobody there; a fault of the server or of the connection to it."""

_FIRST, _LONGEST = 0.5, 30.0
_LONGEST_ASKED = 120.0
"""Seconds that a server may ask for; longer waits look like a job that hangs."""
_TRIES = {"busy": 10, "unreachable": 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Tries and pauses for one request.

    Attributes:
        retries: further tries after a fault of the server; being told to come back is none.
        dice: numbers from 0 to 1.
    """

    retries: int
    dice: Callable[[], float] = random.random

    def num_tries(self, cause: Cause) -> int:
        """Tries in all: two minutes with a busy server, some seconds with nobody there."""
        return _TRIES.get(cause, 1 + self.retries)

    def pause(self, tries: int, asked: float | None) -> float:
        """Seconds before the next try.

        Doubles with every try, and is shortened by chance to as little as a half, so that clients
        which were refused together do not come back together.

        Args:
            tries: so far, from 1.
            asked: seconds that the server asks for; None where it does not.
        """
        own = min(_LONGEST, _FIRST * 2.0 ** (tries - 1)) * (0.5 + self.dice() / 2)
        if asked is None:
            return own
        return max(own, min(asked, _LONGEST_ASKED) + self.dice())


def seconds_asked(value: str | None) -> float | None:
    """The pause that a `Retry-After` field asks for: seconds, or a date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    text = value.strip()
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (ValueError, OverflowError):
        return None
