"""Searchable PDF: the document as it was, with what was read behind its pages, invisible.

A PDF keeps its bytes: the text is appended as an update, so that pictures, bookmarks, links,
attachments and what a signature covers stay as they are. Pictures become a PDF first, with pages of
their own size. Pages that were answered from their own text layer, blank and failed pages get
nothing, nor do words that a page says itself, beside a picture or in a form. Where a page was read,
an earlier, invisible reading of it goes. Where only a reader of whole pages was at work, lines are
spread over the page's height. As PDF/A the file is written anew, its pages are not.
"""

import contextlib
import math
import shutil
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from vlmcli.documents import mupdf
from vlmcli.documents.base import PixelSize
from vlmcli.documents.pdf_page import fragments
from vlmcli.documents.source import Source, kind_of
from vlmcli.errors import EncryptedError, OutputError
from vlmcli.options import DEFAULT_MAX_PIXELS
from vlmcli.outputs.archival import write_archival
from vlmcli.outputs.files import OutputFile
from vlmcli.outputs.glyphless import ADVANCE, DESCENT, GlyphlessFont
from vlmcli.outputs.old_reading import OldReading, add_resource, shown
from vlmcli.outputs.pdf_pages import write_pictures
from vlmcli.outputs.unsaid import unsaid
from vlmcli.outputs.words import lines_of, words_of
from vlmcli.results import Line, PageRecord, Strip
from vlmcli.strip import corners_of, length_of, part_of, slant_of

EXTENSION = ".pdf"
_FONT = "VlmcliText"
_BASELINE = -DESCENT / 1000
"""Where letters stand, as a share of a line's height from below: its box is what is marked."""
_LEAST_RISE = 0.3
"""Points over the length of a word; Poppler bears 0.5."""
_CHUNK = 1 << 20


class SearchablePdfWriter:
    """A `Writer` of one document.

    Args:
        source: the document.
        password: opens it, where it is encrypted.
        file: takes the finished PDF.
        pdfa: whether it is to be PDF/A.
        max_pixels: as for reading, which says what pictures are decoded at all.
    """

    def __init__(
        self,
        source: Source,
        password: str | None,
        file: OutputFile,
        *,
        pdfa: bool = False,
        max_pixels: int = DEFAULT_MAX_PIXELS,
    ) -> None:
        self._source, self._password, self._file = source, password, file
        self._pdfa, self._max_pixels = pdfa, max_pixels
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._pdf: Any = None
        self._has_words = True
        self._font: GlyphlessFont | None = None
        self._old_reading: OldReading | None = None

    def write(self, record: PageRecord) -> None:
        """Put the text of the next page behind it."""
        with self._translated():
            if self._pdf is None:
                self._open()
            if record.source != "text-layer" and record.page:
                self._add_text(record)

    def finish(self) -> None:
        """Write the PDF and publish it."""
        with self._translated():
            if self._pdf is None:
                self._open()
            path = self._archival(self._save()) if self._pdfa else self._save()
            with path.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    self._file.write(chunk)
        self._file.publish()
        self._close()

    def abort(self) -> None:
        """Give the PDF up."""
        self._file.discard()
        self._close()

    def _open(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vlmcli-", ignore_cleanup_errors=True)
        pymupdf = mupdf.load()
        copy = Path(self._folder.name) / "copy.pdf"
        self._has_words = kind_of(self._source.path) == "pdf"
        if self._has_words:
            shutil.copyfile(self._source.path, copy)
        else:
            write_pictures(self._source, copy, self._max_pixels)
        self._pdf = pymupdf.open(copy, filetype="pdf")
        if self._pdf.needs_pass and not self._pdf.authenticate(self._password or ""):
            raise EncryptedError(f"{self._source.name}: the password does not open it")

    def _save(self) -> Path:
        assert self._folder is not None
        if self._font is not None:
            self._font.close()
        changed = Path(self._folder.name) / "copy.pdf"
        if self._pdf.can_save_incrementally():
            self._pdf.saveIncr()
            return changed
        whole = changed.with_name("whole.pdf")
        self._pdf.save(whole, deflate=True, encryption=mupdf.load().PDF_ENCRYPT_KEEP)
        return whole

    def _archival(self, path: Path) -> Path:
        target = path.with_name("archival.pdf")
        write_archival(path, target, self._source.name)
        return target

    def _close(self) -> None:
        if self._pdf is not None:
            with contextlib.suppress(*mupdf.errors()):
                self._pdf.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._pdf = self._folder = None

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OutputError:
            raise
        except mupdf.errors() as error:
            raise OutputError(
                f"cannot make a PDF of {self._source.name}: {mupdf.reason(error)}",
                remedy="choose another format with -f, or set TMPDIR to a folder with room",
            ) from error

    def _add_text(self, record: PageRecord) -> None:
        lines = list(lines_of(record))
        if not lines or record.page > self._pdf.page_count:
            return
        page = self._pdf[record.page - 1]
        if self._has_words:
            lines = _unsaid(page, record, lines)
            page = self._without_old_reading(page)
        if not lines:
            return
        self._font = self._font or GlyphlessFont(self._pdf)
        _own_resources(self._pdf, page.xref)
        add_resource(self._pdf, (page.xref, "Resources"), "Font", _FONT, self._font.xref)
        xref = self._add_stream(_content(page, record, lines, self._font))
        # Before the page's own content: nothing that it does to the graphics state matters there.
        self._set_contents(page, [xref, *page.get_contents()])

    def _without_old_reading(self, page: Any) -> Any:
        """The page less its invisible text, unless it would then show anything else than before."""
        _own_resources(self._pdf, page.xref)
        self._old_reading = self._old_reading or OldReading(self._pdf)
        content = self._old_reading.content_without(page)
        if content is None:
            return page
        before, contents = shown(page), page.get_contents()
        self._set_contents(page, [self._add_stream(content)])
        page = self._pdf.reload_page(page)
        if shown(page) != before:
            self._set_contents(page, contents)
        return page

    def _add_stream(self, content: bytes) -> int:
        xref = int(self._pdf.get_new_xref())
        self._pdf.update_object(xref, "<<>>")
        self._pdf.update_stream(xref, content, new=True, compress=True)
        return xref

    def _set_contents(self, page: Any, contents: list[int]) -> None:
        listed = " ".join(f"{one} 0 R" for one in contents)
        self._pdf.xref_set_key(page.xref, "Contents", f"[{listed}]")


def _unsaid(page: Any, record: PageRecord, lines: list[Line]) -> list[Line]:
    """The lines less what the page's own visible text says."""
    if not record.lines:
        # The reader knew no places.
        return lines
    size = PixelSize(record.width, record.height, record.dpi or 0.0, False)
    return list(unsaid(lines, fragments(page, size)))


def _content(page: Any, record: PageRecord, lines: list[Line], font: GlyphlessFont) -> bytes:
    """A content stream that writes the lines, invisible, where they stand on the displayed page."""
    pymupdf = mupdf.load()
    points = page.rect.width / record.width
    scale = pymupdf.Matrix(points, page.rect.height / record.height)
    to_pdf = tuple(scale * _to_user_space(page))
    parts = [b"q BT 3 Tr\n"]
    for line in lines:
        is_slanting = line.strip is not None and _is_slanting(line.strip, points)
        if is_slanting:
            text = line.text.encode("utf-16-be").hex()
            parts.append(f"/Span <</ActualText <FEFF{text}>>> BDC\n".encode())
        for text, strip in _pieces(line):
            parts.append(_placed(strip, len(text), to_pdf) + font.text_string(text) + b" Tj\n")
        if is_slanting:
            parts.append(b"EMC\n")
    return b"".join([*parts, b"ET Q\n"])


def _is_slanting(strip: Strip, points: float) -> bool:
    """Whether its text is to be told as a whole, by its `ActualText`.

    Poppler (pdftotext, Evince) parts letters that rise over each other; told the text, it does not,
    and takes the line for one word.

    Args:
        points: to one pixel.
    """
    rise = abs(math.sin(math.radians(slant_of(strip))))
    lengths = (end - start for start, end in strip.words or ((0, length_of(strip)),))
    return points * rise * max(lengths) > _LEAST_RISE


def _pieces(line: Line) -> Iterator[tuple[str, Strip]]:
    """What is written in one go, and where: words, or a line of which only the box is known.

    A word takes the blank behind it along, which programs that copy text want to see.
    """
    if line.strip is None:
        x0, y0, x1, y1 = line.bbox
        foot = float(y1)
        yield line.text, Strip(start=(x0, foot), end=(x1, foot), ascent=foot - y0, descent=0.0)
        return
    words = list(words_of(line))
    for word, following in zip_longest(words, words[1:]):
        strip = part_of(line.strip, *word.span)
        if following is None:
            yield word.text, strip
        else:
            blank = len(word.text) + 1
            yield word.text + " ", part_of(strip, 0.0, length_of(strip) * blank / len(word.text))


def _placed(strip: Strip, length: int, to_pdf: tuple[float, ...]) -> bytes:
    """Operators for so many glyphs that fill a strip of pixels, whose font box is what is marked.

    Args:
        strip: that has an area.
        length: number of glyphs.
        to_pdf: pixels of the displayed page to the coordinates of the page's content.
    """
    a, b, c, d, e, f = to_pdf
    upper, _, right, left = corners_of(strip)
    # Vectors in the page's coordinates: along the print, and from its foot to its head.
    along_x, along_y = right[0] - left[0], right[1] - left[1]
    up_x, up_y = upper[0] - left[0], upper[1] - left[1]
    along = a * along_x + c * along_y, b * along_x + d * along_y
    up = a * up_x + c * up_y, b * up_x + d * up_y
    width, size = math.hypot(*along), math.hypot(*up)
    x = a * left[0] + c * left[1] + e + _BASELINE * up[0]
    y = b * left[0] + d * left[1] + f + _BASELINE * up[1]
    stretch = 100 * width / (length * size * ADVANCE / 1000)
    turn = " ".join(f"{one:.5f}" for one in (*(v / width for v in along), *(v / size for v in up)))
    return f"/{_FONT} {size:.3f} Tf {stretch:.3f} Tz {turn} {x:.3f} {y:.3f} Tm ".encode()


def _to_user_space(page: Any) -> Any:
    """Points of the displayed page to the coordinates that its content is written in.

    PyMuPDF's own matrices forget the crop box of a rotated page, and UserUnit.
    """
    crop, top = page.cropbox, page.mediabox.y1 - page.cropbox.y0
    left, right, bottom = crop.x0, crop.x1, top - crop.height
    turned = {
        0: (1, 0, 0, -1, left, top),
        90: (0, 1, 1, 0, left, bottom),
        180: (-1, 0, 0, 1, right, bottom),
        270: (0, -1, -1, 0, right, top),
    }[page.rotation]
    width = crop.height if page.rotation in (90, 270) else crop.width
    pymupdf = mupdf.load()
    unit = width / page.rect.width
    return pymupdf.Matrix(unit, unit) * pymupdf.Matrix(*turned)


def _own_resources(pdf: Any, page: int) -> None:
    """Have the page's resources, which may be inherited, named by the page itself."""
    if pdf.xref_get_key(page, "Resources")[0] == "null":
        pdf.xref_set_key(page, "Resources", _inherited(pdf, page)[1])


def _inherited(pdf: Any, page: int) -> tuple[str, str]:
    """Resources that the page has from the nodes above it: their kind and value."""
    seen = {page}
    kind, value = pdf.xref_get_key(page, "Parent")
    while kind == "xref" and (node := int(value.split()[0])) not in seen:
        seen.add(node)
        kind, value = pdf.xref_get_key(node, "Resources")
        if kind != "null":
            return kind, value
        kind, value = pdf.xref_get_key(node, "Parent")
    return "dict", "<<>>"
