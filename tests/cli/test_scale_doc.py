"""docs/scale.md is true: its commands run and print what it shows, those for Ray where that is."""

import importlib.util
import re

from command_line import ROOT

TEXT = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```(?:\n+```text\n(.*?)^```)?", TEXT, re.DOTALL | re.MULTILINE)


def test_every_command_runs(shell):
    has_ray = importlib.util.find_spec("ray") is not None
    ran = 0
    for block, shown in BLOCKS:
        if "--ray local" in block and not has_ray:
            continue
        printed = shell(block)
        assert not shown or printed == shown
        ran += 1
    assert len(BLOCKS) == TEXT.count("```sh\n") == 3
    assert ran == (3 if has_ray else 2)
    # Given again, the loop finds everything done.
    before = [path.stat().st_mtime_ns for path in sorted(shell.folder.glob("archive/*.jsonl"))]
    assert len(before) == 2
    shell(BLOCKS[0][0])
    again = [path.stat().st_mtime_ns for path in sorted(shell.folder.glob("archive/*.jsonl"))]
    assert again == before


def test_the_sums_of_the_paper_calculation_are_right():
    pages, cores = 10**7, 1024
    assert "10⁷ × 2.4 s = 6,700 core-hours" in TEXT and round(pages * 2.4 / 3600, -2) == 6700
    assert "2,800 GPU-hours" in TEXT and round(pages / 3600, -2) == 2800
    assert "330 core-hours" in TEXT and round(pages * 0.12 / 3600, -1) == 330
    drawn = 30 / 0.41
    assert "73 pages a" in TEXT and round(drawn) == 73
    assert "146 cores" in TEXT and round(drawn * 2.0) in (146, 147)
    assert "85 MB/s" in TEXT and round(round(drawn) * 1.158) == 85
    assert "250 pages a second" in TEXT and 30 / 0.12 == 250
    assert "2.9 GB/s" in TEXT and round(250 * 1654 * 2339 * 3 / 1e9, 1) == 2.9
    assert "feeds 100 GPUs" in TEXT and 100 * 1654 * 2339 * 3 * 8 < 10e9
    readers = cores - 6 * 32
    assert readers / 2.0 <= 6 * drawn
    assert f"| 6 | {pages * 2.0 / readers / 3600:.1f} |" in TEXT
    assert f"| 1 | {pages / 64 / 3600:.0f} |" in TEXT
