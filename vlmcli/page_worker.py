"""The inside of a page worker: a loop that opens documents and prepares pages, one task at a time.

Runs in a child process of `workers.WorkerPool`; ends when the other side of its connection is gone,
on Linux even in the middle of a page. Keeps the last document open, nothing else.
"""

import contextlib
import ctypes
import signal
import sys
from multiprocessing.connection import Connection

import cv2

from vlmcli import transfer
from vlmcli.documents.base import Pixels
from vlmcli.documents.prepare import prepare_page
from vlmcli.documents.source import Document, Source, open_document
from vlmcli.errors import VlmcliError
from vlmcli.memory.allocator import give_back
from vlmcli.reuse.fingerprint import PageFingerprint, fingerprint
from vlmcli.workers import (
    READY,
    DrawnPage,
    Failure,
    OpenedDocument,
    OpenTask,
    Outcome,
    PageTask,
    Task,
)

_PR_SET_PDEATHSIG = 1


class _OpenDocuments:
    """Holds the last opened document, since pages of one document come one after another."""

    def __init__(self) -> None:
        self._key: tuple[Source, bool] | None = None
        self._document: Document | None = None

    def get(self, task: Task, *, strict: bool = False) -> Document:
        source = task.source
        if self._document is None or self._key is None or self._key[0] != source:
            if self._document is not None:
                self._document.close()
                self._document = None
            self._document = open_document(
                source, password=task.password, strict=strict, frame_interval=task.frame_interval
            )
            self._key = (source, strict)
        return self._document


def answer(documents: _OpenDocuments, task: Task) -> Outcome:
    """Do one task; a `VlmcliError` of the document becomes a `Failure` that carries it.

    So does a failed allocation, which leaves the worker as it was.
    """
    try:
        if isinstance(task, OpenTask):
            document = documents.get(task, strict=task.strict)
            pages = tuple(document.page(index) for index in range(document.num_pages))
            return OpenedDocument(source=task.source, pages=pages, warnings=document.warnings)
        document = documents.get(task)
        assert isinstance(task, PageTask)
        return _draw(document, task)
    except VlmcliError as error:
        return Failure(kind="error", message=error.message, error=error)
    except MemoryError:
        return Failure(kind="memory", message="the page needs more memory than there is")


def _draw(document: Document, task: PageTask) -> DrawnPage:
    looks: list[PageFingerprint] = []

    def look_at(pixels: Pixels) -> None:
        looks.append(fingerprint(pixels, with_sketch=task.look == "sketch"))

    on_picture = None if task.look == "none" else look_at
    page = prepare_page(document, task.index, task.spec, on_picture)
    return DrawnPage(page=page, look=looks[0] if looks else None)


def main(fd: int) -> None:
    """Serve tasks from the socket `fd` until its other end is closed."""
    _end_with_parent()
    cv2.setNumThreads(1)
    connection = Connection(fd)
    documents = _OpenDocuments()
    with contextlib.suppress(EOFError, ConnectionError):
        transfer.send(connection, READY)
        while True:
            transfer.send(connection, answer(documents, transfer.receive(connection)))
            # Otherwise the process keeps what its largest page took.
            give_back()


def _end_with_parent() -> None:
    """Have the kernel end this process with its parent: a page can take minutes to render."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
