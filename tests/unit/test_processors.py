"""Limits on processors are heeded wherever the system writes them down."""

import math
import os

import pytest

from vlmcli import processors
from vlmcli.processors import cgroup_quota, default_jobs, num_cpus


def write(folder, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, math.inf),
        ({"cg/cpu.max": "max 100000\n"}, math.inf),
        ({"cg/cpu.max": "150000 100000\n"}, 1.5),
        ({"cg/a/b/cpu.max": "max 100000\n", "cg/a/cpu.max": "200000 100000\n"}, 2.0),
        ({"cg/a/b/cpu.max": "50000 100000\n", "cg/a/cpu.max": "200000 100000\n"}, 0.5),
        ({"cg/cpu/cpu.cfs_quota_us": "-1\n", "cg/cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({"cg/cpu/cpu.cfs_quota_us": "300000\n", "cg/cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
        ({"cg/cpu.max": "what is this\n"}, math.inf),
        ({"cg/cpu.max": "\n"}, math.inf),
        ({"cpu.max": "1 100000\n"}, math.inf),
    ],
)
def test_the_narrowest_quota_of_all_groups_counts(tmp_path, files, expected):
    write(tmp_path, {"own": "4:memory:/x\n0::/a/b\n", **files})
    assert cgroup_quota(tmp_path / "cg", tmp_path / "own") == expected


def test_without_groups_there_is_no_quota(tmp_path):
    assert cgroup_quota(tmp_path / "nowhere", tmp_path / "nothing") == math.inf


@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 6), (2.5, 3), (0.2, 1), (99.0, 6)])
def test_affinity_and_quota_together(monkeypatch, quota, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    monkeypatch.setattr(processors, "cgroup_quota", lambda root, own: quota)
    assert num_cpus() == expected
    assert default_jobs() == max(1, expected - 1)
