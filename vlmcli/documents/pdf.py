"""PDF documents through MuPDF: measured, drawn and asked for their own text one page at a time.

Draws straight at the wanted size, so that a poster never exists in full. Refuses pages whose
embedded images would unfold beyond the pixel budget. Gave up: MuPDF is not thread-safe; use one
process each.
"""

import os
from typing import Any

from vlmcli.documents import mupdf, pdf_page
from vlmcli.documents.base import Closing, PageHandle, Picture, RenderSpec, Source, TextLayer
from vlmcli.errors import EncryptedError, InputError, PageError
from vlmcli.results import ErrorInfo

_KEEP_FONTS = 16
"""Pages for which fonts are kept: a document may have others on every page, and memory must be
flat."""


def open_pdf(source: Source, *, password: str | None, strict: bool) -> "PdfDocument":
    """Open a file that begins like a PDF.

    Raises:
        EncryptedError: a password is needed, or the given one is wrong.
        InputError: damaged beyond repair, repaired although `strict`, or without pages.
    """
    pymupdf = mupdf.load()
    mupdf.take_warnings()
    handle: int | None = None
    try:
        filename, handle = _openable(source)
        file = pymupdf.open(filename, filetype="pdf")
        # Asked once and before authenticate(): later PyMuPDF would decrypt RC4 and AES-128 wrongly.
        needs_password = bool(file.needs_pass)
        if needs_password and not (password and file.authenticate(password)):
            file.close()
            raise _locked(source, wrong=bool(password))
        num_pages = int(file.page_count)
        is_cut_off = num_pages == 0 and not _lists_pages(file)
    except mupdf.errors() as error:
        raise _unopenable(source, error) from error
    finally:
        if handle is not None:
            os.close(handle)
    if not file.is_pdf:
        raise InputError(f"{source.name}: not a PDF inside", code="not-a-document")
    if is_cut_off:
        raise InputError(
            f"{source.name}: damaged or truncated PDF: its list of pages is missing", code="damaged"
        )
    if num_pages == 0:
        raise InputError(f"{source.name}: the PDF has no pages", code="no-pages")
    warnings: tuple[str, ...] = ()
    if file.is_repaired:
        if strict:
            raise InputError(
                f"{source.name}: the PDF is damaged (its cross-reference table is broken)",
                remedy="leave out --strict to read what can be repaired",
                code="damaged",
            )
        warnings = ("the PDF is damaged and was repaired; content may be missing",)
    mupdf.take_warnings()
    return PdfDocument(source, file, num_pages, warnings)


def _openable(source: Source) -> tuple[str, int | None]:
    """A name that MuPDF can open, and a descriptor to close: it takes no names but UTF-8."""
    name = str(source.path)
    try:
        name.encode()
    except UnicodeEncodeError:
        handle = os.open(source.path, os.O_RDONLY)
        return f"/dev/fd/{handle}", handle
    return name, None


def _lists_pages(file: Any) -> bool:
    """Whether there is a list of pages, an empty one included: MuPDF opens files that lost it."""
    catalogue = file.pdf_catalog()
    return bool(catalogue > 0 and file.xref_get_key(catalogue, "Pages/Kids")[0] == "array")


def _locked(source: Source, *, wrong: bool) -> EncryptedError:
    if wrong:
        return EncryptedError(
            f"{source.name}: the password is wrong", remedy="check --password or --password-file"
        )
    return EncryptedError(
        f"{source.name}: encrypted, a password is needed",
        remedy="give --password-file, --password or VLMCLI_PASSWORD",
    )


def _unopenable(source: Source, error: Exception) -> InputError:
    cause = mupdf.reason(error)
    if any(word in cause.lower() for word in ("encrypt", "crypt filter", "security handler")):
        return EncryptedError(f"{source.name}: encrypted in a way that MuPDF cannot read: {cause}")
    return InputError(f"{source.name}: damaged or truncated PDF: {cause}", code="damaged")


class PdfDocument(Closing):
    """An open PDF; implements `Document`. Holds the last loaded page, nothing else."""

    def __init__(
        self, source: Source, file: Any, num_pages: int, warnings: tuple[str, ...]
    ) -> None:
        self.source = source
        self.num_pages = num_pages
        self.warnings = warnings
        self._file = file
        self._loaded: tuple[int, Any] | None = None
        self._measured: PageHandle | None = None
        self._faults: tuple[str, ...] = ()
        self._num_drawn = 0

    def close(self) -> None:
        """Let go of the file; closing twice is fine."""
        self._loaded = self._measured = None
        if not self._file.is_closed:
            self._file.close()

    def page(self, index: int) -> PageHandle:
        """Measure page `index` (from 0). A page that cannot be loaded says so in `error`."""
        try:
            page = self._load(index)
        except PageError as error:
            return PageHandle(
                document=self.source.name,
                index=index,
                num_pages=self.num_pages,
                width=0.0,
                height=0.0,
                unit="pt",
                error=ErrorInfo(code=error.code, message=error.message),
            )
        if self._measured is None:
            self._measured = self._measure(index, page)
        return self._measured

    def _measure(self, index: int, page: Any) -> PageHandle:
        size = pdf_page.measure(page)
        embedded = pdf_page.images(page)
        try:
            scan_dpi = pdf_page.scan_dpi(page, embedded, size)
        except mupdf.errors():
            scan_dpi = None
        self._note_faults()
        return PageHandle(
            document=self.source.name,
            index=index,
            num_pages=self.num_pages,
            width=size[0],
            height=size[1],
            unit="pt",
            rotation=int(page.rotation) % 360,
            scan_dpi=scan_dpi,
            largest_image=max(embedded, key=lambda image: image.num_bytes, default=None),
        )

    def render(self, index: int, spec: RenderSpec) -> Picture:
        """The page as a viewer shows it, annotations and form values included; see `Document`."""
        page = self._load(index)
        size = self.page(index).pixel_size(spec.dpi, spec.max_pixels)
        embedded = pdf_page.images(page)
        pdf_page.refuse_bombs(embedded, size, spec)
        try:
            pixels = pdf_page.draw(page, size, grey=spec.grey)
        except mupdf.errors() as error:
            if mupdf.is_out_of_memory(error):
                raise MemoryError(mupdf.reason(error)) from error
            raise PageError(f"the page cannot be drawn: {mupdf.reason(error)}") from error
        finally:
            self._note_faults()
            self._num_drawn += 1
            if embedded or self._num_drawn % _KEEP_FONTS == 0:
                mupdf.drop_caches()
        return Picture(pixels=pixels, dpi=size.dpi, downscaled=size.downscaled, faults=self._faults)

    def text_layer(self, index: int, spec: RenderSpec) -> TextLayer | None:
        """The page's visible and invisible text inside the crop box; see `Document`."""
        page = self._load(index)
        size = self.page(index).pixel_size(spec.dpi, spec.max_pixels)
        try:
            found = pdf_page.fragments(page, size)
        except mupdf.errors():
            return None
        finally:
            self._note_faults()
        return TextLayer(width=size.width, height=size.height, fragments=found) if found else None

    def is_empty(self, index: int) -> bool:
        """Whether no operator and no annotation puts anything on the page; see `Document`."""
        try:
            drawn = self._load(index).get_bboxlog()
        except PageError:
            return False
        except mupdf.errors():
            return False
        self._note_faults()
        return not drawn and not self._faults

    def _load(self, index: int) -> Any:
        """Page `index`, kept until another one is asked for.

        Raises:
            PageError: MuPDF cannot load it.
        """
        if self._loaded is None or self._loaded[0] != index:
            self._loaded = self._measured = None
            mupdf.take_warnings()
            try:
                page = self._file.load_page(index)
            except mupdf.errors() as error:
                raise PageError(f"the page cannot be loaded: {mupdf.reason(error)}") from error
            self._loaded = (index, page)
            self._faults = ()
            self._note_faults()
        return self._loaded[1]

    def _note_faults(self) -> None:
        """Remember what MuPDF complained about on the loaded page: it may say so only once."""
        self._faults = tuple(dict.fromkeys(self._faults + mupdf.take_faults()))
