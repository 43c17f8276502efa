"""Pages for the reuse tests: invoices, forms and receipts from templates, and scans of them.

Rendered with PyMuPDF's built-in fonts, so that the tests need no font of the system.
"""

import random
from dataclasses import dataclass, replace

import cv2
import numpy as np

from vlmcli.documents import mupdf

FONTS = ("helv", "tiro", "cour", "hebo")
WIDTH, HEIGHT = 300, 210
"""Points: an A6 slip, so that a test can afford hundreds; text is 8 to 12 points all the same."""
_LEFT, _AMOUNTS, _TOP = 20, 215, 34
_ITEMS = (
    "oak panel",
    "hinge set",
    "wood screws",
    "steel pipe",
    "ball valve",
    "fine brush",
    "primer",
)
_FIELDS = (
    *("single", "married", "tenant", "owner", "citizen"),
    *("resident", "student", "retired", "employed", "insured"),
)


@dataclass(frozen=True)
class Sheet:
    """A page before it is printed: texts and boxes at points (x, baseline), and a stamp."""

    texts: tuple[tuple[float, float, str], ...]
    boxes: tuple[tuple[float, float, bool], ...] = ()
    stamp: tuple[str, int] | None = None
    """Its word, and how many grey levels darker than the paper it is."""
    font: str = "helv"
    size: float = 9.0

    def amounts(self) -> list[int]:
        """Which of the texts are amounts of money."""
        return [row for row, (x, _, _) in enumerate(self.texts) if x == _AMOUNTS]

    def with_text(self, row: int, text: str) -> "Sheet":
        texts = list(self.texts)
        x, y, before = texts[row]
        if text.startswith("-") and not before.startswith("-"):
            # The sign stands before the amount, which itself stays where it was.
            x -= _font(self.font).text_length("-", self.size)
        texts[row] = (x, y, text)
        return replace(self, texts=tuple(texts))

    def print(self, dpi: int = 150) -> np.ndarray:
        """Grey uint8 (H, W)."""
        pymupdf = mupdf.load()
        with pymupdf.open() as document:
            page = document.new_page(width=WIDTH, height=HEIGHT)
            if self.stamp is not None:
                word, depth = self.stamp
                _write(page, [(60, 120, word)], "hebo", 34, 1 - depth / 255, turn=20)
            _write(page, self.texts, self.font, self.size, 0)
            for x, y, is_ticked in self.boxes:
                _draw_box(page, x, y, self.size * 0.8, is_ticked)
            pixmap = page.get_pixmap(dpi=dpi, colorspace=pymupdf.csGRAY)
            return np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.h, pixmap.w).copy()


def _font(name):
    if name not in _fonts:
        _fonts[name] = mupdf.load().Font(name)
    return _fonts[name]


_fonts: dict = {}


def _write(page, texts, font, size, grey, turn=0):
    pymupdf = mupdf.load()
    writer = pymupdf.TextWriter(page.rect)
    for x, y, text in texts:
        writer.append((x, y), text, font=_font(font), fontsize=size)
    morph = (pymupdf.Point(texts[0][:2]), pymupdf.Matrix(turn)) if turn else None
    writer.write_text(page, color=(grey, grey, grey), morph=morph)


def _draw_box(page, x, y, side, is_ticked):
    page.draw_rect((x, y - side, x + side, y), color=(0, 0, 0), width=0.6)
    if is_ticked:
        left, low, right = (x + 0.2 * side, y - 0.5 * side), (x + 0.45 * side, y - 0.2 * side), None
        right = (x + 0.85 * side, y - 0.85 * side)
        page.draw_line(left, low, color=(0, 0, 0), width=0.8)
        page.draw_line(low, right, color=(0, 0, 0), width=0.8)


def invoice(seed: int, **style) -> Sheet:
    """A table of items with amounts in a column, and a total."""
    rng = random.Random(seed)
    sheet = Sheet(texts=(), **style)
    texts = [(_LEFT, _TOP, f"Northwind Traders   Invoice No. {rng.randrange(10**5):05d}")]
    y = _TOP + 2 * sheet.size
    while y < HEIGHT - 3 * sheet.size:
        texts.append((_LEFT, y, f"{rng.randrange(1, 40)} x {rng.choice(_ITEMS)}"))
        texts.append((_AMOUNTS, y, f"{rng.randrange(10, 999)}.{rng.randrange(100):02d}"))
        y += 1.5 * sheet.size
    texts.append((_AMOUNTS, HEIGHT - sheet.size, f"{rng.randrange(1000, 9999)}.50"))
    return replace(sheet, texts=tuple(texts))


def form(seed: int, **style) -> Sheet:
    """Fields with boxes in two columns, about half of them ticked."""
    rng = random.Random(seed)
    sheet = Sheet(texts=(), **style)
    texts = [(_LEFT, _TOP, "Application for a residence permit")]
    boxes = []
    for number, name in enumerate(_FIELDS):
        x = _LEFT + 130 * (number % 2)
        y = _TOP + sheet.size * (2.4 + 2 * (number // 2))
        texts.append((x + 1.6 * sheet.size, y, name))
        boxes.append((x, y, rng.random() < 0.5))
    return replace(sheet, texts=tuple(texts), boxes=tuple(boxes))


def receipt(seed: int, total: str, **style) -> Sheet:
    """A slip whose goods are those of every other with this seed, and a total."""
    sheet = invoice(seed, **style)
    return sheet.with_text(len(sheet.texts) - 1, total)


def with_other_digit(sheet: Sheet, rng: random.Random) -> Sheet:
    """One digit of one amount is another."""
    row = rng.choice(sheet.amounts())
    text = sheet.texts[row][2]
    place = rng.choice([k for k, sign in enumerate(text) if sign.isdigit()])
    digit = rng.choice([sign for sign in "0123456789" if sign != text[place]])
    return sheet.with_text(row, text[:place] + digit + text[place + 1 :])


def with_moved_point(sheet: Sheet, rng: random.Random) -> Sheet:
    """The decimal point of one amount stands one place to the left."""
    row = rng.choice(sheet.amounts())
    text = sheet.texts[row][2]
    dot = text.index(".")
    return sheet.with_text(row, f"{text[: dot - 1]}.{text[dot - 1]}{text[dot + 1 :]}")


def with_minus(sheet: Sheet, rng: random.Random) -> Sheet:
    """One amount is negative."""
    row = rng.choice(sheet.amounts())
    return sheet.with_text(row, "-" + sheet.texts[row][2])


def with_other_tick(sheet: Sheet, rng: random.Random) -> Sheet:
    """One box more, or one less, is ticked."""
    number = rng.randrange(len(sheet.boxes))
    boxes = list(sheet.boxes)
    boxes[number] = (*boxes[number][:2], not boxes[number][2])
    return replace(sheet, boxes=tuple(boxes))


def scan(
    pixels: np.ndarray,
    rng: np.random.Generator,
    *,
    noise: float = 6.0,
    shift: float = 3.0,
    skew: float = 0.3,
    fill: int = 255,
) -> np.ndarray:
    """The page as a scanner gives it: moved by up to `shift` pixels, turned by up to `skew` degree.

    `noise` is a standard deviation in grey levels; `fill` is the scanner's own ground.
    """
    height, width = pixels.shape
    moved = pixels
    if shift or skew:
        centre = ((width - 1) / 2, (height - 1) / 2)
        matrix = cv2.getRotationMatrix2D(centre, rng.uniform(-skew, skew), 1)
        matrix[:, 2] += rng.uniform(-shift, shift, 2)
        moved = cv2.warpAffine(
            pixels, matrix, (width, height), flags=cv2.INTER_CUBIC, borderValue=fill
        )
    noisy = moved + rng.normal(0, noise, pixels.shape)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
