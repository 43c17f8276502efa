"""How much memory is there to use: containers, limits and GPUs counted, without importing torch.

Reads what the kernel says and runs `nvidia-smi` where a GPU is asked for; changes nothing. The
parsers take text, so that they can be tested on any machine.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from vlmcli.errors import UsageError

MIB = 1 << 20
MARGIN_FRACTION = 0.05
"""Left to the rest of the machine when no cap is given."""
MIN_MARGIN = 256 * MIB
VIRTUAL_OVERHEAD = 640 * MIB
"""Address space beyond RSS of a process with torch on x86-64: 470 MiB measured with two threads,
and room for the stacks of a few more. A limit on address space (ulimit -v) leaves that much less
than it looks."""
_UNLIMITED = 1 << 60
"""cgroup v1 writes a number near 2^63 for no limit."""


def default_cap(available: int) -> int:
    """Most memory that a job may take if nobody says: what is available less a margin, in bytes."""
    return max(0, available - max(MIN_MARGIN, round(available * MARGIN_FRACTION)))


def host_cap(root: Path = Path("/")) -> int:
    """Most main memory that this process and its children may have, in bytes, if nobody says.

    What is free, with what this process has already: the least of what the machine has, what the
    control groups allow and what the limit on address space leaves. Memory that holds file contents
    which can be read again counts as free. The rest of the machine is left a margin, and a control
    group a small one, because the kernel counts buffers of its own there.

    Args:
        root: where `proc` and `sys` are; another folder in tests.
    """
    own = resident_bytes(os.getpid(), root)
    machine = _machine_room(root)
    groups = (room - round(room * MARGIN_FRACTION) for room in cgroup_rooms(root))
    rooms = [*groups] if machine is None else [default_cap(machine), *groups]
    limits = [room + own for room in rooms]
    address_space = address_space_room(resource.getrlimit(resource.RLIMIT_AS)[0])
    if address_space is not None:
        limits.append(address_space)
    return min(limits, default=_UNLIMITED)


def resident_bytes(pid: int, root: Path = Path("/")) -> int:
    """Resident memory of a process; 0 where there is no such process, or no /proc."""
    fields = _read(root / f"proc/{pid}/statm").split()
    return int(fields[1]) * resource.getpagesize() if len(fields) > 1 else 0


def _machine_room(root: Path) -> int | None:
    if sys.platform == "darwin":
        return _darwin_available()
    return machine_available(_read(root / "proc/meminfo"))


def machine_available(meminfo: str) -> int | None:
    """`MemAvailable` of /proc/meminfo in bytes; None if it is not in the text."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def address_space_room(limit: int) -> int | None:
    """RSS that a limit on address space (RLIMIT_AS, bytes) leaves; None for no limit."""
    if limit == resource.RLIM_INFINITY:
        return None
    return max(0, limit - VIRTUAL_OVERHEAD)


def cgroup_rooms(root: Path) -> Iterator[int]:
    """What each control group around this process still allows, in bytes; v1 and v2."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
            cache = "inactive_file"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names, cache = ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_inactive_file"
        else:
            continue
        # Inside a container the path may be the host's, while only the top is mounted.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            room = _cgroup_room(base.joinpath(*parts[:depth]), names, cache)
            if room is not None:
                yield room


def _cgroup_room(group: Path, names: tuple[str, str], cache: str) -> int | None:
    limit, usage = (_number(_read(group / name)) for name in names)
    if limit is None or usage is None or limit >= _UNLIMITED:
        return None
    match = re.search(rf"^{cache} (\d+)$", _read(group / "memory.stat"), re.MULTILINE)
    reclaimable = int(match[1]) if match else 0
    return max(0, limit - max(0, usage - reclaimable))


def cuda_free(index: int) -> tuple[int, int]:
    """(free, total) bytes of a GPU, as `nvidia-smi` says.

    Raises:
        UsageError: there is no such GPU, or no driver.
    """
    command = ["nvidia-smi", "--query-gpu=memory.free,memory.total", f"--id={index}"]
    command.append("--format=csv,noheader,nounits")
    remedy = "take --device cpu; a plan can have figures, as in --device-memory 24GiB"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"cannot ask for the memory of GPU {index}", remedy=remedy) from error
    memory = parse_nvidia_smi(done.stdout)
    if done.returncode or memory is None:
        raise UsageError(f"there is no GPU {index}", remedy=remedy)
    return memory


def find_cuda(index: int) -> tuple[int, int] | None:
    """As `cuda_free`, or None on a machine without such a GPU."""
    if shutil.which("nvidia-smi") is None:
        return None
    try:
        return cuda_free(index)
    except UsageError:
        return None


def parse_nvidia_smi(text: str) -> tuple[int, int] | None:
    """(free, total) bytes from a line `free, total` in MiB."""
    match = re.match(r"\s*(\d+)\s*,\s*(\d+)\s*$", text)
    return (int(match[1]) * MIB, int(match[2]) * MIB) if match else None


def parse_vm_stat(text: str) -> int | None:
    """Bytes that macOS can hand out at once, from the output of `vm_stat`."""
    page = re.search(r"page size of (\d+) bytes", text)
    counts = re.findall(r"^Pages (free|inactive|speculative|purgeable):\s+(\d+)", text, re.M)
    if page is None or not counts:
        return None
    return int(page[1]) * sum(int(count) for _, count in counts)


def _darwin_available() -> int | None:
    try:
        text = subprocess.run(
            ["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=20, check=False
        ).stdout
        total = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "hw.memsize"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    known = [n for n in (parse_vm_stat(text), _number(total)) if n is not None]
    return min(known, default=None)


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdigit() else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
