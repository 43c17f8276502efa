"""Pictures as pages of a PDF, written to a file as they are read: none is ever held in full.

A picture keeps its own compressed bytes where PDF knows them; everything else is packed losslessly.
A page is as large as the sheet was, where the file says how finely it was scanned. Knows no text.
"""

from pathlib import Path
from typing import BinaryIO

from vlmcli.documents.embedding import Encoded
from vlmcli.documents.images import open_image
from vlmcli.documents.source import PageHandle, Source
from vlmcli.errors import PageError

_DPI = 150.0
"""Of pictures that do not say."""
_POINTS = 72.0
_LONGEST = 14_400
"""Points that a side of a page may have: PDF 1.7, annex C."""
_BLANK = (595.0, 842.0)
"""Size in points of a page whose picture cannot be decoded: A4."""
_HEADER = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
_CATALOG, _PAGES = 1, 2
_PLACES = {
    1: "{w} 0 0 {h} 0 0",
    2: "-{w} 0 0 {h} {w} 0",
    3: "-{w} 0 0 -{h} {w} {h}",
    4: "{w} 0 0 -{h} 0 {h}",
    5: "0 -{h} -{w} 0 {w} {h}",
    6: "0 -{h} {w} 0 0 {h}",
    7: "0 {h} {w} 0 0 0",
    8: "0 {h} -{w} 0 {w} 0",
}
"""How a stored picture comes to lie upright on its page, by EXIF orientation."""


def write_pictures(source: Source, path: Path, max_pixels: int) -> None:
    """Write a PDF of a picture file: a page for each frame.

    A frame that cannot be decoded has an empty page, so that page numbers hold.

    Args:
        source: the file.
        path: of the PDF.
        max_pixels: as for reading: frames that take too much memory for it are not decoded.

    Raises:
        InputError: the file cannot be read as pictures.
        OSError: the PDF cannot be written.
    """
    with open_image(source, strict=False) as document, path.open("w+b") as stream:
        pdf = _File(stream)
        for index in range(document.num_pages):
            start, objects = stream.tell(), len(pdf.offsets)
            try:
                with document.encoded(index, max_pixels) as image:
                    size = _page_size(document.page(index))
                    pdf.add_page(size, pdf.add_image(image), _place(image, size))
            except PageError:
                pdf.forget(start, objects)
                pdf.add_page(_BLANK)
        pdf.finish()


def _page_size(page: PageHandle) -> tuple[float, float]:
    scale = _POINTS / (page.scan_dpi or _DPI)
    scale = min(scale, _LONGEST / max(page.width, page.height))
    return page.width * scale, page.height * scale


def _place(image: Encoded, size: tuple[float, float]) -> bytes:
    width, height = (f"{side:.4f}" for side in size)
    matrix = _PLACES.get(image.orientation, _PLACES[1]).format(w=width, h=height)
    return f"q {matrix} cm /Image Do Q\n".encode()


class _File:
    """A PDF that grows: objects one after the other, the pages' list and the table at the end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._pages: list[int] = []
        self.offsets: list[int] = [0] * _PAGES
        stream.write(_HEADER)

    def add_image(self, image: Encoded) -> int:
        """Write an image a piece at a time; its length, known only then, follows it."""
        number = self._begin()
        head = (
            f"<</Type /XObject /Subtype /Image /Width {image.width} /Height {image.height} "
            f"/ColorSpace {image.colours} /BitsPerComponent {image.bits} /Filter /{image.filter} "
            f"{image.parms} /Length {number + 1} 0 R>>\nstream\n"
        )
        self._stream.write(head.encode())
        start = self._stream.tell()
        for piece in image.pieces():
            self._stream.write(piece)
        length = self._stream.tell() - start
        self._stream.write(b"\nendstream\nendobj\n")
        self._begin()
        self._stream.write(b"%d\nendobj\n" % length)
        return number

    def add_page(
        self, size: tuple[float, float], image: int | None = None, content: bytes = b""
    ) -> None:
        """Write a page that shows an image, or nothing."""
        contents = self._begin()
        self._stream.write(b"<</Length %d>>\nstream\n%b\nendstream\nendobj\n" % (
            len(content), content,
        ))  # fmt: skip
        self._pages.append(self._begin())
        shown = "" if image is None else f"/XObject <</Image {image} 0 R>>"
        page = (
            f"<</Type /Page /Parent {_PAGES} 0 R /MediaBox [0 0 {size[0]:.4f} {size[1]:.4f}] "
            f"/Resources <<{shown}>> /Contents {contents} 0 R>>\nendobj\n"
        )
        self._stream.write(page.encode())

    def forget(self, start: int, objects: int) -> None:
        """Take back what was written since the file had this length and so many objects."""
        self._stream.seek(start)
        self._stream.truncate()
        del self.offsets[objects:]

    def finish(self) -> None:
        """Write what holds the pages together."""
        self.offsets[_CATALOG - 1] = self._stream.tell()
        self._stream.write(b"1 0 obj\n<</Type /Catalog /Pages 2 0 R>>\nendobj\n")
        self.offsets[_PAGES - 1] = self._stream.tell()
        kids = " ".join(f"{page} 0 R" for page in self._pages)
        pages = f"2 0 obj\n<</Type /Pages /Count {len(self._pages)} /Kids [{kids}]>>\nendobj\n"
        self._stream.write(pages.encode())
        table, size = self._stream.tell(), len(self.offsets) + 1
        self._stream.write(b"xref\n0 %d\n0000000000 65535 f \n" % size)
        for offset in self.offsets:
            self._stream.write(b"%010d 00000 n \n" % offset)
        end = f"trailer\n<</Size {size} /Root {_CATALOG} 0 R>>\nstartxref\n{table}\n%%EOF\n"
        self._stream.write(end.encode())

    def _begin(self) -> int:
        self.offsets.append(self._stream.tell())
        self._stream.write(b"%d 0 obj\n" % len(self.offsets))
        return len(self.offsets)
