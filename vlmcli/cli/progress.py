"""Progress on stderr: a drawn line on a terminal, JSON events for programs, or warnings alone.

Each reporter is a `report.Reporter`. A broken stderr never stops a job. Rich is imported when it
draws, so that jobs in scripts do not pay for it.
"""

import json
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vlmcli.cli.console import is_terminal, printable, say
from vlmcli.options import OcrOptions
from vlmcli.report import NullReporter, Reporter
from vlmcli.results import PageRecord

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Clock = Callable[[], float]

_WINDOW = 32
"""Pages over which speed is measured: enough to be steady, few enough to follow a change."""


class Pace:
    """How fast pages come lately, and how long the rest will take."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._marks: deque[tuple[float, int]] = deque([(clock(), 0)], maxlen=_WINDOW)

    def note(self, done: int) -> None:
        """`done` pages are finished now."""
        self._marks.append((self._clock(), done))

    def pages_per_minute(self) -> float | None:
        """Speed over the last pages; None before the first one."""
        (start, first), (_, last) = self._marks[0], self._marks[-1]
        seconds = self._clock() - start
        return 60.0 * (last - first) / seconds if last > first and seconds > 0 else None

    def eta(self, total: int | None) -> float | None:
        """Seconds until page `total`; None where nobody can know."""
        speed = self.pages_per_minute()
        if total is None or speed is None:
            return None
        return 60.0 * max(0, total - self._marks[-1][1]) / speed


class PlainReporter(NullReporter):
    """Warnings and failed pages as lines; the summary where somebody looks."""

    def __init__(self, *, quiet: bool, summary: bool) -> None:
        self._quiet = quiet
        self._summary = summary

    def page_done(self, record: PageRecord, done: int, total: int | None) -> None:
        """A line for a failed page only."""
        if is_worth_a_line(record) and not self._quiet:
            say(f"vlmcli: {failure_line(record)}")

    def warning(self, text: str) -> None:
        """A line."""
        if not self._quiet:
            say(f"vlmcli: warning: {text}")

    def finish(self, summary: str, *, is_news: bool = False) -> None:
        """Its lines, for `-v` and where they are news."""
        if (self._summary or is_news) and not self._quiet:
            _say_lines(summary)


class JsonReporter:
    """One JSON object a line. Field names are stable; fields are only ever added."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._pace = Pace(clock)

    def start(self, total_pages: int | None) -> None:
        """Event `start`."""
        self._event("start", total=total_pages)

    def document(self, name: str, pages: int) -> None:
        """Event `document`."""
        self._event("document", document=name, pages=pages)

    def page_started(self, document: str, page: int, attempt: int) -> None:
        """Event `retry`, for second and further attempts only: pages have one event each."""
        if attempt > 1:
            self._event("retry", document=document, page=page, attempt=attempt)

    def page_done(self, record: PageRecord, done: int, total: int | None) -> None:
        """Event `page`."""
        self._pace.note(done)
        speed, eta = self._pace.pages_per_minute(), self._pace.eta(total)
        self._event(
            "page",
            document=record.document,
            page=record.page,
            pages=record.pages,
            status=record.status,
            code=record.error.code if record.error else None,
            attempts=record.attempts,
            done=done,
            total=total,
            pages_per_minute=None if speed is None else round(speed, 2),
            eta=None if eta is None else round(eta, 1),
        )

    def warning(self, text: str) -> None:
        """Event `warning`."""
        self._event("warning", message=text)

    def finish(self, summary: str, *, is_news: bool = False) -> None:
        """Event `finish`."""
        message, *details = summary.split("\n")
        self._event("finish", message=message, details=details)

    def _event(self, kind: str, **values: Any) -> None:
        say(json.dumps({"event": kind, **values}))


class RichReporter:
    """A redrawn line: pages done, speed, time left, the page longest at work and its attempt.

    Warnings and failed pages scroll by above it. The line vanishes when the job is over.
    """

    def __init__(self, *, quiet: bool, clock: Clock = time.monotonic) -> None:
        self._quiet = quiet
        self._pace = Pace(clock)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._total: int | None = None
        self._done = 0
        self._active: dict[tuple[str, int], int] = {}

    def start(self, total_pages: int | None) -> None:
        """Show how many pages there are."""
        self._total = total_pages
        self._redraw()

    def document(self, name: str, pages: int) -> None:
        """Nothing to draw: its pages will be shown."""

    def page_started(self, document: str, page: int, attempt: int) -> None:
        """Show the page, if none is older."""
        self._active[document, page] = attempt
        self._redraw()

    def page_done(self, record: PageRecord, done: int, total: int | None) -> None:
        """Advance; failed pages get a line that stays."""
        self._pace.note(done)
        self._done, self._total = done, total
        self._active.pop((record.document, record.page), None)
        if is_worth_a_line(record):
            self._print(f"vlmcli: {failure_line(record)}")
        self._redraw()

    def warning(self, text: str) -> None:
        """A line that stays."""
        self._print(f"vlmcli: warning: {text}")

    def finish(self, summary: str, *, is_news: bool = False) -> None:
        """Stop drawing and leave the summary."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        if not self._quiet:
            _say_lines(summary)

    def _print(self, text: str) -> None:
        if self._quiet:
            return
        if self._progress is None:
            say(text)
        else:
            self._progress.console.print(
                printable(text), markup=False, highlight=False, soft_wrap=True
            )

    def _redraw(self) -> None:
        if self._progress is None or self._task is None:
            self._progress = _drawing()
            self._task = self._progress.add_task("", total=self._total, note="")
            self._progress.start()
        speed, eta = self._pace.pages_per_minute(), self._pace.eta(self._total)
        parts = [] if speed is None else [f"{speed:.1f} pages/min"]
        if eta is not None:
            parts.append(f"{format_seconds(eta)} left")
        if self._active:
            (document, page), attempt = next(iter(self._active.items()))
            again = f", attempt {attempt}" if attempt > 1 else ""
            parts.append(f"{printable(document)} page {page}{again}")
        note = " · ".join(parts)
        self._progress.update(self._task, completed=self._done, total=self._total, note=note)


def make_reporter(options: OcrOptions) -> Reporter:
    """The reporter that `--progress`, `-q`, `-v` and the terminal ask for."""
    mode = options.progress
    if mode == "auto":
        mode = "rich" if is_terminal() and not options.quiet else "none"
    if mode == "json":
        return JsonReporter()
    if mode == "rich":
        return RichReporter(quiet=options.quiet)
    return PlainReporter(quiet=options.quiet, summary=options.verbose > 0)


def _say_lines(summary: str) -> None:
    for line in filter(None, summary.split("\n")):
        say(f"vlmcli: {line}")


def is_worth_a_line(record: PageRecord) -> bool:
    """Whether a page failed. A document that did not open (page 0) has had its warning already."""
    return record.is_failed and record.page > 0


def failure_line(record: PageRecord) -> str:
    """`scan.pdf page 3: timeout: not read within 5 s`."""
    place = f"{record.document} page {record.page}"
    if record.error is None:
        return f"{place}: {record.status}"
    return f"{place}: {record.error.code}: {record.error.message}"


def format_seconds(seconds: float) -> str:
    """`42 s`, `3:05`, `2:03:05`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _drawing() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    note = Column(no_wrap=True, overflow="ellipsis")
    return Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False, table_column=note),
        console=Console(stderr=True),
        refresh_per_second=4,
        transient=True,
        redirect_stdout=False,
    )
