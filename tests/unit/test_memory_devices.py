"""What memory is there: parsers on made-up machines, and the sum on this one."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from vlmcli.errors import UsageError
from vlmcli.memory import devices

MIB = devices.MIB
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


MEMINFO = "MemTotal: 16000000 kB\nMemAvailable:    8192000 kB\nSwapFree: 9 kB\n"


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": ""})
    assert devices.host_cap(root) == devices.default_cap(8_192_000 * 1024)


def test_cgroup_v2_of_a_parent_counts_and_file_cache_is_free(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/user/job\n",
            "sys/fs/cgroup/user/job/memory.max": "max\n",
            "sys/fs/cgroup/user/job/memory.current": "1000\n",
            "sys/fs/cgroup/user/memory.max": f"{1000 * MIB}\n",
            "sys/fs/cgroup/user/memory.current": f"{700 * MIB}\n",
            "sys/fs/cgroup/user/memory.stat": f"anon 5\ninactive_file {200 * MIB}\n",
        },
    )
    assert devices.host_cap(root) == 475 * MIB


def test_cgroup_v2_inside_a_container_is_found_at_the_top(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/../../docker/abc\n",
            "sys/fs/cgroup/memory.max": f"{300 * MIB}\n",
            "sys/fs/cgroup/memory.current": f"{400 * MIB}\n",
        },
    )
    assert devices.host_cap(root) == 0


def test_cgroup_v1_limits_count_and_its_huge_number_is_none(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/memory"
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "9:name=systemd:/x\n4:cpu,memory:/job\n",
        f"{base}/memory.limit_in_bytes": "9223372036854771712\n",
        f"{base}/memory.usage_in_bytes": f"{100 * MIB}\n",
    }
    root = machine(tmp_path, files)
    assert devices.host_cap(root) == devices.default_cap(8_192_000 * 1024)
    machine(
        root,
        {
            f"{base}/job/memory.limit_in_bytes": f"{2000 * MIB}\n",
            f"{base}/job/memory.usage_in_bytes": f"{500 * MIB}\n",
            f"{base}/job/memory.stat": f"total_inactive_file {100 * MIB}\n",
        },
    )
    assert devices.host_cap(root) == 1520 * MIB


def test_address_space_limits_leave_room_for_libraries() -> None:
    assert devices.address_space_room(resource.RLIM_INFINITY) is None
    assert devices.address_space_room(5000 * MIB) == 5000 * MIB - devices.VIRTUAL_OVERHEAD
    assert devices.address_space_room(100 * MIB) == 0


def test_a_limit_set_on_the_process_is_seen() -> None:
    code = "from vlmcli.memory.devices import host_cap; print(host_cap())"
    limit = 3000 * MIB

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", code], preexec_fn=lower, capture_output=True, text=True, check=True
    )
    assert 0 < int(done.stdout) <= limit - devices.VIRTUAL_OVERHEAD


def test_this_machine_has_memory_and_keeps_some() -> None:
    available = devices.machine_available(Path("/proc/meminfo").read_text())
    own = devices.resident_bytes(os.getpid())
    assert available is not None and own > 0
    assert available - devices.default_cap(available) >= min(available, devices.MIN_MARGIN)
    assert devices.default_cap(0) == 0
    assert devices.host_cap() > 0


def test_what_this_process_has_is_part_of_its_cap(tmp_path: Path) -> None:
    pages = 1000
    files = {"proc/meminfo": MEMINFO, f"proc/{os.getpid()}/statm": f"5000 {pages} 30 4 0 9 0\n"}
    root = machine(tmp_path, files)
    free = devices.default_cap(8_192_000 * 1024)
    assert devices.host_cap(root) == free + pages * resource.getpagesize()


def test_a_machine_that_says_nothing_sets_no_cap(tmp_path: Path) -> None:
    assert devices.host_cap(tmp_path) >= 1 << 50


def test_nvidia_smi_and_vm_stat_are_read() -> None:
    assert devices.parse_nvidia_smi("140000, 143771\n") == (140_000 * MIB, 143_771 * MIB)
    assert devices.parse_nvidia_smi("No devices were found\n") is None
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                              100.\n"
        "Pages active:                          90000.\n"
        "Pages inactive:                           50.\n"
    )
    assert devices.parse_vm_stat(text) == 150 * 16384
    assert devices.parse_vm_stat("") is None


def test_a_missing_gpu_is_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="GPU 0") as caught:
        devices.cuda_free(0)
    assert "--device-memory" in caught.value.remedy
