"""What a job tells while it runs and when it is over: the Reporter protocol and the job's summary.

Plain data and one Protocol. Who draws bars or prints events is `cli.progress`'s business; the
pipeline only ever sees this file.
"""

from dataclasses import dataclass, field
from typing import Protocol

from vlmcli.errors import ExitCode, VlmcliError
from vlmcli.results import PageRecord


class Reporter(Protocol):
    """Told about every step of a job, in the order in which things happen. Does not raise."""

    def start(self, total_pages: int | None) -> None:
        """The number of pages is known, or will not be (None). Other events may come before."""

    def document(self, name: str, pages: int) -> None:
        """A document was opened and has this many selected pages."""

    def page_started(self, document: str, page: int, attempt: int) -> None:
        """Work on a page begins. `page` and `attempt` count from 1."""

    def page_done(self, record: PageRecord, done: int, total: int | None) -> None:
        """A page is finished, whatever became of it; `done` of `total` pages are."""

    def warning(self, text: str) -> None:
        """Something that the user should know and that does not stop the job."""

    def finish(self, summary: str) -> None:
        """The job is over; `summary` is one line for people, empty if it was broken off."""


class NullReporter:
    """Says nothing: for tests and for use as a library."""

    def start(self, total_pages: int | None) -> None:
        """Ignored."""

    def document(self, name: str, pages: int) -> None:
        """Ignored."""

    def page_started(self, document: str, page: int, attempt: int) -> None:
        """Ignored."""

    def page_done(self, record: PageRecord, done: int, total: int | None) -> None:
        """Ignored."""

    def warning(self, text: str) -> None:
        """Ignored."""

    def finish(self, summary: str) -> None:
        """Ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """What became of a job. `pages` counts records, the next three are among them."""

    pages: int = 0
    failed: int = 0
    blank: int = 0
    resumed: int = 0
    """Pages that came out of the journal of an earlier run."""
    documents: int = 0
    seconds: float = 0.0
    """Wall-clock seconds of the whole job."""
    exit_code: ExitCode = ExitCode.OK

    def line(self) -> str:
        """The closing line for people."""
        head = f"{self.pages} page{'' if self.pages == 1 else 's'}"
        if self.documents > 1:
            head += f" of {self.documents} documents"
        counts = (
            (self.blank, "blank"),
            (self.resumed, "from the journal"),
            (self.failed, "FAILED"),
        )
        parts = [head, *(f"{count} {name}" for count, name in counts if count)]
        return f"{', '.join(parts)} in {self.seconds:.1f} s"


@dataclass(slots=True)
class Tally:
    """What a job has come to so far, in pages and documents."""

    num_pages: int = 0
    num_failed: int = 0
    num_blank: int = 0
    num_resumed: int = 0
    num_documents: int = 0
    document_errors: list[VlmcliError] = field(default_factory=list)

    def count(self, record: PageRecord) -> None:
        """Add one finished record."""
        self.num_pages += 1
        self.num_failed += record.is_failed
        self.num_blank += record.blank
