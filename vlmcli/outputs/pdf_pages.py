"""Pictures as pages of a PDF: a JPEG that needs no turning as it is, everything else losslessly.

A page is as large as the sheet was, where the file says how finely it was scanned. Knows no text.
"""

from typing import Any

import numpy as np

from vlmcli.documents import mupdf
from vlmcli.documents.source import Document, RenderSpec, Source, open_document
from vlmcli.errors import VlmcliError
from vlmcli.options import DEFAULT_MAX_PIXELS
from vlmcli.results import PageRecord

_DPI = 150.0
"""Of pictures that do not say."""
_POINTS = 72.0
_LONGEST = 14_400
"""Points that a side of a page may have: PDF 1.7, annex C."""
_BLANK = (595.0, 842.0)
"""Size in points of a page whose picture cannot be decoded: A4."""


class PicturePages:
    """Appends the pictures of one file to a PDF, in order, as they are asked for."""

    def __init__(self, source: Source, pdf: Any) -> None:
        self._source, self._pdf = source, pdf
        self._document: Document = open_document(source)

    def add_until(self, record: PageRecord) -> None:
        """Append pages until that of the record is there; it has the size that the record says."""
        while self._pdf.page_count < min(record.page, self._document.num_pages):
            same = self._pdf.page_count + 1 == record.page
            self._add(self._pdf.page_count, record if same else None)

    def add_rest(self) -> None:
        """Append the pages that nobody asked for."""
        while self._pdf.page_count < self._document.num_pages:
            self._add(self._pdf.page_count, None)
        self._document.close()

    def _add(self, index: int, record: PageRecord | None) -> None:
        """One page; empty where the picture cannot be decoded, so that page numbers hold."""
        size = record.width * record.height if record is not None else 0
        spec = RenderSpec(dpi=_DPI, max_pixels=size or DEFAULT_MAX_PIXELS)
        try:
            picture = self._document.render(index, spec)
        except VlmcliError:
            self._pdf.new_page(width=_BLANK[0], height=_BLANK[1])
            return
        height, width = picture.pixels.shape[:2]
        handle = self._document.page(index)
        scale = _POINTS / (handle.scan_dpi or _DPI)
        scale = min(scale, _LONGEST / max(handle.width, handle.height))
        page = self._pdf.new_page(width=handle.width * scale, height=handle.height * scale)
        jpeg = self._plain_jpeg(width, height)
        if jpeg is not None:
            page.insert_image(page.rect, stream=jpeg)
            return
        pymupdf = mupdf.load()
        colours = pymupdf.csGRAY if picture.pixels.ndim == 2 else pymupdf.csRGB
        pixels = np.ascontiguousarray(picture.pixels)
        page.insert_image(
            page.rect, pixmap=pymupdf.Pixmap(colours, width, height, pixels.tobytes(), False)
        )

    def _plain_jpeg(self, width: int, height: int) -> bytes | None:
        """The file itself, if it is a JPEG of this size in grey or RGB that stands upright."""
        from PIL import Image

        if self._document.num_pages != 1:
            return None
        with Image.open(self._source.path) as image:
            is_plain = (
                image.format == "JPEG"
                and image.mode in ("L", "RGB")
                and image.size == (width, height)
                and image.getexif().get(0x0112, 1) == 1
            )
        return self._source.path.read_bytes() if is_plain else None
