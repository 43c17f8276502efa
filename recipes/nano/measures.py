"""What the recipe measures texts with: edit distances, word F1, AUROC, calibration. Strings only.

Case, punctuation and signs count everywhere. What does not count, for any tool: white space,
Unicode's composition and ligatures, leaders, and the habits of who typed a truth.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
_LEADER = re.compile(r"([.·•…_–—-])(?: ?\1){4,}")
"""Five and more of a sign, with or without spaces: how many there are is no reading."""
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\s*\n\s*(?=[a-zß-ÿ])")
_QUOTES = str.maketrans("‘’“”", "''\"\"")


def normalise(text: str) -> str:
    """NFC, the end-of-line hyphen sign of some truths as a hyphen, white space collapsed.

    Ligatures that a font's encoding left in a text layer are letters; leaders are left out.
    """
    text = unicodedata.normalize("NFC", text).replace("¬", "-").translate(_LIGATURES)
    return " ".join(_LEADER.sub(" ", " ".join(text.split())).split())


def as_typed(text: str, truth: str) -> str:
    """What a tool has read, typed as the truth's typist would have typed it.

    A truth without a hyphen at the end of any line has the words put together that the print
    divides; one of ASCII alone has no other quotes than straight ones.
    """
    if not any(line.rstrip().endswith(("-", "¬")) for line in truth.splitlines()):
        text = _HYPHEN.sub("", text)
    return text.translate(_QUOTES) if truth.isascii() else text


def edit_distance(first: str, second: str, *, anywhere: bool = False) -> int:
    """Levenshtein distance; `anywhere` to the nearest stretch of `second` instead of all of it.

    Bit-parallel columns (Myers, 1999, as Hyyrö, 2003, states it).
    """
    if not first:
        return 0 if anywhere else len(second)
    places: dict[str, int] = {}
    for index, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << index
    full, last = (1 << len(first)) - 1, 1 << (len(first) - 1)
    plus, minus, distance = full, 0, len(first)
    least = distance
    for character in second:
        match = places.get(character, 0)
        diagonal = (((match & plus) + plus) ^ plus) | match | minus
        up = minus | ~(diagonal | plus) & full
        down = plus & diagonal
        distance += bool(up & last) - bool(down & last)
        least = min(least, distance)
        up = up << 1 | (not anywhere)
        plus = (down << 1 | ~(diagonal | up)) & full
        minus = up & diagonal & full
    return least if anywhere else distance


def word_counts(truth: str, text: str) -> tuple[int, int, int]:
    """(words in common, words of the truth, words of the text), order left aside."""
    ours, theirs = Counter(truth.split()), Counter(text.split())
    return (ours & theirs).total(), ours.total(), theirs.total()


def holds_line(text: str, line: str) -> bool:
    """Whether a normalised text holds the words of a line, one after another and nothing else.

    A hyphen at the line's end may stand where the text writes the word on.
    """
    wanted = normalise(line)
    padded = f" {text} "
    return f" {wanted} " in padded or (wanted.endswith("-") and f" {wanted[:-1]}" in padded)


def auroc(confidences: Sequence[float], wrong: Sequence[bool]) -> float:
    """Chance that a wrong line has less confidence than a right one (Mann and Whitney, 1947)."""
    bad = [c for c, is_wrong in zip(confidences, wrong, strict=True) if is_wrong]
    good = [c for c, is_wrong in zip(confidences, wrong, strict=True) if not is_wrong]
    if not bad or not good:
        return float("nan")
    wins = sum((g > b) + 0.5 * (g == b) for b in bad for g in good)
    return wins / (len(bad) * len(good))


def calibration_error(
    confidences: Sequence[float], right: Sequence[float], bins: int = 10
) -> float:
    """Expected calibration error: |confidence - share right| over equal bins, by their size.

    Guo et al., 2017.
    """
    total = 0.0
    for low in range(bins):
        inside = [
            (c, r)
            for c, r in zip(confidences, right, strict=True)
            if low / bins < c <= (low + 1) / bins or (low == 0 and c == 0)
        ]
        if inside:
            total += abs(sum(c for c, _ in inside) - sum(r for _, r in inside))
    return total / max(1, len(confidences))
