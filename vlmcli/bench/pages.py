"""Made-up scanned pages: printed lines of distinct text, rendered, made grey and noisy.

Deterministic by seed, drawn with PyMuPDF's built-in fonts, so that a benchmark needs no input files
and no system fonts. The text means nothing; every page's is different.
"""

import io
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from vlmcli.documents import mupdf

_WORDS = """\
the of and to in that it was is for on are with as be this have from at by had not but
we which they all were one their has been more when would there can about other than into time only
some could may these two over also then such people through most our must even because new man state
years made many before where much how own well after right three under still while number men last
might great old off since against used came few house use during without place again school small
world every found part never order high given within general another case left large second thought
less both public water course interest court department office minutes letter agreement account
station machine report evidence question service document witness chapter quarter measure"""
_FONTS = ("tiro", "helv", "cour", "tibo", "tiit")
_MARKS = (".", ",", ";", ":", "?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A kind of page: its size in points, and how many lines are printed on it."""

    width: float
    height: float
    lines: int

    def picture(self, seed: int) -> npt.NDArray[np.uint8]:
        """A page of this kind as a scanner would give it; see `page_picture`."""
        return page_picture(seed, width=self.width, height=self.height, lines=self.lines)


def random_line(rng: random.Random, length: int) -> str:
    """About `length` characters of words, amounts and dates."""
    words = _WORDS.split()
    parts: list[str] = []
    while sum(map(len, parts)) + len(parts) < length:
        kind = rng.random()
        if kind < 0.08:
            parts.append(f"{rng.uniform(1, 9999):,.2f}")
        elif kind < 0.12:
            parts.append(f"{rng.randint(1, 28)}.{rng.randint(1, 12)}.{rng.randint(1900, 2026)}")
        else:
            word = rng.choice(words)
            parts.append(word.capitalize() if rng.random() < 0.15 else word)
            if rng.random() < 0.1:
                parts[-1] += rng.choice(_MARKS)
    return " ".join(parts)


def random_lines(seed: int, count: int, length: int) -> list[str]:
    """Lines of about `length` characters, at most, by seed."""
    rng = random.Random(seed)
    return [random_line(rng, length - 12)[:length] for _ in range(count)]


def page_picture(
    seed: int, *, width: float = 595, height: float = 842, lines: int = 45, dpi: int = 150
) -> npt.NDArray[np.uint8]:
    """One page as a scanner would give it: uint8 (H, W) grey. Sizes in points."""
    pymupdf = mupdf.load()
    noise = np.random.default_rng(seed)
    with pymupdf.open() as document:
        page = document.new_page(width=width, height=height)
        _print(page, random.Random(seed), lines)
        return _scanned(page, noise, dpi)


def _scanned(page: Any, noise: np.random.Generator, dpi: int) -> npt.NDArray[np.uint8]:
    """A page on grey paper, with noise of four grey levels."""
    pixmap = page.get_pixmap(dpi=dpi, colorspace=mupdf.load().csGRAY)
    clean = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width)
    grey = 235.0 - (255 - clean) * 0.8 + noise.normal(0, 4, clean.shape)
    return np.clip(grey, 0, 255).astype(np.uint8)


def letter_picture(seed: int, *, version: int, lines: int = 30) -> npt.NDArray[np.uint8]:
    """A page as `page_picture` gives it, A4 at 150 dpi; two of its lines depend on the version.

    So do the noise and nothing else.
    """
    texts = random_lines(seed, lines, 70)
    texts[lines // 3], texts[lines // 2] = random_lines(1000 * version + seed, 2, 70)
    pymupdf = mupdf.load()
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=842)
        for row, text in enumerate(texts):
            page.insert_text((60, 70 + 740 / lines * row), text, fontname="tiro", fontsize=11)
        return _scanned(page, np.random.default_rng((seed, version)), 150)


def write_print(path: Path, papers: Sequence[Paper]) -> None:
    """A PDF of printed pages, drawn as text, which also is their text layer."""
    pymupdf = mupdf.load()
    with pymupdf.open() as document:
        for seed, paper in enumerate(papers):
            page = document.new_page(width=paper.width, height=paper.height)
            _print(page, random.Random(seed), paper.lines)
        document.save(path)


def _print(page: Any, rng: random.Random, lines: int) -> None:
    """Write lines of random text over the page; wide margins, unless the page is small."""
    width, height = page.rect.width, page.rect.height
    margin = min(50.0, 0.1 * width)
    top = min(60.0, 0.25 * height)
    font = rng.choice(_FONTS)
    step = (height - 40 - top) / max(lines, 1) if height > 100 else (height - top) / max(lines, 1)
    size = min(11.0, 0.75 * step)
    room = max(3, int((width - 2 * margin) / (size * (0.6 if font == "cour" else 0.5))))
    for number in range(lines):
        text = random_line(rng, room - 12)[:room]
        page.insert_text((margin, top + step * number), text, fontname=font, fontsize=size)


def write_scan(path: Path, pictures: Iterator[npt.NDArray[np.uint8]], *, dpi: int = 150) -> None:
    """A PDF with one JPEG picture a page and no text layer, written page by page."""
    pymupdf = mupdf.load()
    with pymupdf.open() as document:
        for picture in pictures:
            height, width = picture.shape
            stream = io.BytesIO()
            Image.fromarray(picture).save(stream, "JPEG", quality=80)
            page = document.new_page(width=width * 72 / dpi, height=height * 72 / dpi)
            page.insert_image(page.rect, stream=stream.getvalue())
        document.save(path)
