"""The result store under murder and crowds: whatever happens to a process, the file stays sound."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import store_pages
from store_pages import KEY, MAX_BYTES, page, record

from vlmcli.reuse.store import ResultStore


@contextlib.contextmanager
def nursery(directory: Path) -> Iterator[subprocess.Popen]:
    """The process that forks writers; left once they have all ended."""
    process = subprocess.Popen(
        [sys.executable, store_pages.__file__, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        yield process
        process.stdin.close()
        assert process.wait() == 0


def start(process: subprocess.Popen, first: int, count: int, batch: int) -> int:
    process.stdin.write(b"%d %d %d\n" % (first, count, batch))
    process.stdin.flush()
    return int(process.stdout.readline())


def test_twenty_kills_in_the_middle_of_writing_leave_a_sound_store(tmp_path):
    rng = random.Random(0)
    with nursery(tmp_path) as process:
        for attempt in range(20):
            writer = start(process, 1 + 50_000 * attempt, 50_000, 3)
            time.sleep(rng.uniform(0, 0.15))
            os.kill(writer, signal.SIGKILL)
            warnings = []
            with ResultStore(tmp_path, max_bytes=MAX_BYTES, on_warning=warnings.append) as store:
                check = store.verify()
            assert check.is_sound and check.num_dropped == 0 and not warnings, attempt
    with ResultStore(tmp_path) as store:
        assert store.info().num_pages > 0
        store.put(page(7), KEY, record(7))
    with ResultStore(tmp_path) as store:
        assert store.get(page(7).digest, KEY) == record(7)


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    firsts = (1, 1001, 2001)
    with nursery(tmp_path) as process:
        for first in firsts:
            start(process, first, 300, 7)
    with ResultStore(tmp_path) as store:
        assert store.verify().is_sound
        for first in firsts:
            for number in range(first, first + 300):
                assert store.get(page(number).digest, KEY) == record(number, 3000)
