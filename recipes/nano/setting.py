"""Sets a line: which font draws each character, where it stands, how high the line is.

Most lines have one font. Signs of forms come from another one where the text's own lacks them, and
small capitals are capitals of a smaller size: their label has capitals, as they are transcribed.
Faces' own small capitals were given up: few have them, and these look the same at 28 pixels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from fonts import Face, has_glyph, open_face
from PIL import ImageFont
from text import ALPHABET, FORM_SIGNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """`text` is the label and what is drawn, its i-th sign with `fonts[i]`.

    `features` are those of OpenType that `font`, the line's own, is asked for.
    """

    text: str
    font: ImageFont.FreeTypeFont
    fonts: tuple[ImageFont.FreeTypeFont, ...]
    features: list[str] | None

    def is_mixed(self, start: int, stop: int) -> bool:
        """Whether another font than the line's own draws a part of these characters."""
        return any(font is not self.font for font in self.fonts[start:stop])

    def features_at(self, index: int) -> list[str] | None:
        """What the font of this character is asked for."""
        return self.features if self.fonts[index] is self.font else None

    def drop(self, index: int) -> float:
        """Pixels from the line's ascender down to that of the character's font: one baseline."""
        return float(self.font.getmetrics()[0] - self.fonts[index].getmetrics()[0])

    def bounds(self, beside: str = "") -> tuple[float, float]:
        """Top and bottom of the ink, pixels below the ascender, as if `beside` stood there too."""
        own = "".join(
            sign for sign, font in zip(self.text, self.fonts, strict=True) if font is self.font
        )
        boxes = [self.font.getbbox(own + beside)] if (own + beside).strip() else []
        drops = [0.0] * len(boxes)
        for index, font in enumerate(self.fonts):
            if font is not self.font and self.text[index] != " ":
                boxes.append(font.getbbox(self.text[index]))
                drops.append(self.drop(index))
        tops = [box[1] + drop for box, drop in zip(boxes, drops, strict=True)]
        bottoms = [box[3] + drop for box, drop in zip(boxes, drops, strict=True)]
        return min(tops), max(bottoms)


@functools.cache
def _faces_with(character: str, faces: tuple[Face, ...]) -> tuple[Face, ...]:
    return tuple(face for face in faces if has_glyph(face.path, character))


def stand_ins(text: str, face: Face, faces: tuple[Face, ...], draw: float) -> dict[str, Face]:
    """A face for each sign of forms that `face` lacks, chosen by `draw` (0 to 1).

    Raises:
        LookupError: another character has no glyph, or no face has the sign.
    """
    found: dict[str, Face] = {}
    for character in sorted(set(text)):
        if has_glyph(face.path, character):
            continue
        others = _faces_with(character, faces) if character in FORM_SIGNS else ()
        if not others:
            raise LookupError(f"no glyph for {character!r} in {face.family}")
        found[character] = others[int(draw * len(others))]
    return found


def capitals(text: str) -> str | None:
    """The label of a line in small capitals; None where a letter has no capital of one sign."""
    label = text.upper()
    fits = len(label) == len(text) and ALPHABET.issuperset(label)
    return label if fits and label != text else None


def set_line(
    text: str,
    face: Face,
    size: int,
    others: dict[str, Face],
    *,
    small: float | None = None,
    shaped: bool = False,
    features: list[str] | None = None,
) -> Setting:
    """Choose fonts at `size` pixels an em; `small` is the size of small capitals to the capitals'.

    `shaped` and `features` as for `open_face` and Pillow.
    """
    font = open_face(face.path, size, shaped)
    label = capitals(text) if small is not None else None
    little = font if label is None else open_face(face.path, round(size * (small or 1.0)), shaped)
    fonts = []
    for sign, printed in zip(text, label or text, strict=True):
        if sign in others:
            fonts.append(open_face(others[sign].path, size, False))
        else:
            fonts.append(font if sign == printed else little)
    return Setting(text=label or text, font=font, fonts=tuple(fonts), features=features)


def place(
    line: Setting, *, spread: float, gap: float, stop: float, thin: float
) -> tuple[list[tuple[float, float]], float]:
    """Place (x, advance) of each character, and the width of the line, in pixels.

    Spaces are `gap` times the font's, behind the end of a sentence `stop` times more; `thin` is
    the white of old printers before ; : ! ? and inside quotation marks, which no label shows.
    """
    places: list[tuple[float, float]] = []
    x, ended, start = 0.0, False, 0
    for index, word in enumerate(line.text.split(" ")):
        if index:
            space = line.font.getlength(" ") * gap * (stop if ended else 1.0) + spread
            places.append((x, space))
            x += space
        ended = word.endswith((".", "?", "!", ":", ";", '."', ".”"))
        advances = _advances(line, start, word, whole=spread == 0.0 and thin == 0.0)
        for character, advance in zip(word, advances, strict=True):
            x += thin if character in ";:!?”" else 0.0
            places.append((x, advance))
            x += advance + spread + (thin if character == "“" else 0.0)
        start += len(word) + 1
    return places, x


def _advances(line: Setting, start: int, word: str, *, whole: bool) -> Sequence[float]:
    if not word:
        return ()
    stop = start + len(word)
    advances = [
        line.fonts[index].getlength(line.text[index], features=line.features_at(index))
        for index in range(start, stop)
    ]
    if not whole or line.is_mixed(start, stop):
        return advances
    # A word drawn as one is kerned; its letters share what that takes away.
    total = line.font.getlength(word, features=line.features)
    scale = total / max(1e-6, sum(advances))
    return [advance * scale for advance in advances]
