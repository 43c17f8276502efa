"""`vlmcli bench memory`: is the memory of a job flat in its number of pages, and within its plan?

Writes a scan of N distinct pages for each N, reads each in a process of its own, and compares the
highest resident memory of the process trees. With a cap, the jobs are held to it.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vlmcli.bench.pages import page_picture, write_scan
from vlmcli.bench.plot import Curve, draw_chart
from vlmcli.bench.rss import RunMemory, run_measured
from vlmcli.outputs.single import check_single, refuse_stdout, write_single

_PAGE = {"width": 420, "height": 298, "lines": 8}
"""A6 across, in points, with eight lines: distinct pages, and a thousand of them in minutes."""
_MIB = 2**20
_BLUE, _ORANGE, _RED = (31, 119, 180), (230, 126, 20), (200, 40, 40)


def run(
    num_pages: Sequence[int],
    say: Callable[[str], None],
    *,
    max_memory: int | None = None,
    plot: Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Args:
        num_pages: page counts.
        say: takes a line of text.
        max_memory: cap for every job in bytes; None for what is free.
        plot: a PNG of the longest job: planned, cap and actual.
        overwrite: whether an existing file may be replaced by that.

    Returns:
        `runs`, one object per page count, and `rss_ratio`: the longest job's peak over the
        shortest's.

    Raises:
        OutputError: the PNG cannot be written; said before anything is measured.
    """
    if plot is not None:
        refuse_stdout(str(plot), "--plot")
        check_single(plot, "--plot", overwrite=overwrite)
    runs: dict[int, tuple[RunMemory, dict[str, Any]]] = {}
    say(f"{'pages':>8} {'planned MiB':>12} {'peak RSS MiB':>14} {'wall s':>8} {'s/page':>8}")
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as folder:
        for count in num_pages:
            runs[count] = _read(Path(folder), count, max_memory)
            row, stats = runs[count]
            say(
                f"{count:>8} {stats.get('memory_planned_bytes', 0) / _MIB:>12.1f} "
                f"{row.peak_rss / _MIB:>14.1f} {row.seconds:>8.1f} {row.seconds / count:>8.3f}"
            )
    if plot is not None:
        _plot(plot, max(runs), *runs[max(runs)])
    shortest, longest = runs[min(runs)][0], runs[max(runs)][0]
    return {
        "runs": [
            {
                "pages": count,
                "peak_rss_bytes": row.peak_rss,
                "planned_bytes": stats.get("memory_planned_bytes"),
                "cap_bytes": stats.get("memory_cap_bytes"),
                "seconds": round(row.seconds, 2),
                "exit_code": row.returncode,
            }
            for count, (row, stats) in runs.items()
        ],
        "rss_ratio": round(longest.peak_rss / shortest.peak_rss, 3),
    }


def _read(folder: Path, count: int, max_memory: int | None) -> tuple[RunMemory, dict[str, Any]]:
    scan, stats = folder / f"scan-{count}.pdf", folder / f"stats-{count}.json"
    write_scan(scan, (page_picture(seed, **_PAGE) for seed in range(count)))
    row = run_measured(
        [
            *(sys.executable, "-m", "vlmcli", "ocr", str(scan), "-f", "jsonl"),
            *("-o", str(folder / f"{count}.jsonl"), "--text-layer", "ignore"),
            *("--progress", "none", "--no-cache", "--stats", str(stats)),
            *(() if max_memory is None else ("--max-memory", str(max_memory))),
        ]
    )
    return row, json.loads(stats.read_text()) if stats.exists() else {}


def _plot(path: Path, count: int, row: RunMemory, stats: dict[str, Any]) -> None:
    actual = [(seconds, rss / _MIB) for seconds, rss in row.samples]
    end = actual[-1][0]
    curves = [Curve(name="resident memory", points=actual, colour=_BLUE)]
    for name, key, colour in (
        ("planned peak", "memory_planned_bytes", _ORANGE),
        ("cap (--max-memory)", "memory_cap_bytes", _RED),
    ):
        level = stats.get(key, 0) / _MIB
        # A cap that is far away would press the curve to the ground.
        if 0 < level < 4 * row.peak_rss / _MIB:
            points = ((0.0, level), (end, level))
            curves.append(Curve(name=name, points=points, colour=colour, is_dashed=True))
    title = f"vlmcli ocr, a scan of {count} pages: memory of all its processes"
    write_single(path, "--plot", draw_chart(title, ("seconds", "MiB"), curves))
