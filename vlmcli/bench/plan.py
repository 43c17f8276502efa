"""`vlmcli bench plan`: does a job take what was planned for it?

Plans and runs jobs of many kinds: one page and many, A4 pages and stamps and posters, the built-in
model and random ones of three families, two number formats. A plan must not be too low, or caps do
not hold, and not much too high, or jobs are refused that would fit.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from vlmcli.bench.checkpoints import MID, TINY, WINDOWED, Shape, write_checkpoint
from vlmcli.bench.jobs import WITHOUT_REUSE
from vlmcli.bench.pages import Paper, write_print, write_scan
from vlmcli.bench.rss import run_measured
from vlmcli.checkpoint import BUILT_IN
from vlmcli.errors import UsageError

A4 = Paper(width=595, height=842, lines=45)
SPARSE = Paper(width=595, height=842, lines=6)
POSTER = Paper(width=2384, height=3370, lines=60)
STAMP = Paper(width=90, height=60, lines=2)
CARD = Paper(width=298, height=210, lines=5)
_MIXED = (SPARSE, STAMP, CARD, STAMP, CARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job: a model, pages, their number, and the number format."""

    model: Shape | None
    """None is the built-in model."""
    pages: str
    papers: tuple[Paper, ...]
    count: int
    dtype: str
    is_scan: bool

    @property
    def model_name(self) -> str:
        """As a name or as a directory in the benchmark's folder."""
        return self.model.name if self.model else BUILT_IN

    @property
    def label(self) -> str:
        """As in the table: `nano 1 A4 float32`."""
        return f"{self.model_name} {self.pages} {self.dtype}"


def _case(model: Shape | None, pages: str, count: int, dtype: str = "float32") -> Case:
    papers = {
        "A4": (A4,) if count == 1 else (SPARSE,),
        "A0": (POSTER,),
        "stamps": (STAMP,),
        "mixed": _MIXED,
    }
    return Case(
        model=model,
        pages=f"{count} {pages}",
        papers=papers[pages],
        count=count,
        dtype=dtype,
        is_scan=pages in ("A4", "mixed"),
    )


CASES = (
    _case(None, "A4", 1),
    _case(None, "A4", 50, "bfloat16"),
    _case(None, "A0", 1),
    _case(None, "A4", 500),
    _case(None, "mixed", 50),
    _case(None, "stamps", 500),
    _case(TINY, "A4", 1),
    _case(TINY, "A0", 1, "bfloat16"),
    _case(TINY, "stamps", 500),
    _case(WINDOWED, "A4", 1, "bfloat16"),
    _case(WINDOWED, "mixed", 50),
    _case(MID, "A4", 1),
    _case(MID, "A4", 1, "bfloat16"),
    _case(MID, "stamps", 50),
)
_MIB = 2**20
_COMMAND = (sys.executable, "-m", "vlmcli")


def choose(words: Sequence[str]) -> list[Case]:
    """The jobs whose label has all the words of one of the given texts; without texts, all.

    Raises:
        UsageError: no job has them.
    """
    chosen = [
        case
        for case in CASES
        if not words or any(set(text.split()) <= set(case.label.split()) for text in words)
    ]
    if not chosen:
        raise UsageError(
            f"no job is called {' or '.join(map(repr, words))}",
            remedy=f"choose from: {', '.join(case.label for case in CASES)}",
        )
    return chosen


def run(
    cases: Sequence[Case], device: str, say: Callable[[str], None], *, probe: bool = False
) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Args:
        cases: the jobs.
        device: where the models run.
        say: takes a line of text.
        probe: measure this machine's coefficients for every model first, for these jobs alone.

    Returns:
        `jobs`, one object per case, and `min_ratio` and `max_ratio` of planned over measured.

    Raises:
        RuntimeError: a job failed, so that its memory says nothing.
    """
    say(
        f"{'model':<10}{'pages':<12}{'dtype':<10}{'planned':>10}{'measured':>10}{'ratio':>7}{'s':>7}"
    )
    jobs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as name:
        folder = Path(name)
        for case in cases:
            if case.model is not None and not (folder / case.model.name).is_dir():
                write_checkpoint(folder, case.model)
            if probe:
                _vlmcli(folder, "bench", "probe", *_options(case, folder, device))
            job = _measure(case, folder, device)
            jobs.append(job)
            say(
                f"{job['model']:<10}{job['pages']:<12}{job['dtype']:<10}"
                f"{job['planned_bytes'] / _MIB:>10.1f}{job['measured_bytes'] / _MIB:>10.1f}"
                f"{job['ratio']:>7.3f}{job['seconds']:>7.1f}"
            )
    ratios = [job["ratio"] for job in jobs]
    return {"jobs": jobs, "min_ratio": min(ratios), "max_ratio": max(ratios)}


def _measure(case: Case, folder: Path, device: str) -> dict[str, Any]:
    document, stats = folder / "job.pdf", folder / "stats.json"
    papers = list(islice(cycle(case.papers), case.count))
    if case.is_scan:
        write_scan(document, (paper.picture(seed) for seed, paper in enumerate(papers)))
    else:
        write_print(document, papers)
    options = [*_options(case, folder, device), "--jobs", "1"]
    if case.model:
        options += ["--max-tokens", "16"]
    options += WITHOUT_REUSE
    planned = json.loads(_vlmcli(folder, "plan", str(document), "--json", *options))
    done = run_measured(
        [
            *(*_COMMAND, "ocr", str(document), *options, "--text-layer", "ignore"),
            *("-f", "jsonl", "-o", str(folder / "job.jsonl"), "--overwrite", "--retries", "0"),
            *("--progress", "none", "--stats", str(stats)),
        ],
        env=_environment(folder),
    )
    if done.returncode:
        raise RuntimeError(f"{case.label}: ended with exit code {done.returncode}")
    peak, measured = planned["peak_bytes"], done.peak_rss
    if device != "cpu":
        # Torch counts what it takes of a device, which is all but the context.
        peak -= planned["terms"]["runtime_context"]
        measured = json.loads(stats.read_text())["device_memory_peak_bytes"]
    return {
        "model": case.model_name,
        "pages": case.pages,
        "dtype": case.dtype,
        "planned_bytes": peak,
        "measured_bytes": measured,
        "ratio": round(peak / max(1, measured), 3),
        "terms": planned["terms"],
        "seconds": round(done.seconds, 1),
    }


def _options(case: Case, folder: Path, device: str) -> list[str]:
    model = str(folder / case.model.name) if case.model else BUILT_IN
    return ["-m", model, "--dtype", case.dtype, "--device", device]


def _vlmcli(folder: Path, *args: str) -> bytes:
    """What a command prints; its fault is ours."""
    done = subprocess.run(
        [*_COMMAND, *args], check=True, capture_output=True, env=_environment(folder)
    )
    return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    """The environment without what was measured on this machine before."""
    return os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
