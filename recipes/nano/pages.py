"""Makes page pictures in fonts that the model never saw: what compare.py reads beside real scans.

Every page is one held-out face on white paper, 300 dots an inch at 10 to 12 points, one text line
a printed line. It draws no columns, tables or damage beyond what its set says; lines are known, so
that tools can be judged line by line.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from data import typed_text
from fonts import Face, has_glyph, list_faces, open_face
from PIL import Image, ImageDraw
from text import TextSource

LINES = 24
WIDTH, MARGIN = 2000, 150  # pixels
_STYLES = ("Regular", "Book", "Roman", "Medium", "Bold", "Italic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page picture and its true text."""

    image: Path
    truth: str


# name: (kind of text, sigma of the blur and of the noise: none for clean)
SETS: dict[str, tuple[str, tuple[float, float]]] = {
    "held-out": ("prose", (0.0, 0.0)),
    "amounts": ("record", (0.7, 6.0)),
    "accents": ("other", (0.0, 0.0)),
}


def held_out_faces() -> list[Face]:
    """One upright face a held-out family, and its bold or italic where there is one."""
    chosen: dict[tuple[str, str], Face] = {}
    for face in list_faces():
        if face.held_out and face.style in _STYLES:
            kind = "plain" if face.style in _STYLES[:4] else face.style
            chosen.setdefault((face.family, kind), face)
    return list(chosen.values()) or [face for face in list_faces() if face.held_out]


def draw_page(
    lines: Sequence[str], face: Face, size: int, damage: tuple[float, float], seed: int
) -> np.ndarray:
    """The lines one below the other, uint8 (H, WIDTH)."""
    pitch = round(1.45 * size)
    image = Image.new("L", (WIDTH, 2 * MARGIN + pitch * len(lines)), 255)
    pen, font = ImageDraw.Draw(image), open_face(face.path, size, False)
    for index, line in enumerate(lines):
        pen.text((MARGIN, MARGIN + index * pitch), line, font=font, fill=0)
    pixels = np.asarray(image, dtype=np.float32)
    sigma, grain = damage
    if sigma:
        noise = np.random.default_rng(seed).standard_normal(pixels.shape, dtype=np.float32)
        pixels = cv2.GaussianBlur(pixels, (0, 0), sigma) + noise * grain
    return np.clip(pixels, 0, 255).astype(np.uint8)


def make_set(name: str, folder: Path, count: int, seed: int = 4711) -> list[Page]:
    """`count` pages of one of SETS as PNG files in `folder`, the faces in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    kind, damage = SETS[name]
    faces = held_out_faces()
    rng, source = random.Random(seed), TextSource(seed)
    pages = []
    for index in range(count):
        face = faces[index * 7 % len(faces)]
        size = rng.randint(40, 50)
        font = open_face(face.path, size, False)
        lines: list[str] = []
        while len(lines) < LINES:
            text = typed_text(source.draw(rng.randint(20, 70), kind), face)
            fits = font.getlength(text) <= WIDTH - 2 * MARGIN
            if len(text) > 3 and fits and all(has_glyph(face.path, c) for c in set(text)):
                lines.append(text)
        path = folder / f"{name}-{index:02}-{face.family.replace(' ', '')}.png"
        Image.fromarray(draw_page(lines, face, size, damage, seed + index)).save(path)
        pages.append(Page(image=path, truth="\n".join(lines)))
    return pages
