"""What is free in the heap goes back when it is told to, and is told to now and then."""

import platform
import subprocess
import sys

import pytest

from vlmcli.memory.allocator import Trimmer

HOLES = """
import ctypes, os
from vlmcli.memory.allocator import give_back, keep_heap_small
from vlmcli.memory.devices import resident_bytes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
keep_heap_small()
sizes = [1 << 20] * 100
blocks = [libc.malloc(size) for size in sizes]
for block, size in zip(blocks, sizes):
    ctypes.memset(block, 1, size)
for block in blocks[:-1]:
    libc.free(block)
before = resident_bytes(os.getpid())
give_back()
print((before - resident_bytes(os.getpid())) >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="speaks to glibc")
def test_free_memory_under_a_block_in_use_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], check=True, capture_output=True)
    assert 90 <= int(done.stdout) <= 100


def test_it_trims_twice_a_second_at_the_most() -> None:
    now, trims = [0.0], []
    trimmer = Trimmer(clock=lambda: now[0], trim=lambda: trims.append(now[0]))
    for step in range(1000):
        now[0] = step / 200
        trimmer.trim()
    assert trims == [number / 2 for number in range(10)]
