"""A checkpoint's tensor names turned into the modules' names by rules, one after the other."""

import re

Rules = tuple[tuple[re.Pattern[str], str], ...]


def rules(*pairs: tuple[str, str]) -> Rules:
    """Regular expressions with what replaces their matches, compiled."""
    return tuple((re.compile(pattern), ours) for pattern, ours in pairs)


def renamed(name: str, by: Rules) -> str:
    """The name after every rule, in order; a rule that does not match leaves it as it is."""
    for pattern, ours in by:
        name = pattern.sub(ours, name)
    return name
