"""Every kernel compiles for GPUs, down to machine code, without one: the interpreter takes more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

KERNELS = {
    *("rms_norm_kernel", "rotary_kernel", "silu_and_mul_kernel", "store_kv_kernel"),
    *("paged_attention_kernel", "join_shares_kernel", "varlen_attention_kernel"),
    *("round_rows_kernel", "w8a8_linear_kernel"),
}
SHARED = {80: 99 << 10, 90: 227 << 10}
"""Bytes of shared memory that a program may have; of compute capability 8, the least there is."""


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED)
def test_every_kernel_compiles_and_fits(capability, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    found = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_kernels.py"), str(capability)],
        capture_output=True,
        text=True,
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert found.returncode == 0, found.stderr[-2000:]
    shared = json.loads(found.stdout.splitlines()[-1])
    assert shared.keys() == KERNELS
    assert max(shared.values()) <= SHARED[capability]


def test_no_kernel_is_left_out():
    """The list above is what the sources define."""
    folder = Path(__file__).parents[2] / "vlmcli" / "kernels"
    defined = {
        line.removeprefix("def ").partition("(")[0]
        for file in folder.glob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("def ") and "_kernel(" in line
    }
    assert defined == KERNELS
