"""Documents made for tests: PDFs written object by object, pictures of text, ways to open them."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vlmcli.documents.source import Document, RenderSpec, Source, open_document

GREY = RenderSpec(dpi=100, max_pixels=25_000_000, grey=True)
COLOUR = RenderSpec(dpi=100, max_pixels=25_000_000)

WORDS = [
    *("the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "while", "seven", "wizards"),
    *("brew", "strong", "coffee", "and", "nobody", "in", "village", "knows", "what", "weather"),
    *("will", "be", "like", "on", "second", "of", "October"),
]

HELVETICA = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"


def opened(path: Path, **options) -> Document:
    return open_document(Source(path=path, name=path.name), **options)


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """A PDF stream object."""
    return b"<<%s/Length %d>>stream\n%s\nendstream" % (entries, len(data), data)


def pdf_bytes(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """A PDF with these objects, numbered from 1; object 1 is the catalogue."""
    out = io.BytesIO(b"%PDF-1.7\n")
    out.seek(0, io.SEEK_END)
    places = []
    for number, data in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, data))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer<</Size %d/Root 1 0 R%s>>\n" % (len(objects) + 1, trailer))
    out.write(b"startxref\n%d\n%%%%EOF\n" % table)
    return out.getvalue()


def pages_pdf(
    contents: Sequence[bytes],
    *,
    page: bytes = b"/MediaBox[0 0 300 400]",
    resources: bytes = b"",
    extra: Sequence[bytes] = (),
    fonts: bytes = b"",
    trailer: bytes = b"",
) -> bytes:
    """One page for each content stream. Object 3 is Helvetica as /F, `extra` follows from 4."""
    first = 4 + len(extra)
    kids = b" ".join(b"%d 0 R" % (first + 2 * number) for number in range(len(contents)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, len(contents)),
        HELVETICA,
        *extra,
    ]
    for content in contents:
        objects.append(
            b"<</Type/Page/Parent 2 0 R%s/Contents %d 0 R/Resources<</Font<</F 3 0 R%s>>%s>>>>"
            % (page, len(objects) + 2, fonts, resources)
        )
        objects.append(stream(content))
    return pdf_bytes(objects, trailer)


def text_at(x: float, y: float, text: str, size: float = 12, mode: int = 0) -> bytes:
    """Content that writes a line at a point (from bottom left); mode 3 is invisible."""
    escaped = text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(")
    return b"BT %d Tr /F %g Tf %g %g Td (%s) Tj ET\n" % (
        mode,
        size,
        x,
        y,
        escaped.replace(b")", b"\\)"),
    )


def sentences(count: int, words: int = 8, seed: int = 0) -> list[str]:
    """Lines of plain words, all different."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, words)) for _ in range(count)]


def image_object(pixels: np.ndarray, filter: bytes = b"/DCTDecode", entries: bytes = b"") -> bytes:
    """A JPEG as a PDF image XObject."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    space = b"/DeviceGray" if pixels.ndim == 2 else b"/DeviceRGB"
    head = b"/Type/XObject/Subtype/Image/Width %d/Height %d/BitsPerComponent 8/ColorSpace%s" % (
        pixels.shape[1],
        pixels.shape[0],
        space,
    )
    return stream(out.getvalue(), head + b"/Filter" + filter + entries)


def written(
    lines: Sequence[str],
    *,
    size: tuple[int, int] = (850, 1100),
    height: int = 22,
    ground: int = 255,
    ink: int = 0,
    left: int = 80,
    top: int = 80,
) -> np.ndarray:
    """A grey picture, (H, W), of printed lines."""
    image = Image.new("L", size, ground)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(height)
    for number, line in enumerate(lines):
        draw.text((left, top + number * round(1.6 * height)), line, font=font, fill=ink)
    return np.asarray(image)
