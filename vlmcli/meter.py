"""Where a job's time goes: seconds by stage, of the slowest page, and of writing."""

import contextlib
import statistics
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from vlmcli.results import PageRecord

_STAGES = ("render", "encode", "prefill", "decode")


@dataclass(slots=True)
class Meter:
    """Sums over the pages of one run."""

    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_STAGES, 0.0))
    write: float = 0.0
    pages: "array[float]" = field(default_factory=lambda: array("f"))
    """Seconds of every page that was read, all stages together."""

    def add(self, record: PageRecord) -> None:
        """Count a page of this run."""
        total = 0.0
        for name in _STAGES:
            seconds = getattr(record.seconds, name)
            self.stages[name] += seconds
            total += seconds
        if record.source == "model":
            self.pages.append(total)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Count the time within as writing: journal and outputs."""
        started = time.perf_counter()
        yield
        self.write += time.perf_counter() - started

    @property
    def stats(self) -> dict[str, float]:
        """Seconds by name."""
        stages = {f"seconds_{name}": round(seconds, 3) for name, seconds in self.stages.items()}
        return {
            **stages,
            "seconds_write": round(self.write, 3),
            "page_seconds_median": round(statistics.median(self.pages), 4) if self.pages else 0.0,
            "page_seconds_max": round(max(self.pages, default=0.0), 4),
        }
