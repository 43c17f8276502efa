"""The operators of a PDF content stream, one after the other, with the places where they stand.

Enough of the syntax to cut single operators out and leave every other byte as it is. Knows no
meaning but that of inline images, whose data are skipped. What is no content stream raises.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SPACE = rb"\x00\t\n\f\r "
_REGULAR = rb"[^\x00\t\n\f\r ()<>\[\]{}/%]"
_TOKEN = re.compile(
    rb"(?P<gap>[" + _SPACE + rb"]+|%[^\r\n]*)"
    rb"|(?P<open>\()"
    rb"|(?P<word>" + _REGULAR + rb"+)"
    rb"|(?P<operand>/" + _REGULAR + rb"*|<<|>>|<[0-9A-Fa-f" + _SPACE + rb"]*>|[\[\]{}])"
)
_PARENTHESIS = re.compile(rb"[()\\]")
_NUMBER = re.compile(rb"[+-]*(?:\d+\.?\d*|\.\d+)(?:-\d*)?")
_VALUES = frozenset((b"true", b"false", b"null"))
_END_OF_IMAGE = re.compile(rb"[" + _SPACE + rb"]EI(?=[" + _SPACE + rb"]|$)")
_LOOKED_AT = 24
"""Bytes behind the end of an inline image that must be text, or it is no end."""
_TEXT = re.compile(rb"[\t\n\f\r -~]*")


class NotContentError(ValueError):
    """What should be a content stream is none."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator and its operands: as written, and from where to where in the stream."""

    name: bytes
    operands: tuple[bytes, ...]
    start: int
    """Of the first operand, or of the operator itself where it has none."""
    end: int


def operators(content: bytes) -> Iterator[Operator]:
    """The operators of a content stream in order.

    Raises:
        NotContentError: it breaks off in a string or an inline image, or cannot be told apart.
    """
    operands: list[bytes] = []
    start: int | None = None
    place = 0
    while place < len(content):
        found = _TOKEN.match(content, place)
        if found is None:
            raise NotContentError(f"no token at byte {place}")
        begin, place = found.span()
        if found.lastgroup == "gap":
            continue
        start = begin if start is None else start
        if found.lastgroup == "open":
            place = _end_of_string(content, place)
        token = content[begin:place]
        if found.lastgroup == "word" and not _is_value(token):
            if token == b"ID":
                place = _end_of_image(content, place)
            yield Operator(token, tuple(operands), start, place)
            operands, start = [], None
        else:
            operands.append(token)


def _is_value(word: bytes) -> bool:
    return _NUMBER.fullmatch(word) is not None or word in _VALUES


def _end_of_string(content: bytes, place: int) -> int:
    """Behind the parenthesis that closes the one before `place`."""
    depth = 1
    while depth:
        found = _PARENTHESIS.search(content, place)
        if found is None:
            raise NotContentError("a string without an end")
        place = found.end()
        if found[0] == b"\\":
            place += 1
        else:
            depth += 1 if found[0] == b"(" else -1
    return place


def _end_of_image(content: bytes, place: int) -> int:
    """Behind the data of an inline image and its `EI`. The data may contain the same letters."""
    for found in _END_OF_IMAGE.finditer(content, place):
        if _TEXT.fullmatch(content, found.end(), min(len(content), found.end() + _LOOKED_AT)):
            return found.end()
    raise NotContentError("an inline image without an end")
