"""Small pictures of pages that records name, drawn one at a time; the last document stays open.

A document that cannot be opened is tried once per run of its pages. A page that crashes MuPDF ends
the process: `vlmcli ocr` draws in processes of their own, this does not.
"""

from collections.abc import Callable

from vlmcli.documents.base import Document, Source
from vlmcli.documents.source import open_document
from vlmcli.documents.thumbnails import Thumbnail, draw_thumbnail
from vlmcli.errors import InputError, PageError


class Gallery:
    """Draws pages by document and number.

    Args:
        find: the document of a name; raises InputError where there is none.
        password: of encrypted PDFs.
        width: of the pictures, in pixels.
    """

    def __init__(self, find: Callable[[str], Source], *, password: str | None, width: int) -> None:
        self._find, self._password, self._width = find, password, width
        self._name: str | None = None
        self._document: Document | None = None
        self._error: InputError | None = None

    def draw(self, name: str, page: int) -> Thumbnail:
        """The picture of a page, which counts from 1.

        Raises:
            InputError: the document is not there or cannot be opened.
            PageError: the page is not there or cannot be drawn.
        """
        if name != self._name:
            self._turn_to(name)
        if self._error is not None:
            raise self._error
        assert self._document is not None
        if page > self._document.num_pages:
            raise PageError(f"the document has only {self._document.num_pages} pages now")
        try:
            return draw_thumbnail(self._document, page - 1, width=self._width)
        except MemoryError as error:
            raise PageError("too little memory to draw it", code="too-large") from error

    def close(self) -> None:
        """Let go of the open document; closing twice is fine."""
        if self._document is not None:
            self._document.close()
        self._name = self._document = self._error = None

    def _turn_to(self, name: str) -> None:
        self.close()
        self._name = name
        try:
            self._document = open_document(self._find(name), password=self._password)
        except InputError as error:
            self._error = error
