"""What the glyphs of symbol fonts say: ZapfDingbats, Wingdings, Webdings and Symbol as Unicode.

A check mark in ZapfDingbats is the code of a figure 3, which is what a text layer says where
nothing tells the meaning of its codes. ZapfDingbats is Adobe's published encoding and glyph list,
whole; Symbol is Adobe's as far as texts use it. Of Wingdings and Webdings the signs that forms and
lists use are known; their other glyphs have no meaning here, and none is better than a letter.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

UNKNOWN = "\ufffd"

_SIGNS = (
    "✁✂✃✄☎✆✇✈✉☛☞✌✍✎✏✐✑✒✓✔✕✖✗✘✙✚✛✜✝✞✟✠✡✢✣✤✥✦✧★✩✪✫✬✭✮✯✰✱✲✳✴✵✶✷✸✹✺✻✼✽✾✿❀❁❂❃❄❅❆❇❈❉❊❋●❍■❏❐❑❒"
    "▲▼◆❖◗❘❙❚❛❜❝❞❨❩❪❫❬❭❮❯❰❱❲❳❴❵❡❢❣❤❥❦❧♣♦♥♠①②③④⑤⑥⑦⑧⑨⑩❶❷❸❹❺❻❼❽❾❿➀➁➂➃➄➅➆➇➈➉➊➋➌➍➎➏➐➑➒➓"
    "➔→↔↕➘➙➚➛➜➝➞➟➠➡➢➣➤➥➦➧➨➩➪➫➬➭➮➯➱➲➳➴➵➶➷➸➹➺➻➼➽➾"
)
"""Of ZapfDingbats, in the order of the codes."""
_CODES = (*range(0x21, 0x7F), *range(0x80, 0x8E), *range(0xA1, 0xF0), *range(0xF1, 0xFF))
_NUMBERS = """
1 2 202 3 4 5 119 118 117 11 12 13 14 15 16 105 17 18 19 20 21 22 23 24 25 26 27 28 6 7 8 9 10 29 30
31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
64 65 66 67 68 69 70 71 72 73 74 203 75 204 76 77 78 79 81 82 83 84 97 98 99 100 89 90 93 94 91 92
205 85 206 86 87 88 95 96 101 102 103 104 106 107 108 112 111 110 109 120 121 122 123 124 125 126
127 128 129 130 131 132 133 134 135 136 137 138 139 140 141 142 143 144 145 146 147 148 149 150 151
152 153 154 155 156 157 158 159 160 161 163 164 196 165 192 166 167 168 169 170 171 172 173 162 174
175 176 177 178 179 193 180 199 181 200 182 201 183 184 197 185 194 198 186 195 187 188 189 190 191
"""
"""The glyphs' names, `a1` and so on, in the same order."""
ZAPF_CODES: Mapping[int, str] = dict(zip(_CODES, _SIGNS, strict=True))
_ZAPF_NAMES: Mapping[str, str] = {
    f"a{number}": sign for number, sign in zip(_NUMBERS.split(), _SIGNS, strict=True)
}

_WINGDINGS: Mapping[int, str] = {
    **{0x22: "✂", 0x28: "☎", 0x29: "✆", 0x2A: "✉", 0x36: "⌛", 0x37: "⌨", 0x3F: "✍"},
    **{0x41: "✌", 0x45: "☜", 0x46: "☞", 0x47: "☝", 0x48: "☟", 0x4A: "☺", 0x4C: "☹", 0x51: "✈"},
    **{0x6C: "●", 0x6E: "■", 0x6F: "□", 0x71: "❑", 0x72: "❒", 0x75: "◆", 0x76: "❖", 0x78: "⌧"},
    **{0x81 + i: chr(0x2460 + i) for i in range(10)},
    **{0x8C + i: chr(0x2776 + i) for i in range(10)},
    **{0x9E: "·", 0x9F: "•", 0xA1: "○", 0xA4: "◉", 0xA5: "◎", 0xA7: "▪", 0xA8: "□", 0xAB: "★"},
    **{0xD8: "➢", 0xDF: "←", 0xE0: "→", 0xE1: "↑", 0xE2: "↓", 0xE8: "➔"},
    **{0xEF: "⇦", 0xF0: "⇨", 0xF1: "⇧", 0xF2: "⇩", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑"},
}
_WINGDINGS_2: Mapping[int, str] = {0x4F: "✗", 0x50: "✓", 0x52: "☑", 0xA3: "□"}
_WEBDINGS: Mapping[int, str] = {0x61: "✔", 0x63: "□", 0x67: "■", 0x6E: "●", 0x72: "✖"}
_SYMBOL: Mapping[int, str] = {
    **dict(zip(range(0x41, 0x5B), "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True)),
    **dict(zip(range(0x61, 0x7B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True)),
    **{0x22: "∀", 0x24: "∃", 0x27: "∋", 0x2A: "∗", 0x2D: "−", 0x40: "≅", 0x5C: "∴", 0x5E: "⊥"},
    **{0xA2: "′", 0xA3: "≤", 0xA5: "∞", 0xAB: "↔", 0xAC: "←", 0xAD: "↑", 0xAE: "→", 0xAF: "↓"},
    **{0xB0: "°", 0xB1: "±", 0xB2: "″", 0xB3: "≥", 0xB4: "×", 0xB6: "∂", 0xB7: "•", 0xB8: "÷"},
    **{0xB9: "≠", 0xBA: "≡", 0xBB: "≈", 0xBC: "…", 0xC5: "⊕", 0xC6: "∅", 0xC7: "∩", 0xC8: "∪"},
    **{0xCE: "∈", 0xCF: "∉", 0xD0: "∠", 0xD5: "∏", 0xD6: "√", 0xD7: "⋅", 0xD8: "¬", 0xD9: "∧"},
    **{0xDA: "∨", 0xDB: "⇔", 0xDE: "⇒", 0xE5: "∑", 0xF2: "∫"},
}
_FAMILIES: Mapping[str, Mapping[int, str]] = {
    **dict.fromkeys(("zapfdingbats", "itczapfdingbats", "zapfdingbatsitc"), ZAPF_CODES),
    **dict.fromkeys(("dingbats", "d050000l"), ZAPF_CODES),
    **dict.fromkeys(("wingdings", "wingdingsregular"), _WINGDINGS),
    "wingdings2": _WINGDINGS_2,
    "webdings": _WEBDINGS,
    **dict.fromkeys(("symbol", "symbolmt"), _SYMBOL),
}
_LETTERS_TOO = _SYMBOL
"""The family in which figures and punctuation stand for themselves."""
_SUBSET = re.compile(r"[A-Z]{6}\+")
_STYLE = re.compile(r"[,-](?:bold|italic|regular|oblique|bolditalic)$")
_PRIVATE = range(0xF000, 0xF100)
"""Where Microsoft's symbol fonts have their codes."""


class Glyph(NamedTuple):
    """A glyph as it was drawn."""

    letter: str
    """What the document, or a guess, says of it."""
    code: int
    """In its font, where that has codes of one byte; else anything, -1 for none."""
    name: str
    """In the font's program; may be empty."""


def is_symbol_font(font: str) -> bool:
    """Whether a font of this name has signs under the codes of letters."""
    return _family(font) is not None


def is_ambiguous(font: str, letter: str) -> bool:
    """Whether what is said of a glyph of such a font may be something else than what is seen."""
    if _is_space(letter):
        # MuPDF takes the figures in the name of glyph a32 for a code, which is that of the space.
        return _family(font) is ZAPF_CODES
    return ord(letter) < 0x2190 or letter == UNKNOWN


def sign_of(font: str, glyph: Glyph) -> str:
    """The sign that a glyph of a symbol font shows; what was said of it where that may be right."""
    table = _family(font)
    letter = glyph.letter
    if table is ZAPF_CODES and glyph.name in _ZAPF_NAMES:
        return _ZAPF_NAMES[glyph.name]
    if table is None or _is_space(letter):
        return letter
    if ord(letter) in _PRIVATE:
        return table.get(ord(letter) & 0xFF, letter)
    if not is_ambiguous(font, letter):
        return letter
    if table is _LETTERS_TOO:
        # What is beyond ASCII may be right: × and ± are in this font, under other codes.
        return table.get(ord(letter), letter) if letter.isascii() else letter
    return table.get(_code(glyph), UNKNOWN)


def _is_space(letter: str) -> bool:
    """Whether it is one in any font; control characters are codes like others here."""
    return unicodedata.category(letter) == "Zs"


def _code(glyph: Glyph) -> int:
    """The glyph's code. Of fonts whose codes have two bytes only the letter tells."""
    if "!" <= glyph.letter <= "~":
        return ord(glyph.letter)
    return glyph.code if 0x20 < glyph.code < 0x100 else ord(glyph.letter)


def _family(font: str) -> Mapping[int, str] | None:
    name = _STYLE.sub("", _SUBSET.sub("", font).lower())
    return _FAMILIES.get(re.sub(r"[^a-z0-9]", "", name))
