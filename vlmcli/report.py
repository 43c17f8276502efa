"""What a job tells while it runs and when it is over: the Reporter protocol and the job's summary.

Plain data and one Protocol. Who draws bars or prints events is `cli.progress`'s business; the
pipeline only ever sees this file.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, get_args

from vlmcli.errors import ExitCode, VlmcliError
from vlmcli.options import format_size
from vlmcli.results import PageRecord, Source, Status

NO_TEXT_LAYER = "no-text-layer"
"""The suspicion of pages that have no text layer where nobody else is asked."""

Figures = Mapping[str, float]
"""Counters, seconds and bytes of a job, by the names that `--stats` writes."""

IDLE_SHARE = 0.3
"""Of a job's time: where the model waits longer for pages, drawing them holds the job up."""
_MODEL_STAGES = ("encode", "prefill", "decode")
_STAGES = ("render", *_MODEL_STAGES, "write")


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

    def finish(self, summary: str, *, is_news: bool = False) -> None:
        """The job is over; `summary` is for people: a line, and details on lines of their own.

        Empty if the job was broken off. With `is_news` it is to be said even where nobody asked
        for a summary.
        """


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

    def finish(self, summary: str, *, is_news: bool = False) -> None:
        """Ignored."""


_FAILED = ("error", "looped", "timeout")
_REUSED = ("exact", "verified", "similar", "draft")


def bottleneck(figures: Figures) -> str | None:
    """The stage that a job waited for longest; None where no time was spent.

    Pages are drawn beside the model's work, so that drawing counts only where the model had to
    wait for it, or had nothing to do at all.
    """
    seconds = figures.get("seconds", 0.0)
    times = {name: figures.get(f"seconds_{name}", 0.0) for name in _STAGES}
    idle = figures.get("seconds_idle", 0.0)
    if idle > 0 and idle >= IDLE_SHARE * seconds:
        return "render"
    has_model = any(times[name] for name in _MODEL_STAGES)
    if has_model:
        del times["render"]
    name = max(times, key=lambda name: times[name])
    return name if times[name] > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """What became of a job. `pages` counts records, the next three are among them."""

    pages: int = 0
    failed: int = 0
    blank: int = 0
    no_text_layer: int = 0
    """Pages that were to be answered by their text layer and have none; with `only`."""
    resumed: int = 0
    """Pages that came out of the journal of an earlier run."""
    documents: int = 0
    seconds: float = 0.0
    """Wall-clock seconds of the whole job."""
    exit_code: ExitCode = ExitCode.OK
    was_finished: bool = False
    """Whether the job was over before this run, which did nothing."""
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Pages by status."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Pages by what answered them; `none` where nothing did."""
    figures: Figures = field(default_factory=dict)

    @property
    def pages_per_minute(self) -> float:
        """Pages of this run, those out of the journal left aside, over its whole time."""
        done = self.pages - self.resumed
        return 60.0 * done / self.seconds if self.seconds > 0 else 0.0

    @property
    def bottleneck(self) -> str | None:
        """The stage that held the job up."""
        return bottleneck({**self.figures, "seconds": self.seconds})

    def details(self) -> list[str]:
        """Further lines for people: what answered, where the time went, memory against plan."""
        figures = self.figures
        if not figures:
            return []
        stages = [f"{name} {figures.get(f'seconds_{name}', 0.0):.1f} s" for name in _STAGES]
        time = f"{self.pages_per_minute:.1f} pages/min: {', '.join(stages)}"
        if self.bottleneck is not None:
            time += f"; bottleneck: {self.bottleneck}"
        return [line for line in ("; ".join(self._origins()), time, self._memory()) if line]

    def _origins(self) -> Iterator[str]:
        failed = [f"{self.statuses[name]} {name}" for name in _FAILED if self.statuses.get(name)]
        if failed:
            yield f"failed: {', '.join(failed)}"
        answered = [f"{count} {name}" for name, count in self.sources.items() if count]
        if answered:
            yield f"answered by: {', '.join(answered)}"
        kinds = {kind: self.figures.get(f"reuse_{kind}", 0) for kind in _REUSED}
        reused = [f"{count:.0f} {kind}" for kind, count in kinds.items() if count]
        if reused:
            yield f"reuse: {', '.join(reused)}"
        drafted = self.figures.get("drafted_tokens", 0)
        if drafted:
            accepted = self.figures.get("accepted_tokens", 0)
            yield f"drafts: {accepted:.0f} of {drafted:.0f} tokens right"

    def _memory(self) -> str:
        parts = []
        for name in ("memory", "device_memory"):
            peak = self.figures.get(f"{name}_peak_bytes", 0)
            if peak:
                parts.append(f"{name.replace('_', ' ')} {format_size(int(peak))} at its peak")
        planned = self.figures.get("memory_planned_bytes", 0)
        if parts and planned:
            parts.append(f"{format_size(int(planned))} planned")
        return ", ".join(parts)

    def line(self) -> str:
        """The closing line for people."""
        if self.was_finished:
            return self._nothing_to_do()
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

    def _nothing_to_do(self) -> str:
        what = f"{self.pages} page{'' if self.pages == 1 else 's'}"
        again = f", {self.failed} FAILED: add --overwrite to read again" if self.failed else ""
        return f"nothing to do, the job is finished: {what}{again}"


def no_text_layer_note(count: int) -> str:
    """What is said once of all pages without a text layer."""
    have = "page has" if count == 1 else "pages have"
    return f"{count} {have} no text layer; --text-layer auto has a model read such pages"


def _zeros(*names: str) -> Counter[str]:
    return Counter(dict.fromkeys(names, 0))


@dataclass(slots=True)
class Tally:
    """What a job has come to so far, in pages and documents."""

    num_pages: int = 0
    num_failed: int = 0
    num_blank: int = 0
    num_no_text_layer: int = 0
    num_resumed: int = 0
    num_documents: int = 0
    statuses: Counter[str] = field(default_factory=lambda: _zeros(*get_args(Status)))
    sources: Counter[str] = field(default_factory=lambda: _zeros(*get_args(Source), "none"))
    document_errors: list[VlmcliError] = field(default_factory=list)

    def count(self, record: PageRecord) -> None:
        """Add one finished record."""
        self.num_pages += 1
        self.num_failed += record.is_failed
        self.num_blank += record.blank
        self.num_no_text_layer += NO_TEXT_LAYER in record.suspect
        self.statuses[record.status] += 1
        self.sources[record.source or "none"] += 1
