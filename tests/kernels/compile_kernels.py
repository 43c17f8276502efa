"""Compiles every kernel for a GPU that need not be there; run as a program, no test.

    python compile_kernels.py 80

The ops are called as a model of Qwen2.5-VL's shape would call them, on unwritten memory, and every
launch ends behind the compiler. Prints one line of JSON: shared memory in bytes by kernel.
"""

import json
import sys
from collections import defaultdict

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from vlmcli.kernels import triton_ops as ops
from vlmcli.kernels.kv_store import KVPart, KVPlane

BF16 = torch.bfloat16
HEADS, KV_HEADS, DIM, HIDDEN, SIZE = 28, 4, 128, 3584, 16


class Absent:
    """What Triton asks of a driver before it compiles."""

    def __init__(self, capability):
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def empty(*shape, dtype=BF16):
    return torch.empty(*shape, dtype=dtype)


def compile_rows():
    x, weight = empty(8, HIDDEN), empty(HIDDEN)
    ops.rms_norm(x, weight, 1e-6)
    ops.add_rms_norm(x, empty(8, HIDDEN), weight, 1e-6)
    packed = empty(8, HEADS + 2 * KV_HEADS, DIM)
    ops.rms_norm(packed[:, :HEADS], empty(DIM), 1e-6)
    angles = empty(8, DIM // 2)
    ops.rotary_(packed[:, : HEADS + KV_HEADS], angles, angles, adjacent=False)
    ops.silu_and_mul(empty(8, 2 * 18_944))
    int8 = empty(1024, HIDDEN, dtype=torch.int8)
    ops.w8a8_linear(empty(300, HIDDEN), int8, empty(1024, dtype=torch.float32), empty(1024))


def compile_attention():
    shape = (20, SIZE, KV_HEADS, DIM)
    scales = empty(*shape[:3], dtype=torch.float32)
    plane = KVPlane(KVPart(empty(*shape)), KVPart(empty(*shape, dtype=torch.int8), scales))
    # A draft of eight over a context in two formats, and a chunk of a prompt.
    for rows, cache in ((9, plane), (300, empty(*shape))):
        packed = empty(rows, HEADS + 2 * KV_HEADS, DIM)
        query, key, value = packed.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        ops.store_kv(key, value, cache, cache, torch.zeros(rows, dtype=torch.int64))
        tables, ends = np.zeros((1, 40), np.int32), np.array([0, rows], np.int32)
        plan = ops.plan_paged(tables, np.array([600], np.int32), ends, SIZE, query)
        ops.paged_attention(query, cache, cache, plan, 0.1)
    ops.varlen_attention(*empty(400, 3 * 16, 80).chunk(3, dim=1), np.array([0, 400]), 0.1)


def main():
    shared = defaultdict(int)
    run = JITFunction.run

    def compile_only(self, *args, grid, warmup, **options):
        compiled = run(self, *args, grid=grid, warmup=True, **options)
        shared[self.__name__] = max(shared[self.__name__], compiled.metadata.shared)
        return compiled

    JITFunction.run = compile_only
    driver.set_active(Absent(int(sys.argv[1])))
    compile_rows()
    compile_attention()
    print(json.dumps(shared))


if __name__ == "__main__":
    main()
