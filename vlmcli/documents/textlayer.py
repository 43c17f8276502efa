"""Is a page's own text layer sound, and what does it say?

Sound means: every glyph has a meaning, what it says can be seen, and all that can be seen is said.
An invisible layer (the work of an earlier OCR) must also read like words. Unsound layers are left
to the model. Gave up: a layer that maps its glyphs to wrong letters, which only reading the page
would show.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from vlmcli.documents import bidi, coverage, order
from vlmcli.documents.base import Box, Fragment, Pixels, TextLayer
from vlmcli.results import Line

_MAX_UNMAPPED = 0.02
"""Glyphs without a meaning that stand alone (bullets, icons), as a share of all."""

_MAX_HIDDEN = 0.1
"""Characters without ink under them, as a share of all; fewer are dropped."""

_MAX_UNCOVERED = 0.015
_UNCOVERED_WIDTH = 5.0
"""Too much writing outside all boxes: this share of that inside, and so many font sizes."""

_LEAST_WORDLIKE = 0.85
"""Tokens of an invisible layer that look like words or numbers, as a share of all."""

_BULLETS = {
    "\uf0b7": "•",
    "\uf0a7": "▪",
    "\uf0fc": "✓",
    "\uf0d8": "➢",
    "\uf06f": "□",
    "\uf0a8": "□",
}
"""Glyphs of Symbol and Wingdings in Microsoft's private area, as word processors write them."""

_CELL_GAP = "  "
"""As between cells that the line finder finds, so that both kinds of page look alike."""

_DROPPED = {"\u200b", "\u2060", "\ufeff", "\u00ad"}
_LIGATURES = {chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
_CID = re.compile(r"\(cid:\d+\)")
_UNMAPPED = "\ufffd"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLayerVerdict:
    """Whether the layer may answer for the page, why not, and its text in reading order.

    `reason` is empty for a sound layer, else one of `no-text`, `unmapped`, `hidden`, `poor-ocr`,
    `uncovered`. `lines` carry boxes in pixels of the picture that the layer was placed on.
    """

    sound: bool
    reason: str
    text: str
    lines: tuple[Line, ...]


def compose(layer: TextLayer | None) -> TextLayerVerdict:
    """The layer's text, unjudged: `sound` is whether there is any."""
    fragments = _clean(layer.fragments) if layer is not None else []
    if layer is None or not fragments:
        return TextLayerVerdict(sound=False, reason="no-text", text="", lines=())
    return _written(layer, fragments, reason="")


def judge(layer: TextLayer | None, grey: Pixels) -> TextLayerVerdict:
    """Compare a layer with the picture of its page.

    Args:
        layer: the page's own text, placed on the picture; None where it has none.
        grey: (H, W) picture of the page.
    """
    fragments = _clean(layer.fragments) if layer is not None else []
    if layer is None or not fragments:
        return TextLayerVerdict(sound=False, reason="no-text", text="", lines=())
    assert grey.shape == (layer.height, layer.width), "the layer lies on another picture"
    if _is_unmapped(fragments):
        return _written(layer, fragments, reason="unmapped")
    size = max(1.0, median(fragment.size for fragment in fragments))
    found = coverage.compare(grey, [_reach(fragment) for fragment in fragments], size)
    seen = [item for item, hidden in zip(fragments, found.hidden, strict=True) if not hidden]
    if _characters(seen) < (1 - _MAX_HIDDEN) * _characters(fragments):
        return _written(layer, fragments, reason="hidden")
    invisible = [item for item in seen if item.invisible]
    if invisible and _wordlike(invisible) < _LEAST_WORDLIKE:
        return _written(layer, seen, reason="poor-ocr")
    if found.uncovered > max(_UNCOVERED_WIDTH, _MAX_UNCOVERED * found.covered):
        return _written(layer, seen, reason="uncovered")
    return _written(layer, seen, reason="")


def _reach(fragment: Fragment) -> Box:
    """The box in which a fragment's ink is looked for.

    Vertical writing in a font that is not embedded is drawn with another, whose glyphs sit
    elsewhere in their boxes.
    """
    x0, y0, x1, y1 = fragment.box
    more = fragment.size / 2 if fragment.vertical else 0.0
    return x0 - more, y0 - more, x1 + more, y1 + more


def _written(layer: TextLayer, fragments: Sequence[Fragment], *, reason: str) -> TextLayerVerdict:
    blocks = order.reading_order(fragments)
    lines = [
        [Line(bbox=_whole(order.row_box(row), layer), text=_row_text(row)) for row in block]
        for block in blocks
    ]
    return TextLayerVerdict(
        sound=not reason,
        reason=reason,
        text="\n\n".join("\n".join(line.text for line in block) for block in lines),
        lines=tuple(line for block in lines for line in block),
    )


def _whole(box: tuple[float, float, float, float], layer: TextLayer) -> tuple[int, int, int, int]:
    """A box in whole pixels, within the page and never empty."""
    x0 = min(max(0, int(box[0])), layer.width - 1)
    y0 = min(max(0, int(box[1])), layer.height - 1)
    x1 = min(max(x0 + 1, round(box[2] + 0.5)), layer.width)
    y1 = min(max(y0 + 1, round(box[3] + 0.5)), layer.height)
    return x0, y0, x1, y1


def _row_text(row: order.Row) -> str:
    """One printed line: cells apart, words by spaces, in the script's direction."""
    items = list(row)
    if bidi.is_right_to_left("".join(item.fragment.text for item in items)):
        items.reverse()
    text = items[0].fragment.text
    for before, after in pairwise(items):
        left, right = sorted((before, after), key=lambda item: item.u0)
        if order.are_cells(left, right):
            text += _CELL_GAP
        elif not order.are_touching(left, right):
            text += " "
        text += after.fragment.text
    return text


def _clean(fragments: Sequence[Fragment]) -> list[Fragment]:
    """Fragments that say something, each once: shadows and fake bold repeat a text in its place."""
    kept: list[Fragment] = []
    places: dict[tuple[str, int, int], list[Fragment]] = {}
    for fragment in fragments:
        text = normalise(fragment.text)
        if not text:
            continue
        across = int(fragment.origin[0] / max(fragment.size, 1.0))
        down = int(fragment.origin[1] / max(fragment.size, 1.0))
        twins = (
            twin
            for x in (across - 1, across, across + 1)
            for y in (down - 1, down, down + 1)
            for twin in places.get((text, x, y), ())
        )
        if any(_overlap(fragment, twin) > 0.7 for twin in twins):
            continue
        places.setdefault((text, across, down), []).append(fragment)
        kept.append(replace(fragment, text=text))
    return kept


def normalise(text: str) -> str:
    """A fragment's text as people would type it.

    Ligatures are expanded, a soft hyphen at the end becomes the hyphen that it shows, other soft
    hyphens and marks without width go, spaces are plain, private bullets become public ones.
    """
    text = text.rstrip()
    if text.endswith("\u00ad"):
        text = text[:-1] + "-"
    letters = (
        _LIGATURES.get(letter)
        or _BULLETS.get(letter)
        or ("" if letter in _DROPPED else " " if letter.isspace() else letter)
        for letter in text
    )
    return "".join(letters).strip()


def _overlap(one: Fragment, other: Fragment) -> float:
    """Intersection over union of two boxes."""
    x0, y0 = max(one.box[0], other.box[0]), max(one.box[1], other.box[1])
    x1, y1 = min(one.box[2], other.box[2]), min(one.box[3], other.box[3])
    common = max(0.0, x1 - x0) * max(0.0, y1 - y0)
    return common / max(_area(one) + _area(other) - common, 1e-9)


def _area(fragment: Fragment) -> float:
    x0, y0, x1, y1 = fragment.box
    return (x1 - x0) * (y1 - y0)


def _characters(fragments: Sequence[Fragment]) -> int:
    return sum(len(fragment.text) for fragment in fragments)


def _is_unmapped(fragments: Sequence[Fragment]) -> bool:
    """Whether glyphs without a meaning stand inside words, or are many."""
    alone = 0
    for fragment in fragments:
        if _CID.search(fragment.text):
            return True
        for word in fragment.text.split():
            lost = sum(_has_no_meaning(letter) for letter in word)
            if lost and len(word) > 1:
                return True
            alone += lost
    return alone > _MAX_UNMAPPED * _characters(fragments)


def _has_no_meaning(letter: str) -> bool:
    """Replacement, private, control and unassigned characters."""
    return letter == _UNMAPPED or unicodedata.category(letter) in ("Co", "Cc", "Cn", "Cs")


def _wordlike(fragments: Sequence[Fragment]) -> float:
    """Share of tokens that look like words or numbers; scripts without case count as words."""
    tokens = [token for fragment in fragments for token in fragment.text.split()]
    tokens = [core for token in tokens if (core := token.strip("‘’“”'\"()[]{}.,;:!?*-–—_…/|•·"))]
    if not tokens:
        return 0.0
    return sum(map(_is_wordlike, tokens)) / len(tokens)


_NUMBER = re.compile(r"[$€£#§]?[+\-–]?\d[\d.,:/\-–]*(?:%|st|nd|rd|th|[A-Za-z])?")
_WORD = re.compile(r"[^\W\d_]+(?:[-'’/.][^\W\d_]+)*\.?")


def _is_wordlike(token: str) -> bool:
    if _NUMBER.fullmatch(token):
        return True
    if not _WORD.fullmatch(token):
        return False
    plain = unicodedata.normalize("NFD", token)
    latin = [letter for letter in plain if letter.isascii() and letter.isalpha()]
    if len(latin) < 3 or len(latin) * 2 < len(token):
        return len(token) > 1 or token in "aAIiOoyàéèÀÉY&"
    has_vowel = any(letter in "aeiouyAEIOUY" for letter in latin)
    # Capitals inside a word are rare outside names (McCoy) and abbreviations.
    changes = sum(a.islower() and b.isupper() for a, b in pairwise(token))
    return (has_vowel or token.isupper()) and changes <= 1
