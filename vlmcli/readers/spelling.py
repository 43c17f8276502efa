"""Spellings that a misread word may have had: the words of a list that are one letter away.

It only suggests; the picture decides (`engine.correction.respelled`). Words of the list, numbers,
abbreviations in capitals and lines in another language than the list's get no suggestion. Torn and
joined words were given up: the draft head is sure of its spaces where they matter.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vlmcli.errors import ModelError

Change = tuple[int, int, str]
"""Start and stop in a text, and what could stand there instead."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TOKEN = re.compile(r"[^\W_](?:[\w'’/|!]*[^\W_])?")
"""A word with apostrophes, figures and strokes that may be misread letters inside."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_LEAST, _MOST = 3, 24
"""Letters of a word that is looked up."""
_LEAST_CAPITALS = 5
"""Letters from which a word in capitals is no abbreviation."""
_LEAST_NAME = 5
"""Letters of a name that is suggested; Gide and Mich. are one letter from everything."""


class Words:
    """The words of a language, and names and abbreviations in it.

    Args:
        words: in ASCII; those that begin with a capital are names, one of a kind.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._plain, self._names = _parted("\n".join(words).encode("ascii"))

    @classmethod
    def load(cls, path: Path) -> "Words":
        """The words of a text file, one a line.

        Raises:
            ModelError: it cannot be read.
        """
        loaded = cls(())
        try:
            loaded._plain, loaded._names = _parted(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read {path}: {error}") from error
        return loaded

    def known(self, words: Sequence[str]) -> list[str]:
        """Those of some lower-case strings that are words or names."""
        is_known = _are_in(words, self._plain) | _are_in(words, self._names)
        return [word for word, known in zip(words, is_known.tolist(), strict=True) if known]

    def likely(self, words: Sequence[str], *, named: bool) -> list[str]:
        """Those that an unknown word may have been: words, and long names if it is like a name."""
        is_likely = _are_in(words, self._plain)
        if named:
            is_long = np.array([len(word) >= _LEAST_NAME for word in words], bool)
            is_likely |= _are_in(words, self._names) & is_long
        return [word for word, likely in zip(words, is_likely.tolist(), strict=True) if likely]


def _parted(listed: bytes) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.bytes_]]:
    """The sorted words and, in lower case, names of a list that has one a line.

    No string is made of any: tens of thousands would take ten times their bytes.

    Raises:
        ValueError: it is not all ASCII, or a line has more than `_MOST` letters.
    """
    letters = np.frombuffer(listed + b"\n", np.uint8)
    if (letters > 127).any():
        raise ValueError("a list of words is in ASCII")
    stops = np.flatnonzero(letters == ord("\n"))
    starts = np.concatenate(([0], stops[:-1] + 1))
    lengths = stops - starts
    if lengths.max() > _MOST:
        raise ValueError(f"a line has more than {_MOST} letters")
    table = np.zeros((len(starts), _MOST), np.uint8)
    for place in range(int(lengths.max())):
        has = lengths > place
        table[has, place] = letters[starts[has] + place]
    is_name = (table[:, 0] >= ord("A")) & (table[:, 0] <= ord("Z"))
    table[is_name, 0] += ord("a") - ord("A")
    words = table.view(f"S{_MOST}")[:, 0]
    return np.sort(words[~is_name]), np.sort(words[is_name])


def _are_in(words: Sequence[str], listed: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
    asked = np.array([word.encode() for word in words], "S")
    if not len(listed):
        return np.zeros(len(asked), bool)
    places = np.searchsorted(listed, asked).clip(max=len(listed) - 1)
    return np.asarray(listed[places] == asked, bool)


def suggestions(text: str, words: Words) -> list[Change]:
    """What the unknown words of a line could be, each change for itself.

    Empty where the line does not look like one in the list's language.
    """
    plain = [word.lower() for word in _WORD.findall(text)]
    known = words.known(plain)
    if not known or 2 * len(known) < len(plain):
        return []
    return [
        (token.start(), token.end(), other)
        for token in _TOKEN.finditer(text)
        for other in _others(token.group(), words)
    ]


def _others(token: str, words: Words) -> list[str]:
    letters = sum(map(str.isalpha, token))
    straight = token.lower().replace("’", "'")
    is_capitals = token.isupper()
    if not _LEAST <= len(token) <= _MOST or letters < len(token) - 1:
        return []
    if is_capitals and letters < _LEAST_CAPITALS:
        return []
    if words.known([straight]):
        # A capital amid small letters is one of those that differ in height alone: maSS, UnSure.
        is_usual = is_capitals or token[1:] == token[1:].lower()
        return [] if is_usual else [token.lower(), token.capitalize()]
    near = words.likely(list(dict.fromkeys(_edits(straight))), named=token[0].isupper())
    return [_like(token, other) for other in near]


def _edits(word: str) -> Iterator[str]:
    """Strings one letter away: another, one more, one less (all of them are lower case)."""
    for place in range(len(word) + 1):
        head, tail = word[:place], word[place:]
        for letter in _LETTERS:
            yield head + letter + tail
            if tail:
                yield head + letter + tail[1:]
        if tail and tail[0].isalpha():
            yield head + tail[1:]


def _like(token: str, other: str) -> str:
    """Another word in a token's capitals and kind of apostrophe."""
    if token.isupper():
        other = other.upper()
    elif token[0].isupper():
        other = other.capitalize()
    return other.replace("'", "’") if "’" in token else other
