"""Finds the font files the recipe renders with, by family and kind.

It only lists what fontconfig reports and what Pillow can open: it downloads nothing, and it does
not judge licences (README.md lists the Debian packages and their terms). Where no known family
of a side is installed the font that Pillow carries stands in, so that the recipe runs anywhere.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Literal

from PIL import ImageFont

Kind = Literal["serif", "sans", "mono", "typewriter", "narrow"]

# One pattern a design, not a name: families that are the same drawing under two names (Carlito is
# Lato, TeX Gyre Schola is C059) must fall on the same side of the held-out line.
_FAMILIES: tuple[tuple[str, Kind, bool], ...] = (
    ("Gentium", "serif", True),
    ("Lato", "sans", True),
    ("Carlito", "sans", True),
    ("Caladea", "serif", True),
    ("C059", "serif", True),
    ("TeX Gyre Schola", "serif", True),
    ("CMU Typewriter Text", "typewriter", True),
    ("Latin Modern Mono", "typewriter", True),
    ("GWMonospace", "typewriter", True),
    ("Liberation Serif", "serif", False),
    ("DejaVu Serif", "serif", False),
    ("FreeSerif", "serif", False),
    ("Nimbus Roman", "serif", False),
    ("P052", "serif", False),
    ("URW Bookman", "serif", False),
    ("TeX Gyre Termes", "serif", False),
    ("TeX Gyre Pagella", "serif", False),
    ("TeX Gyre Bonum", "serif", False),
    ("Latin Modern Roman", "serif", False),
    ("CMU Serif", "serif", False),
    ("CMU Concrete", "serif", False),
    ("Linux Libertine", "serif", False),
    ("EB Garamond", "serif", False),
    ("Old Standard TT", "serif", False),
    ("Charis SIL", "serif", False),
    ("Vollkorn", "serif", False),
    ("Junicode", "serif", False),
    ("Quattrocento", "serif", False),
    ("Caslon", "serif", False),
    ("Baskervald ADF", "serif", False),
    ("Berenis ADF", "serif", False),
    ("Accanthis ADF", "serif", False),
    ("Romande ADF", "serif", False),
    ("STIX", "serif", False),
    ("Noto Serif", "serif", False),
    ("Liberation Sans", "sans", False),
    ("DejaVu Sans", "sans", False),
    ("FreeSans", "sans", False),
    ("Nimbus Sans", "sans", False),
    ("URW Gothic", "sans", False),
    ("TeX Gyre Heros", "sans", False),
    ("TeX Gyre Adventor", "sans", False),
    ("Latin Modern Sans", "sans", False),
    ("CMU Sans Serif", "sans", False),
    ("CMU Bright", "sans", False),
    ("Linux Biolinum", "sans", False),
    ("Open Sans", "sans", False),
    ("Roboto", "sans", False),
    ("Cantarell", "sans", False),
    ("Gillius ADF", "sans", False),
    ("Universalis ADF", "sans", False),
    ("Tuffy", "sans", False),
    ("Noto Sans", "sans", False),
    ("DejaVu Sans Mono", "mono", False),
    ("Noto Sans Mono", "mono", False),
    ("Inconsolata", "mono", False),
    ("Hack", "mono", False),
    ("OCR B", "mono", False),
    ("OCRA", "mono", False),
    ("Linux Libertine Mono", "mono", False),
    ("Liberation Mono", "typewriter", False),
    ("Courier Prime", "typewriter", False),
    ("FreeMono", "typewriter", False),
    ("Nimbus Mono PS", "typewriter", False),
    ("TeX Gyre Cursor", "typewriter", False),
    ("Tlwg Typewriter", "typewriter", False),
    ("Tlwg Typo", "typewriter", False),
    ("Tlwg Mono", "typewriter", False),
    ("GNUTypewriter", "typewriter", False),
)
_UNREADABLE = re.compile(
    r"Math|Symbol|Dingbat|Keyboard|Initials|Outline|Hairline|Thin|ExtraLight|Extra Light|Unslanted"
    r"|Dunhill|Upright|Quotation|Variable|Chancery|Sans Mono Oblique Bold|Emoji|Caps|Black",
)
_NARROW = re.compile(r"Narrow|Cond", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """One font file; `path` is None for the font that Pillow carries."""

    family: str
    kind: Kind
    style: str
    path: str | None
    held_out: bool


def _match(family: str) -> tuple[str, Kind, bool] | None:
    best: tuple[str, Kind, bool] | None = None
    for entry in _FAMILIES:
        if family.startswith(entry[0]) and (best is None or len(entry[0]) > len(best[0])):
            best = entry
    # "Noto Sans Devanagari" and its sisters draw other scripts.
    if best is not None and best[0] in ("Noto Sans", "Noto Serif") and family != best[0]:
        return None
    return best


def _parse(row: str) -> Face | None:
    path, _, rest = row.partition(": ")
    family_names, _, style = rest.partition(":style=")
    family = family_names.split(",")[0].strip()
    entry = _match(family)
    if entry is None or not path.lower().endswith((".ttf", ".otf", ".t1")):
        return None
    label = f"{family_names} {style}"
    if _UNREADABLE.search(label):
        return None
    kind: Kind = "narrow" if entry[1] == "sans" and _NARROW.search(label) else entry[1]
    return Face(family=entry[0], kind=kind, style=style.split(",")[0], path=path, held_out=entry[2])


@functools.cache
def list_faces() -> tuple[Face, ...]:
    """All usable faces of the known families, by path.

    Where no family of one side of the held-out line is installed, Pillow's own font stands in.
    """
    faces: dict[str, Face] = {}
    if shutil.which("fc-list"):
        answer = subprocess.run(
            ["fc-list", ":lang=en", "file", "family", "style"],
            capture_output=True,
            text=True,
            check=True,
        )
        for row in answer.stdout.splitlines():
            face = _parse(row)
            if face is not None and face.path is not None:
                faces[face.path] = face
    known = [faces[path] for path in sorted(faces)]
    stand_ins = [
        Face(family="Pillow", kind="sans", style="Regular", path=None, held_out=held)
        for held in (False, True)
        if all(face.held_out != held for face in known)
    ]
    return (*known, *stand_ins)


@functools.lru_cache(maxsize=1024)
def open_face(path: str | None, size: int, ligatures: bool) -> ImageFont.FreeTypeFont:
    """Open a face at `size` pixels an em; `ligatures` asks for Raqm shaping where Pillow has it."""
    engine = ImageFont.Layout.RAQM if ligatures else ImageFont.Layout.BASIC
    if path is None:
        font = ImageFont.load_default(size)
        assert isinstance(font, ImageFont.FreeTypeFont)
        return font
    return ImageFont.truetype(path, size, layout_engine=engine)


@functools.lru_cache(maxsize=65536)
def has_glyph(path: str | None, character: str) -> bool:
    """Whether the face draws `character` as something other than its missing-glyph box."""
    font = open_face(path, 24, False)
    mask = font.getmask(character)
    if mask.getbbox() is None:
        return character == " "
    missing = font.getmask("\U0010fffd")
    return mask.size != missing.size or bytes(mask) != bytes(missing)
