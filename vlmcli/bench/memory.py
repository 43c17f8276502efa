"""`vlmcli bench memory`: is the memory of a job flat in its number of pages?

Writes a scan of N distinct pages for each N, reads each in a process of its own, and compares the
highest resident memory of the process trees.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vlmcli.bench.pages import page_picture, write_scan
from vlmcli.bench.rss import RunMemory, run_measured

_PAGE = {"width": 420, "height": 298, "lines": 8}
"""A6 across, in points, with eight lines: distinct pages, and a thousand of them in minutes."""


def run(num_pages: Sequence[int], say: Callable[[str], None]) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Returns:
        `runs`, one object per page count, and `rss_ratio`: the longest job's peak over the
        shortest's.
    """
    runs: dict[int, RunMemory] = {}
    say(f"{'pages':>8} {'peak RSS MiB':>14} {'wall s':>8} {'CPU s':>8} {'s/page':>8}")
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as folder:
        for count in num_pages:
            scan = Path(folder) / f"scan-{count}.pdf"
            write_scan(scan, (page_picture(seed, **_PAGE) for seed in range(count)))
            runs[count] = run_measured(
                [
                    *(sys.executable, "-m", "vlmcli", "ocr", str(scan), "-f", "jsonl"),
                    *("-o", str(Path(folder) / f"{count}.jsonl"), "--text-layer", "ignore"),
                    *("--progress", "none", "--no-cache"),
                ]
            )
            row = runs[count]
            say(
                f"{count:>8} {row.peak_rss / 2**20:>14.1f} {row.seconds:>8.1f} "
                f"{row.cpu_seconds:>8.1f} {row.seconds / count:>8.3f}"
            )
    shortest, longest = runs[min(runs)], runs[max(runs)]
    return {
        "runs": [
            {
                "pages": count,
                "peak_rss_bytes": row.peak_rss,
                "seconds": round(row.seconds, 2),
                "exit_code": row.returncode,
            }
            for count, row in runs.items()
        ],
        "rss_ratio": round(longest.peak_rss / shortest.peak_rss, 3),
    }
