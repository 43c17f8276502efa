"""The doctor names what the figures of a run show, and nothing where they do not show it."""

import pytest

from vlmcli.doctor import diagnose

HEALTHY = {
    "pages": 100,
    "seconds": 100.0,
    "seconds_render": 60.0,
    "seconds_encode": 30.0,
    "seconds_prefill": 25.0,
    "seconds_decode": 25.0,
    "seconds_write": 0.5,
    "seconds_transfer": 1.0,
    "seconds_idle": 5.0,
    "page_seconds_median": 1.2,
    "page_seconds_max": 4.0,
    "resumed": 0,
    "reuse_none": 70,
    "reuse_exact": 20,
    "reuse_draft": 10,
    "reuse_other_recipe": 0,
    "reuse_earlier": 5,
    "reuse_resized": 0,
    "reuse_resized_differ": 0,
    "preemptions": 0,
    "encoder_tokens": 50_000,
    "prompt_tokens": 60_000,
    "output_tokens": 90_000,
    "memory_cap_bytes": 10_000,
    "memory_peak_bytes": 5_000,
}
SHOWN = {
    "kept results do not apply": {"reuse_other_recipe": 40},
    "texts depend on the resolution": {"reuse_resized": 9, "reuse_resized_differ": 4},
    "most results are of earlier runs": {"reuse_earlier": 80},
    "image tokens take the memory": {"preemptions": 7, "output_tokens": 5_000},
    "a few pages delay all others": {"page_seconds_max": 45.0},
    "moving pages between processes takes time": {"seconds_transfer": 9.0},
    "bottleneck: render": {"seconds_idle": 40.0},
    "bottleneck: encode": {"seconds_encode": 55.0},
    "bottleneck: prefill": {"seconds_prefill": 55.0},
    "bottleneck: decode": {"seconds_decode": 55.0},
    "bottleneck: write": {"seconds_write": 55.0},
}
NEARLY = {
    "kept results do not apply": {"reuse_other_recipe": 19},
    "texts depend on the resolution": {"reuse_resized": 9},
    "most results are of earlier runs": {"reuse_earlier": 50},
    "image tokens take the memory": {"preemptions": 7},
    "a few pages delay all others": {"page_seconds_max": 9.0},
    "moving pages between processes takes time": {"seconds_transfer": 4.9},
    "bottleneck: render": {"seconds_idle": 29.0},
    "bottleneck: encode": {"seconds_encode": 49.0},
}


def names(**changes: float) -> list[str]:
    return [finding.name for finding in diagnose(HEALTHY | changes)]


def test_a_healthy_run_has_no_findings() -> None:
    assert names() == []
    assert diagnose({}) == []


@pytest.mark.parametrize("name", SHOWN)
def test_each_failure_mode_is_named_with_figures_and_a_remedy(name: str) -> None:
    (finding,) = diagnose(HEALTHY | SHOWN[name])
    assert finding.name == name
    assert any(sign.isdigit() for sign in finding.evidence)
    assert finding.remedy


@pytest.mark.parametrize("name", NEARLY)
def test_what_is_just_usual_is_not_named(name: str) -> None:
    assert names(**NEARLY[name]) == []


def test_memory_near_its_cap_is_named_only_where_images_fill_it() -> None:
    full = {"memory_peak_bytes": 9_500, "output_tokens": 5_000}
    assert names(**full) == ["image tokens take the memory"]
    assert names(**full, prompt_tokens=0, encoder_tokens=0) == []
    on_device = {"device_memory_cap_bytes": 10_000, "device_memory_peak_bytes": 2_000}
    assert names(**full, **on_device) == []


def test_a_short_run_is_all_start_up() -> None:
    assert names(seconds=4.0, seconds_encode=3.9, seconds_idle=3.0, seconds_transfer=1.0) == []


def test_several_findings_come_together() -> None:
    found = names(reuse_other_recipe=70, seconds_decode=70.0)
    assert found == ["kept results do not apply", "bottleneck: decode"]
