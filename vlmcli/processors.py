"""How many processors this process may use, and the page workers that suit them.

The affinity mask and the cgroup's quota count, not the machine: a container with two processors on
a machine with sixty-four has two. Looks at nothing but Linux's cgroup files.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_MOST_JOBS = 8


def num_cpus() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = cgroup_quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return max(1, math.ceil(min(count, quota)))


def default_jobs() -> int:
    """Page workers where none are asked for: all processors but the one that the model keeps busy.

    Eight at most: they render several times as many pages as a model on the same machine reads, and
    each takes its memory.
    """
    return min(_MOST_JOBS, max(1, num_cpus() - 1))


def default_threads() -> int:
    """Threads of the model: every processor that this process may use, eight at most.

    The page workers run between its steps; with the passive wait policy that `__main__` sets, a
    thread without work sleeps instead of spinning.
    """
    return min(8, num_cpus())


def cgroup_quota(root: Path, own: Path) -> float:
    """Processors' worth of time that the control group grants; infinite without a limit.

    Args:
        root: where the control groups are mounted.
        own: the file that names this process's group.
    """
    return min(
        (quota for folder in _groups(root, own) for quota in _quotas(folder)), default=math.inf
    )


def _groups(root: Path, own: Path) -> Iterator[Path]:
    """Folders of this process's group and those that it is part of, in both versions' layouts."""
    yield root / "cpu"
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    paths = [line.removeprefix("0::") for line in lines if line.startswith("0::/")]
    for path in paths or ["/"]:
        folder = root / path.lstrip("/")
        yield folder
        yield from (parent for parent in folder.parents if parent.is_relative_to(root))


def _quotas(folder: Path) -> Iterator[float]:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        if quota != "max" and int(quota) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return
