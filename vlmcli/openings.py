"""The documents of a job on their way in: opened ahead of their turn, handed out page by page.

Says what to open next and which page is next; workers do the opening, and what a document that
cannot be read means for the job is decided by the job.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from vlmcli.assemble import PageIdentity
from vlmcli.documents.selection import parse_pages
from vlmcli.documents.source import PageHandle
from vlmcli.errors import InputError, UsageError
from vlmcli.listing import Listing
from vlmcli.options import OcrOptions
from vlmcli.ordering import Key
from vlmcli.workers import Failure, OpenedDocument, OpenTask, Outcome


@dataclass(slots=True)
class OpenDocument:
    """A document whose pages are being handed out. `selected` counts pages from 1."""

    number: int
    opened: OpenedDocument
    selected: tuple[int, ...]
    cursor: int = 0
    is_planned: bool = False
    """Whether the job's memory plan holds for its pages."""

    @property
    def is_exhausted(self) -> bool:
        """Whether all selected pages are handed out."""
        return self.cursor >= len(self.selected)

    @property
    def key(self) -> Key:
        """The next page's place in the job."""
        return (self.number, self.cursor)

    @property
    def identity(self) -> PageIdentity:
        """Which page is next."""
        name = self.opened.source.name
        page = self.selected[self.cursor]
        return PageIdentity(
            document=name, page=page, pages=len(self.opened.pages), time=self.handle.time
        )

    @property
    def handle(self) -> PageHandle:
        """The next page, measured."""
        return self.opened.pages[self.selected[self.cursor] - 1]

    def handles(self) -> Iterator[tuple[int, PageHandle]]:
        """The selected pages, measured, with their numbers from 1."""
        return ((page, self.opened.pages[page - 1]) for page in self.selected)


class Openings:
    """Opens documents in order and remembers those that are open.

    Args:
        listing: the documents of the job.
        options: password, strictness and selection of pages.
    """

    def __init__(self, listing: Listing, options: OcrOptions) -> None:
        self._listing = listing
        self._options = options
        self._open: dict[int, OpenDocument] = {}
        self._current = 0
        self.num_sent = 0
        """Documents that were sent to be opened."""
        self._num_opening = 0

    @property
    def is_finished(self) -> bool:
        """Whether every page of every document has been handed out."""
        return self._current == self.num_sent and self._listing.is_exhausted

    @property
    def num_held(self) -> int:
        """Documents that are open or being opened."""
        return len(self._open) + self._num_opening

    @property
    def num_opened(self) -> int:
        """Documents that were opened, or could not be."""
        return self.num_sent - self._num_opening

    def next_task(self, ahead: int) -> OpenTask | None:
        """The next document to open, if fewer than `ahead` others are open or being opened."""
        if self.num_held >= ahead or (source := self._listing.take()) is None:
            return None
        task = OpenTask(
            number=self.num_sent,
            source=source,
            password=self._options.password,
            strict=self._options.strict,
            frame_interval=self._options.frame_interval,
        )
        self.num_sent += 1
        self._num_opening += 1
        return task

    def take(self, task: OpenTask, outcome: Outcome) -> OpenDocument:
        """The answer to a task of `next_task`.

        Raises:
            VlmcliError: the document cannot be read, or has none of the selected pages; `give_up`
                must follow.
        """
        self._num_opening -= 1
        if isinstance(outcome, Failure):
            raise outcome.error or InputError(f"cannot read {task.source.name}: {outcome.message}")
        assert isinstance(outcome, OpenedDocument)
        try:
            selected = parse_pages(self._options.pages or "1-end", len(outcome.pages))
        except UsageError as error:
            message = f"{task.source.name}: {error.message}"
            raise UsageError(message, remedy=error.remedy) from error
        document = OpenDocument(number=task.number, opened=outcome, selected=selected)
        self._open[task.number] = document
        return document

    def give_up(self, task: OpenTask) -> None:
        """Go on without a document that could not be read."""
        nothing = OpenedDocument(source=task.source, pages=(), warnings=())
        self._open[task.number] = OpenDocument(number=task.number, opened=nothing, selected=())

    def current(self) -> OpenDocument | None:
        """The document whose page is next; None while it is not open yet, and at the end."""
        while (document := self._open.get(self._current)) is not None:
            if not document.is_exhausted:
                return document
            del self._open[self._current]
            self._current += 1
        return None
