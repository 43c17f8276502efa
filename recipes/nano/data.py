"""Renders synthetic text lines with their glyph centres, and packs them into training batches.

A line is drawn at a scanner's resolution, degraded there, then brought to LINE_HEIGHT pixels the
way `vlmcli` crops its lines: dark on light, natural width. Everything follows from the seed. It
never reads a page of a real document. Per-glyph masks were given up: centres are enough for the
dense loss, and CTC needs no places at all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from degrade import Picture, degrade, levels
from fonts import Face, Kind, list_faces
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from setting import Setting, place, set_line, stand_ins
from text import TextSource

LINE_HEIGHT = 28
COLUMN = 7  # pixels: width of one patch, the grain of the dense loss
TOKEN = 28  # pixels: width of one visual token

_PROFILE_WEIGHTS = {
    **{"clean": 0.15, "screen": 0.16, "print": 0.30},
    **{"grey": 0.12, "typescript": 0.17, "low": 0.10},
}
_KIND_WEIGHTS: dict[str, dict[Kind, float]] = {
    "clean": {"serif": 0.32, "sans": 0.42, "mono": 0.08, "typewriter": 0.08, "narrow": 0.10},
    "screen": {"serif": 0.34, "sans": 0.46, "mono": 0.06, "typewriter": 0.04, "narrow": 0.10},
    "print": {"serif": 0.76, "sans": 0.13, "mono": 0.02, "typewriter": 0.06, "narrow": 0.03},
    "grey": {"serif": 0.50, "sans": 0.32, "mono": 0.04, "typewriter": 0.08, "narrow": 0.06},
    "typescript": {"typewriter": 0.96, "mono": 0.04},
    "low": {"typewriter": 0.50, "serif": 0.28, "sans": 0.18, "narrow": 0.04},
}
# Designs like those of the books that get scanned: they come three times as often in "print".
_BOOKISH = frozenset(
    (
        *("Old Standard TT", "Caslon", "Baskervald ADF", "CMU Serif", "Latin Modern Roman"),
        *("Junicode", "Linux Libertine", "URW Bookman", "EB Garamond", "Charis SIL", "FreeSerif"),
    )
)
_OLD_FIGURES = 0.8  # of the shaped lines with figures in "print"; half of the others
_TYPED = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "—": "--", "–": "-", "…": "...", "•": "*"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticLine:
    """A line: `pixels` uint8 (28, width), its text, and the x of each character's centre."""

    pixels: NDArray[np.uint8]
    text: str
    centres: tuple[float, ...]
    profile: str
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Lines of like width: pixels uint8 (B, 28, W), dense int64 (B, W/7), targets as bytes."""

    pixels: NDArray[np.uint8]
    dense: NDArray[np.int64]
    targets: tuple[bytes, ...]


class LineGenerator:
    """Draws lines one after another, deterministically by seed."""

    def __init__(self, seed: int, *, held_out: bool = False) -> None:
        self._random = random.Random(seed)
        self._rng = np.random.default_rng(seed)
        self._text = TextSource(seed)
        self._faces = tuple(face for face in list_faces() if face.held_out == held_out)
        self._families: dict[Kind, dict[str, list[Face]]] = {}
        for face in self._faces:
            kinds = self._families.setdefault(face.kind, {})
            kinds.setdefault(face.family, []).append(face)

    def draw(
        self, longest: int, *, kind: str | None = None, profile: str | None = None
    ) -> SyntheticLine:
        """One line of at most `longest` characters; `kind` and `profile` fix text and damage."""
        rng = self._random
        for _ in range(50):
            damage = (
                profile or rng.choices(list(_PROFILE_WEIGHTS), list(_PROFILE_WEIGHTS.values()))[0]
            )
            face = self._face(damage)
            text = typed_text(self._text.draw(_length(rng, longest), kind), face)
            line = self._render(text, face, damage)
            if line is not None:
                return line
        return self.draw(longest, profile=profile)

    def _face(self, profile: str) -> Face:
        weights = {k: w for k, w in _KIND_WEIGHTS[profile].items() if k in self._families}
        rng = self._random
        kinds: Sequence[Kind] = tuple(weights) or tuple(self._families)
        kind = rng.choices(kinds, [weights.get(k, 1.0) for k in kinds])[0]
        faces = self._families[kind]
        families = sorted(faces)
        old = [3.0 if profile == "print" and name in _BOOKISH else 1.0 for name in families]
        chosen = faces[rng.choices(families, old)[0]]
        if rng.random() < (
            0.8 if kind == "typewriter" else 0.6
        ):  # books and letters are mostly upright and regular
            plain = [
                face for face in chosen if face.style in ("Regular", "Book", "Roman", "Medium")
            ]
            chosen = plain or chosen
        return rng.choice(chosen)

    def _render(self, text: str, face: Face, profile: str) -> SyntheticLine | None:
        """Draw and damage a line; None where the face lacks a letter or nothing is to be seen."""
        rng = self._random
        try:
            others = stand_ins(text, face, self._faces, rng.random())
        except LookupError:
            return None
        size = rng.choice((18, 22, 26, 30, 34, 38, 44, 52))
        typed = face.kind == "typewriter" and rng.random() < 0.7
        small = rng.uniform(0.7, 0.84) if not typed and rng.random() < 0.035 else None
        shaped = rng.random() < 0.4
        onum = _OLD_FIGURES if any(map(str.isdigit, text)) and profile == "print" else 0.5
        features = ["onum"] if shaped and face.path is not None and rng.random() < onum else None
        line = set_line(text, face, size, others, small=small, shaped=shaped, features=features)
        spread = rng.uniform(-0.02, 0.12) * size if rng.random() < 0.12 and not typed else 0.0
        gap = 1.0 if typed else rng.choice((1.0, 1.0, rng.uniform(0.75, 2.2)))
        stop = rng.choice((1.0, rng.uniform(1.4, 2.3)))
        thin = rng.uniform(0.08, 0.3) * size if profile == "print" and rng.random() < 0.2 else 0.0
        places, width = place(
            line, spread=spread, gap=gap, stop=1.0 if gap > 1.5 else stop, thin=thin
        )
        if width < 2:
            return None
        top, bottom = self._extent(line)
        margin = self._side() * size
        canvas_width = math.ceil(width + margin + self._side() * size)
        height = math.ceil(bottom - top)
        image = Image.new("L", (canvas_width, height), 255)
        pen = ImageDraw.Draw(image)
        split = spread != 0.0 or thin != 0.0
        origin = (margin, -top)
        self._write(pen, line, places, origin, typed=typed, split=split)
        self._neighbours(pen, text, (margin, -top), line.font, 0.08)
        if rng.random() < 0.04:
            row = bottom - top - rng.uniform(0.1, 0.25) * size
            pen.line((margin, row, margin + width, row), fill=0, width=max(1, size // 14))
        picture = degrade(np.asarray(image, dtype=np.float32), profile, self._rng)
        pixels = self._to_height(picture)
        factor = pixels.shape[1] / canvas_width
        centres = tuple((x + advance / 2 + margin) * factor for x, advance in places)
        return SyntheticLine(
            pixels=pixels, text=line.text, centres=centres, profile=profile, family=face.family
        )

    def _extent(self, line: Setting) -> tuple[float, float]:
        """Top and bottom of the crop in the font's coordinates (0 is the ascender line)."""
        rng, font = self._random, line.font
        top, bottom = line.bounds("" if rng.random() < 0.6 else "Hgf")
        size = float(font.size)
        if bottom - top < 0.45 * size:  # a dash or a dot: no line finder crops that closely
            top, bottom = font.getbbox("x")[1] - 0.2 * size, font.getbbox("x")[3] + 0.1 * size
        # The finder leaves 0.08 letter sizes, some 0.05 em; more where its box is loose.
        most = 0.1 if rng.random() < 0.85 else 0.35
        return top - rng.uniform(0.01, most) * size, bottom + rng.uniform(0.01, most) * size

    def _side(self) -> float:
        """White before or behind the line in em; the finder leaves 0.4 letter sizes."""
        rng = self._random
        return rng.uniform(0.12, 0.36) if rng.random() < 0.85 else rng.uniform(0.02, 0.7)

    def _write(
        self,
        pen: ImageDraw.ImageDraw,
        line: Setting,
        places: Sequence[tuple[float, float]],
        origin: tuple[float, float],
        *,
        typed: bool,
        split: bool,
    ) -> None:
        """Draw word by word; glyph by glyph where fonts change or a typewriter hits unevenly."""
        rng, text, size = self._random, line.text, line.font.size
        jitter = rng.uniform(0, 0.035) * size if typed else 0.0
        faint = rng.uniform(0, 90) if typed else 0.0
        stroke = int(typed and rng.random() < 0.65) * max(1, round(size / 32))
        for start, stop in _pieces(line, whole=not (typed or split)):
            at = (
                origin[0] + places[start][0] + rng.uniform(-jitter, jitter) * 0.7,
                origin[1] + line.drop(start) + rng.uniform(-jitter, jitter),
            )
            pen.text(
                at,
                text[start:stop],
                font=line.fonts[start],
                fill=int(rng.random() ** 2 * faint),
                stroke_width=stroke,
                features=line.features_at(start),
            )

    def _neighbours(
        self,
        pen: ImageDraw.ImageDraw,
        text: str,
        origin: tuple[float, float],
        font: ImageFont.FreeTypeFont,
        chance: float,
    ) -> None:
        """Let the lines above and below peek into the crop."""
        rng = self._random
        pitch = rng.uniform(0.95, 1.3) * font.size
        for sign in (-1, 1):
            if rng.random() < chance:
                other = self._text.draw(len(text) + 4, "prose")
                place = (origin[0] - rng.uniform(0, 1) * font.size, origin[1] + sign * pitch)
                pen.text(place, other, font=font, fill=0)

    def _to_height(self, picture: Picture) -> NDArray[np.uint8]:
        rng = self._random
        height, width = picture.shape
        new_width = max(10, round(width * LINE_HEIGHT / height * rng.uniform(0.88, 1.1)))
        # As the finder crops: near the page's resolution, evened there, then averaged.
        fine = max(1, round(height / LINE_HEIGHT))
        way = cv2.INTER_CUBIC if height < 0.8 * LINE_HEIGHT else cv2.INTER_LINEAR
        shape = (new_width * fine, LINE_HEIGHT * fine)
        strip = cv2.resize(picture, shape, interpolation=way).astype(np.float32)
        if rng.random() < 0.95:
            strip = levels(strip)
        scaled = cv2.resize(strip, (new_width, LINE_HEIGHT), interpolation=cv2.INTER_AREA)
        return np.clip(scaled, 0, 255).astype(np.uint8)


def _pieces(line: Setting, *, whole: bool) -> Iterator[tuple[int, int]]:
    """What is drawn at once: words where that can be, else characters; never spaces."""
    start = 0
    for word in line.text.split(" "):
        stop = start + len(word)
        if whole and word and not line.is_mixed(start, stop):
            yield start, stop
        else:
            yield from ((at, at + 1) for at in range(start, stop))
        start = stop + 1


def typed_text(text: str, face: Face) -> str:
    """The text as the face's machine can type it: no slanted quotes, no long dashes."""
    return text.translate(_TYPED) if face.kind == "typewriter" else text


def _length(rng: random.Random, longest: int) -> int:
    """Characters of a line: printed lines are rather long, cells and headings short."""
    return rng.randint(1, longest) if rng.random() < 0.5 else rng.randint(longest // 2, longest)


def pack(lines: Sequence[SyntheticLine], blank: int) -> Batch:
    """Pad lines on the right with their background to one width, a multiple of TOKEN."""
    width = TOKEN * max(math.ceil(line.pixels.shape[1] / TOKEN) for line in lines)
    pixels = np.full((len(lines), LINE_HEIGHT, width), 255, np.uint8)
    dense = np.full((len(lines), width // COLUMN), blank, np.int64)
    for row, line in enumerate(lines):
        used = line.pixels.shape[1]
        pixels[row, :, :used] = line.pixels
        pixels[row, :, used:] = int(np.median(line.pixels[:, -2:]))
        for character, centre in zip(line.text, line.centres, strict=True):
            column = min(width // COLUMN - 1, max(0, int(centre // COLUMN)))
            dense[row, column] = character.encode()[-1]
    targets = tuple(line.text.encode() for line in lines)
    return Batch(pixels=pixels, dense=dense, targets=targets)


def batches(generator: LineGenerator, longest: int, tokens: int, blank: int) -> Iterator[Batch]:
    """Batches of about `tokens` visual tokens from one pool of lines, in random order."""
    pool = sorted(
        (generator.draw(longest) for _ in range(256)), key=lambda line: line.pixels.shape[1]
    )
    packs: list[list[SyntheticLine]] = [[]]
    for line in pool:
        width = math.ceil(line.pixels.shape[1] / TOKEN)
        if packs[-1] and (len(packs[-1]) + 1) * width > tokens:
            packs.append([])
        packs[-1].append(line)
    generator._random.shuffle(packs)
    for lines in packs:
        yield pack(lines, blank)
