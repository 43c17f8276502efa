"""A code fence around a whole answer: models wrap what they write down, as if it were code."""

import re

_OPENING = re.compile(r"(`{3,}|~{3,})[ \t]*([\w+-]*)[ \t]*\n")
_WRAPPERS = frozenset(
    {
        *("", "markdown", "md", "text", "txt", "plain", "plaintext"),
        *("html", "latex", "tex", "json", "xml", "doctags"),
    }
)
"""What a fence may say that is no language of a program: a page of Python keeps its fence."""


def without_fence(text: str) -> str:
    """The text without a fence that opens at its start and closes at its end, if there is one.

    A fence that closes earlier is part of the page. One that never closes is left too: the answer
    was cut, and what it would have become is not known.
    """
    stripped = text.strip()
    opening = _OPENING.match(stripped)
    if opening is None or opening[2].lower() not in _WRAPPERS:
        return stripped
    mark = re.escape(opening[1][0])
    closing = re.compile(rf"^ {{0,3}}{mark}{{{len(opening[1])},}}[ \t]*$", re.MULTILINE)
    first = closing.search(stripped, opening.end())
    if first is None or first.end() != len(stripped):
        return stripped
    return stripped[opening.end() : first.start()].strip("\n")
