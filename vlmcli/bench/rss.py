"""Memory of a process and its descendants while it runs, from /proc: Linux only.

Resident bytes are sampled; the peak of the sum over all processes can only be seen that way. Pages
that processes share are counted once per process (RSS, not PSS), so the figure errs upwards.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from vlmcli.memory.devices import resident_bytes

INTERVAL = 0.02
"""Seconds between samples."""
MOST_SAMPLES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMemory:
    """What a finished run took: bytes, seconds, and its exit code."""

    peak_rss: int
    """Highest sum of resident bytes over the process and its descendants."""
    seconds: float
    cpu_seconds: float
    returncode: int
    samples: tuple[tuple[float, int], ...]
    """(seconds since the start, resident bytes), thinned to a few hundred; the peak is one."""


def tree_rss(root: int) -> int:
    """Resident bytes of `root` and all its descendants, now.

    A process that is being started still has its parent's memory and command line, until it becomes
    the program that was asked for: it is left out, or that memory would count twice.
    """
    total, queue = 0, [(root, b"")]
    while queue:
        pid, parent = queue.pop()
        command = _command_line(pid)
        if command != parent:
            total += resident_bytes(pid)
        queue += [(child, command) for child in _children(pid)]
    return total


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _children(pid: int) -> list[int]:
    """Processes that any thread of a process has started."""
    found: list[int] = []
    # The process, or one of its threads, may end while it is looked at.
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def run_measured(command: Sequence[str], *, env: dict[str, str] | None = None) -> RunMemory:
    """Run a command to its end, its output thrown away, and watch its memory."""
    before = os.times()
    started = time.monotonic()
    samples: list[tuple[float, int]] = []
    peak = 0
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    while process.poll() is None:
        rss = tree_rss(process.pid)
        peak = max(peak, rss)
        samples.append((time.monotonic() - started, rss))
        time.sleep(INTERVAL)
    after = os.times()
    return RunMemory(
        peak_rss=peak,
        seconds=time.monotonic() - started,
        cpu_seconds=(after.children_user - before.children_user)
        + (after.children_system - before.children_system),
        returncode=process.returncode,
        samples=thinned(samples, MOST_SAMPLES),
    )


def peak_during(work: Callable[[], object]) -> int:
    """Highest resident bytes of this process while `work` runs, as the kernel remembers them."""
    # Resets what it remembers: proc(5).
    Path("/proc/self/clear_refs").write_text("5")
    work()
    return own_peak()


def own_peak() -> int:
    """Highest resident bytes of this process since it was started, or since that was forgotten."""
    status = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return peak * 1024


def thinned(samples: Sequence[tuple[float, int]], most: int) -> tuple[tuple[float, int], ...]:
    """At most so many of the samples: the highest of each stretch of equal length."""
    stretch = max(1, -(-len(samples) // most))
    starts = range(0, len(samples), stretch)
    return tuple(max(samples[at : at + stretch], key=itemgetter(1)) for at in starts)
