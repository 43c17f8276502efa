"""Small documents for end-to-end tests: clean large print, small scans, born-digital, junk."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vlmcli.bench.pages import page_picture, write_scan
from vlmcli.documents import mupdf

LINES = ("Every page in its order", "Nothing lost nothing added", "Read by a small model")
"""Words that a reader in any state of training gets nearly right in large clean print."""


def printed(lines: Sequence[str], *, width: int = 760, size: int = 36) -> Image.Image:
    """A grey picture of large black lines on white."""
    image = Image.new("L", (width, 80 + 2 * size * len(lines)), 255)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size)
    for number, line in enumerate(lines):
        draw.text((40, 40 + 2 * size * number), line, font=font, fill=0)
    return image


def write_pages(path: Path, seeds: Sequence[int], *, lines: int = 3) -> Path:
    """A scanned PDF with a few small printed lines a page; each page depends on its seed alone."""
    write_scan(
        path, (page_picture(seed, width=300, height=160, lines=lines, dpi=120) for seed in seeds)
    )
    return path


def write_frames(path: Path, pages: Sequence[Sequence[str]]) -> Path:
    """A picture file with one frame a page; the suffix says the format."""
    first, *rest = [printed(lines) for lines in pages]
    first.save(path, save_all=bool(rest), append_images=rest)
    return path


def write_text_pdf(
    path: Path,
    pages: Sequence[str],
    *,
    user_password: str = "",
    owner_password: str = "",
    heavy: Sequence[int] = (),
) -> Path:
    """A born-digital PDF with one line of text a page, in A6.

    Pages in `heavy` (from 1) have very many strokes: seconds of rendering.
    """
    pymupdf = mupdf.load()
    with pymupdf.open() as document:
        for number, text in enumerate(pages, 1):
            page = document.new_page(width=298, height=420)
            page.insert_text((40, 60), text, fontsize=11)
            if number in heavy:
                place = document.get_new_xref()
                document.update_object(place, "<<>>")
                document.update_stream(place, strokes(100_000))
                page.set_contents(place)
        is_locked = bool(user_password or owner_password)
        document.save(
            path,
            encryption=pymupdf.PDF_ENCRYPT_AES_256 if is_locked else pymupdf.PDF_ENCRYPT_NONE,
            user_pw=user_password,
            owner_pw=owner_password or user_password,
        )
    return path


def strokes(count: int) -> bytes:
    """Page content: that many random strokes."""
    points = np.random.default_rng(0).integers(0, 290, (count, 4))
    return b"".join(b"%d %d m %d %d l S\n" % tuple(row) for row in points.tolist())


def png(image: Image.Image) -> bytes:
    """The picture as a PNG file."""
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def hostile_files(folder: Path) -> dict[str, int]:
    """Files that are not what they claim to be: name → exit code of reading it alone."""
    good = write_text_pdf(folder / "good.pdf", ["All is well here"]).read_bytes()
    (folder / "good.pdf").unlink()
    locked = write_text_pdf(folder / "locked.pdf", ["Nobody may know"], user_password="sesame")
    picture = png(printed(LINES))
    no_pages = (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
    )
    files = {
        "empty.pdf": b"",
        "empty.png": b"",
        "page.pdf": b"<!DOCTYPE html><html><body>404</body></html>",
        "words.pdf": b"just some words\n" * 50,
        "noise.pdf": np.random.default_rng(0).bytes(5000),
        "head.pdf": b"%PDF-1.7\n%%EOF\n",
        "no-pages.pdf": no_pages,
        "start.pdf": good[: len(good) // 8],
        "start.png": picture[:40],
        "start.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF",
        "archive.pdf": b"PK\x03\x04" + bytes(60),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return dict.fromkeys(files, 3) | {locked.name: 8}
