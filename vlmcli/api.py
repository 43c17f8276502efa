"""vlmcli as a library: page records, one after another, as the command line would write them.

The job runs in a thread of its own and waits when its records are not taken, so that a loop over
them may take its time. What `vlmcli ocr` does with outputs, journal and exit codes is left to the
caller.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from os import PathLike, fspath
from typing import Any

from vlmcli.errors import UsageError
from vlmcli.options import OcrOptions
from vlmcli.report import NullReporter
from vlmcli.results import PageRecord

_MOST_WAITING = 8
"""Records that are finished and not yet taken; more hold the job up."""
_OURS = (
    *("inputs", "output", "formats", "resume", "overwrite"),
    *("progress", "quiet", "verbose", "config"),
)
"""Options that concern outputs, terminals and files with settings."""


def recognize(
    *inputs: str | PathLike[str],
    on_warning: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> Iterator[PageRecord]:
    """Read documents page by page.

    Args:
        inputs: PDF and image files, and folders.
        on_warning: is told what the command line would print as a warning, in another thread.
        options: those of `OcrOptions` that say what is read and how, such as `model`, `pages`,
            `password`, `dpi`, `text_layer`, `max_memory` (bytes), `question` or `reuse`.

    Yields:
        A record for every page, in order; failed pages too, see `PageRecord.status`. A loop that is
        left early ends the job after the page in work.

    Raises:
        UsageError: an option is unknown, or concerns outputs.
        VlmcliError: nothing could be read: see the subclasses in `errors`.
    """
    known = set(OcrOptions.__dataclass_fields__) - set(_OURS)
    unknown = sorted(options.keys() - known)
    if unknown:
        names = ", ".join(sorted(known))
        raise UsageError(f"unknown option: {unknown[0]}", remedy=f"known: {names}")
    paths = tuple(fspath(path) for path in inputs)
    return _records(OcrOptions(inputs=paths, **options), on_warning)


def _records(options: OcrOptions, on_warning: Callable[[str], None]) -> Iterator[PageRecord]:
    feed = _Feed()
    thread = threading.Thread(target=_run, args=(options, on_warning, feed), name="vlmcli")
    thread.start()
    try:
        while (record := feed.take()) is not None:
            yield record
    finally:
        feed.stop()
        thread.join()
    if feed.error is not None:
        raise feed.error


def _run(options: OcrOptions, on_warning: Callable[[str], None], feed: "_Feed") -> None:
    # Documents, and what reads them, are loaded by the first job and not with this module.
    from vlmcli.pipeline import run_ocr

    try:
        run_ocr(options, sink=feed, reporter=_Warnings(on_warning))
    except _StoppedError:
        pass
    except BaseException as error:
        feed.error = error
    finally:
        feed.end()


class _StoppedError(Exception):
    """Nobody takes records any more."""


class _Feed:
    """A sink on one side, a queue on the other."""

    def __init__(self) -> None:
        self._records: queue.SimpleQueue[PageRecord | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_MOST_WAITING)
        self._is_stopped = threading.Event()
        self.error: BaseException | None = None

    def take(self) -> PageRecord | None:
        """The next record; None when the job is over."""
        record = self._records.get()
        self._room.release()
        return record

    def stop(self) -> None:
        """Take no more: the job ends at its next record."""
        self._is_stopped.set()

    def end(self) -> None:
        """The job is over; never waits, since there may be nobody left to make room."""
        self._records.put(None)

    def begin(self) -> None:
        """Nothing to open."""

    def write(self, record: PageRecord) -> None:
        """Wait for room, then hand the record over."""
        # A script may end and still hold the iterator: nobody closes it then, and Python waits for
        # this thread.
        while not self._is_stopped.is_set() and threading.main_thread().is_alive():
            if self._room.acquire(timeout=0.1):
                self._records.put(record)
                return
        raise _StoppedError

    def finish(self) -> None:
        """Nothing to publish."""

    def abort(self) -> None:
        """Nothing to give up."""


class _Warnings(NullReporter):
    """Passes warnings on and says nothing else."""

    def __init__(self, on_warning: Callable[[str], None]) -> None:
        self._on_warning = on_warning

    def warning(self, text: str) -> None:
        """Pass it on."""
        self._on_warning(text)
