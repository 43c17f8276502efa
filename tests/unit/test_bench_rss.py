"""Samples of a run's memory: thinned, the peak kept; and every process of a tree counts."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.bench.rss import run_measured, thinned, tree_rss

MIB = 1 << 20


@given(st.lists(st.integers(0, 1 << 40)), st.integers(1, 50))
def test_few_samples_stand_for_many_and_the_peak_is_among_them(sizes, most) -> None:
    samples = [(float(number), size) for number, size in enumerate(sizes)]
    kept = thinned(samples, most)
    assert len(kept) <= most
    assert list(kept) == sorted(kept) and set(kept) <= set(samples)
    assert max((size for _, size in kept), default=0) == max(sizes, default=0)
    if len(samples) <= most:
        assert list(kept) == samples


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_children_count_and_the_exit_code_is_told() -> None:
    hold = "import sys, time; held = bytearray(b'x') * {0}; time.sleep(1.5); sys.exit({1})"
    child = hold.format(60 * MIB, 0)
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]);"
    run = run_measured([sys.executable, "-c", parent + hold.format(40 * MIB, 7)])
    assert run.returncode == 7
    assert 100 * MIB < run.peak_rss < 160 * MIB
    assert max(size for _, size in run.samples) == run.peak_rss


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_is_being_started_does_not_count_its_parents_memory_again() -> None:
    """Seen as peaks of one and a half times the real one, now and then, on a busy machine."""
    code = f"import os, time; held = bytearray(b'x') * {80 * MIB}; os.fork(); time.sleep(1)"
    run = run_measured([sys.executable, "-c", code])
    assert 80 * MIB < run.peak_rss < 140 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("method", ["iterdir", "read_text", "read_bytes"])
def test_a_process_that_ends_while_it_is_looked_at_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A bench ended with a traceback, now and then, on a busy machine."""
    whole = getattr(Path, method)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        place = Path(f"/proc/{child.pid}")

        def ends_first(path: Path, *args: object, **options: object) -> object:
            if place in path.parents:
                child.kill()
                child.wait()
            return whole(path, *args, **options)

        monkeypatch.setattr(Path, method, ends_first)
        assert tree_rss(child.pid) >= 0
        assert child.poll() is not None
    assert tree_rss(child.pid) == 0
