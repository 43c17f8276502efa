"""Lines of right-to-left scripts: from where the glyphs stand to the order in which they are read.

Pure. A small part of the Unicode bidirectional algorithm (UAX #9), run backwards: one embedding
level, numbers and left-to-right words as islands. Gave up: nested embeddings and explicit
direction marks.
"""

import unicodedata
from collections.abc import Sequence

Glyph = tuple[str, float]
"""A character and the place of its left end along the line."""


def is_right_to_left(text: str) -> bool:
    """Whether most of the letters belong to a script that is written from right to left."""
    kinds = [unicodedata.bidirectional(letter) for letter in text]
    right = sum(kind in ("R", "AL") for kind in kinds)
    return right > sum(kind == "L" for kind in kinds)


def has_right_to_left(text: str) -> bool:
    """Whether any letter belongs to such a script."""
    return any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text)


def reading_text(glyphs: Sequence[Glyph]) -> str:
    """The text of a right-to-left line whose glyphs stand at the given places.

    Words and numbers that run from left to right keep that order inside. Brackets stay as the file
    means them: most programs write down the logical one, whatever shape the page shows.
    """
    clusters = sorted(_clusters(glyphs), key=lambda cluster: -cluster[1])
    kinds = _directions([text for text, _ in clusters])
    out: list[str] = []
    island: list[str] = []
    for (text, _), is_left_to_right in zip(clusters, kinds, strict=True):
        if is_left_to_right:
            island.append(text)
            continue
        out += [*reversed(island), text]
        island = []
    return "".join([*out, *reversed(island)])


def _clusters(glyphs: Sequence[Glyph]) -> list[Glyph]:
    """Letters with the marks that stand on them as one."""
    found: list[Glyph] = []
    for letter, place in glyphs:
        if found and unicodedata.combining(letter):
            found[-1] = found[-1][0] + letter, found[-1][1]
        else:
            found.append((letter, place))
    return found


def _directions(texts: Sequence[str]) -> list[bool]:
    """For clusters from right to left on the page, whether each belongs to a left-to-right island.

    Letters and digits decide; spaces and signs belong to an island only if it goes on behind them.
    """
    kinds = [unicodedata.bidirectional(text[0]) for text in texts]
    strong = [kind in ("L", "EN", "AN") for kind in kinds]
    other = [kind in ("R", "AL") for kind in kinds]
    inside = list(strong)
    last: int | None = None
    for place in range(len(texts)):
        if strong[place]:
            if last is not None:
                inside[last:place] = [True] * (place - last)
            last = place
        elif other[place]:
            last = None
    return inside
