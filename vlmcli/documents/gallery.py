"""Small pictures of pages that records name, drawn one at a time; the last document stays open.

A document that cannot be opened is tried once per run of its pages. A page that crashes MuPDF ends
the process: `vlmcli ocr` draws in processes of their own, this does not.
"""

from bisect import bisect_left
from collections.abc import Callable

from vlmcli.documents.base import Document, Source
from vlmcli.documents.source import open_document
from vlmcli.documents.thumbnails import Thumbnail, draw_thumbnail
from vlmcli.errors import InputError, PageError

_EVERY_FRAME = 0.001
"""Seconds: an interval at which every frame of a video is a page."""


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

    def draw(self, name: str, page: int, time: float | None = None) -> Thumbnail:
        """The picture of a page.

        Args:
            name: of the document.
            page: counts from 1.
            time: of a frame of a video, in seconds; it says which one `page` was, whose number
                depends on the interval at which the video was read.

        Raises:
            InputError: the document is not there or cannot be opened.
            PageError: the page is not there or cannot be drawn.
        """
        if name != self._name:
            self._turn_to(name)
        if self._error is not None:
            raise self._error
        document = self._document
        assert document is not None
        index = page - 1 if time is None else _frame_at(document, time)
        if index >= document.num_pages:
            raise PageError(f"the document has only {document.num_pages} pages now")
        try:
            return draw_thumbnail(document, index, width=self._width)
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
            self._document = open_document(
                self._find(name), password=self._password, frame_interval=_EVERY_FRAME
            )
        except InputError as error:
            self._error = error


def _frame_at(document: Document, time: float) -> int:
    """The page, from 0, of a video of which every frame is one.

    Raises:
        PageError: it has no such frame.
    """

    def time_of(index: int) -> float:
        return document.page(index).time or 0.0

    pages = range(document.num_pages)
    index = bisect_left(pages, time, key=time_of)
    if index == len(pages) or document.page(index).time != time:
        raise PageError(f"the document has no frame at {time:g} s now")
    return index
