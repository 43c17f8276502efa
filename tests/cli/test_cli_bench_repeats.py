"""`vlmcli bench repeats` and `bench drafts` at their smallest: counts, which time cannot change."""

import json
import sys

import numpy as np
import pytest

from vlmcli.bench.pages import letter_picture
from vlmcli.bench.repeats import recording

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def bench(real, *args: str) -> dict:
    done = real("bench", *args)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.decode().splitlines()[-1])


@pytest.mark.slow
def test_what_repeats_is_read_once_and_says_the_same(real) -> None:
    sizes = ("--equal", "4", "--frames", "14", "--distinct", "1", "--rounds", "1")
    result = bench(real, "repeats", *sizes)
    assert result["equal_reused"] == 3
    # Ten frames with a moving pointer, four with a resting one.
    assert result["recording_frames_reused"] == 4
    assert result["recording_encoder_saved"] > 0.6
    assert result["recording_same_text"] and result["distinct_same_text"]


@pytest.mark.slow
def test_drafts_make_many_tokens_a_step_and_the_same_text(real) -> None:
    sizes = ("--pages", "1", "--lines", "6", "--size", "small", "--max-tokens", "16")
    result = bench(real, "drafts", *sizes, "--rounds", "1")
    assert result["same_text"] is True
    assert result["tokens_per_step_text_layer"] >= 3
    assert result["tokens_per_step_near_duplicate"] >= 1.5
    assert result["tokens_per_step"]["plain"] == 1
    fixed = result["fixed_tokens_per_step"]
    assert fixed["plain"] == 1 < fixed["flawed"] <= fixed["perfect"]


def test_a_recording_is_the_same_every_time_and_mostly_still() -> None:
    frames, again = (list(recording(30)) for _ in range(2))
    assert all(map(np.array_equal, frames, again))
    assert len({frame.tobytes() for frame in frames}) == 10


def test_versions_of_a_letter_differ_in_two_lines_and_noise() -> None:
    one, other = (letter_picture(1, version=version, lines=10) for version in (1, 2))
    is_changed = np.abs(one.astype(int) - other).max(1) > 60
    rows = np.flatnonzero(is_changed)
    assert 0 < len(rows) < 0.1 * len(is_changed)
    assert np.array_equal(one, letter_picture(1, version=1, lines=10))
