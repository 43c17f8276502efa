"""The memory benchmarks from end to end at their smallest: what they print, they have measured."""

import json
import sys

import pytest
from PIL import Image
from real_documents import write_pages

from vlmcli.bench.plan import CASES, choose
from vlmcli.cli.plan_job import make_plan
from vlmcli.errors import UsageError
from vlmcli.memory.request import PlanRequest
from vlmcli.memory.settings import Plan

MIB = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def bench(real, *args: str) -> tuple[dict, list[str]]:
    """The object in the last line, and the lines before it."""
    done = real("bench", *args)
    assert done.returncode == 0, done.stderr.decode()
    *lines, last = done.stdout.decode().splitlines()
    return json.loads(last), lines


@pytest.mark.slow
def test_a_plan_with_measured_coefficients_holds_and_is_near(real) -> None:
    result, lines = bench(real, "plan", "--only", "tiny A4", "--probe")
    (job,) = result["jobs"]
    assert (job["model"], job["pages"], job["dtype"]) == ("tiny", "1 A4", "float32")
    assert job["planned_bytes"] == sum(job["terms"].values())
    assert result["min_ratio"] == result["max_ratio"] == job["ratio"]
    assert job["ratio"] == pytest.approx(job["planned_bytes"] / job["measured_bytes"], abs=1e-3)
    # The probe was taken beside another test: what it measured may be a little high.
    assert 1.0 <= job["ratio"] <= 1.25
    assert len(lines) == 2 and f"{job['measured_bytes'] / MIB:.1f}" in lines[1]


def test_jobs_are_chosen_by_the_words_of_their_names() -> None:
    assert choose([]) == list(CASES)
    labels = {case.label for case in choose(["nano float32 500", "tiny A4"])}
    assert labels == {"nano 500 A4 float32", "nano 500 stamps float32", "tiny 1 A4 float32"}
    with pytest.raises(UsageError, match="tiny 7") as refusal:
        choose(["tiny 7"])
    assert all(case.label in str(refusal.value) for case in CASES)


@pytest.mark.slow
def test_a_probe_is_stored_and_used_by_plan_and_ocr(real, monkeypatch) -> None:
    scan = str(write_pages(real.folder / "scan.pdf", [1]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(real.folder / "cache"))

    def plan(dtype: str) -> Plan:
        request = PlanRequest(inputs=(scan,), jobs=1, dtype=dtype)
        return make_plan(request, password=None, strict=False, look=False).plan

    before = plan("float32")
    assert not before.calibrated
    figures, _ = bench(real, "probe")
    assert [str(path) for path in real.folder.rglob("calibration-*.json")] == [figures["file"]]
    after = plan("float32")
    assert after.calibrated and not plan("bfloat16").calibrated
    assert after.terms["runtime_context"] == figures["main_bytes"]
    assert after.terms["weights"] == before.terms["weights"]
    assert b"\ncoefficients: measured on this machine\n" in real("plan").stdout
    args = ("ocr", scan, "--text-layer", "ignore", "--jobs", "1", "--stats", "stats.json")
    assert real(*args).returncode == 0
    stats = json.loads((real.folder / "stats.json").read_text())
    assert stats["memory_planned_bytes"] == after.peak_bytes


@pytest.mark.slow
def test_memory_over_pages_is_measured_under_a_cap_and_drawn(real) -> None:
    cap = 480 * MIB
    options = ("--pages", "1,3", "--max-memory", "480MiB", "--plot", "memory.png")
    result, lines = bench(real, "memory", *options)
    runs = result["runs"]
    assert [run["pages"] for run in runs] == [1, 3]
    assert {(run["cap_bytes"], run["exit_code"]) for run in runs} == {(cap, 0)}
    for run in runs:
        assert run["peak_rss_bytes"] <= cap and run["planned_bytes"] <= cap
    peaks = [run["peak_rss_bytes"] for run in runs]
    assert result["rss_ratio"] == pytest.approx(peaks[1] / peaks[0], abs=1e-3)
    assert len(lines) == 3
    with Image.open(real.folder / "memory.png") as chart:
        colours = {colour for _, colour in chart.getcolors(chart.width * chart.height)}
    assert {(31, 119, 180), (230, 126, 20), (200, 40, 40)} <= colours
