"""A chat on its way through the backend, and what becomes of its pictures there. No thread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from vlmcli.chat import Chat, Progress
from vlmcli.documents.prepared import PreparedPage
from vlmcli.documents.source import PageHandle, Source
from vlmcli.errors import InputError, PageError
from vlmcli.workers import DrawnPage, Failure, OpenedDocument, Outcome

_MOST_BYTES = 12
"""A pixel, decoded: what WebP takes."""

Listener = Callable[[Progress], None]
"""Is told in the backend's thread what is added to an answer; must not block."""


@dataclass(slots=True)
class Work:
    """A chat between arrival and answer. `handles` and `pages` are parallel to `paths`."""

    key: int
    chat: Chat
    paths: tuple[Path, ...]
    listen: Listener
    handles: list[PageHandle | None]
    pages: list[PreparedPage | None]
    num_opening: int = 0
    """Pictures that were sent to be measured."""
    is_admitted: bool = False
    """Whether its pictures may be drawn."""
    is_answered: bool = False
    """Whether it is with the answerer."""
    serials: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, key: int, chat: Chat, paths: Sequence[Path], listen: Listener) -> Self:
        """A chat that has just come in."""
        nothing = [None] * len(paths)
        return cls(key, chat, tuple(paths), listen, [*nothing], [*nothing])

    def source(self, index: int) -> Source:
        """A picture as a document."""
        return Source(path=self.paths[index], name=f"picture {index + 1}")

    def measured(self, index: int, opened: OpenedDocument, max_pixels: int) -> PageHandle:
        """The handle of a picture.

        Raises:
            InputError: the file is no single picture.
            PageError: it is too large, alone or with the others.
        """
        stored = opened.pages[0].largest_image if opened.pages else None
        # The server's memory is planned for pictures that take no more than their pixels; one in
        # JPEG 2000, AVIF or HEIC takes several times that while it is decoded.
        is_costly = stored is not None and (
            stored.filter == "JPXDecode" or stored.components > _MOST_BYTES
        )
        if len(opened.pages) != 1 or opened.pages[0].unit != "px" or is_costly:
            raise InputError(
                f"picture {index + 1} must be one PNG, JPEG, WebP, GIF, TIFF or BMP picture",
                code="not-a-picture",
            )
        handle = opened.pages[0].require()
        others = [other for other in self.handles if other is not None]
        pixels = sum(round(one.width) * round(one.height) for one in (*others, handle))
        if pixels > max_pixels:
            raise PageError(
                f"the pictures have {pixels} pixels or more, "
                f"this server takes {max_pixels} a request",
                code="too-large",
            )
        return handle


def drawn(index: int, outcome: Outcome) -> PreparedPage:
    """A picture that is ready.

    Raises:
        VlmcliError: it is not.
    """
    if isinstance(outcome, Failure):
        if outcome.error is not None:
            raise outcome.error
        raise PageError(f"picture {index + 1}: {outcome.message}", code=outcome.code)
    assert isinstance(outcome, DrawnPage)
    page = outcome.page
    if page.error is not None:
        raise PageError(f"picture {index + 1}: {page.error.message}", code=page.error.code)
    return page
