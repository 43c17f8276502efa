"""The loads that a job may be done with, from the least to the most demanding. Counts, no bytes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import nlargest

from vlmcli.memory.demand import Job
from vlmcli.memory.settings import LINES_TOGETHER

_FEWEST_LINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much is worked on at once: pages and requests with the model, and page workers.

    Without `overlap` no page is drawn while another one is read.
    """

    pages: int
    sequences: int
    jobs: int
    overlap: bool = True


def loads(job: Job) -> list[Load]:
    """Every load that the settings allow, from the least to the most demanding one.

    Workers are given up before a page is: more of them only keep the model busy. Then a worker that
    draws while the model reads, then lines that are read together.
    """
    settings, count = job.settings, max(1, len(job.demands))
    most_jobs = max(1, min(settings.jobs, count))
    steps = [*_powers(most_jobs), most_jobs]
    if job.facts is None:
        sent = min(settings.remote_pages, count)
        first = [Load(pages=min(1, sent), sequences=0, jobs=jobs) for jobs in steps]
        return [*first, *(replace(first[-1], pages=pages) for pages in range(2, sent + 1))]
    most_pages = min(settings.resolve_pages_in_flight(job.facts), count)
    one, *others = (
        Load(pages=pages, sequences=_together(job, pages), jobs=most_jobs)
        for pages in range(1, most_pages + 1)
    )
    fewer = range(_FEWEST_LINES, one.sequences, _FEWEST_LINES)
    alone = replace(one, jobs=1, overlap=False)
    return [
        *(replace(alone, sequences=lines) for lines in fewer),
        alone,
        *(replace(one, jobs=jobs) for jobs in steps),
        *others,
    ]


def _powers(limit: int) -> Iterator[int]:
    """1, 2, 4 and so on below the limit."""
    value = 1
    while value < limit:
        yield value
        value *= 2


def _together(job: Job, pages: int) -> int:
    """Requests that run together: lines of the pages in flight, or the pages themselves."""
    most = min(job.settings.max_num_seqs, LINES_TOGETHER)
    if job.model.reads == "page":
        return max(1, min(pages, job.settings.max_num_seqs))
    counts = nlargest(pages, (demand.sequences for demand in job.demands))
    return max(1, min(sum(counts), most))
