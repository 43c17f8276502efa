"""`vlmcli bench reuse` at its smallest: every row does the same work, and less of it twice."""

import json
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.slow
def test_every_row_reuses_more_and_says_the_same(real) -> None:
    sizes = ("--pages", "1", "--questions", "3", "--max-tokens", "12")
    done = real("bench", "reuse", "--size", "small", *sizes)
    assert done.returncode == 0, done.stderr.decode()
    *lines, last = done.stdout.decode().splitlines()
    result = json.loads(last)
    assert result["same_text"] is True
    rows = result["rows"]
    assert [row["name"] for row in rows] == [
        "no cache",
        "+ embedding cache",
        "+ prefix KV",
        "+ drafts",
    ]
    assert [row["images_encoded"] for row in rows] == [3, 1, 1, 1]
    assert len({row["prompt_tokens"] for row in rows}) == 1
    cached = [row["cached_tokens"] for row in rows]
    assert cached[:2] == [0, 0] and cached[2] == cached[3] > 2 * result["visual_tokens"]
    assert [row["drafted"] > 0 for row in rows] == [False, False, False, True]
    assert 0 < rows[3]["accepted"] <= rows[3]["drafted"]
    first, last_row = rows[0], rows[-1]
    assert result["throughput_ratio"] == pytest.approx(first["cpu_s"] / last_row["cpu_s"], rel=0.05)
    assert result["ttft_ratio"] == pytest.approx(first["ttft_s"] / last_row["ttft_s"], rel=0.05)
    assert all(0 < row["image_share"] < 1 and row["peak_rss_bytes"] > 0 for row in rows)
    assert len(lines) == 2 + len(rows)
