"""Every Triton kernel against the reference on one device, at sizes of real models.

An error is allowed to be as large as twice what plain torch loses in the same number format, and
four roundings. Times nothing. On a CPU the kernels need Triton's interpreter.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vlmcli.kernels import Ops, reference, triton_ops
from vlmcli.kernels.kv_store import KVPart, KVPlane, KVStore, quantise

_SIZE, _SCALE = 16, 0.1
Case = Callable[[Ops, torch.dtype], Tensor]
"""Runs an op on inputs that are the same every time, rounded to bfloat16 and held in a dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The largest error of one kernel, and the largest that it may have."""

    name: str
    error: float
    allowed: float

    @property
    def is_met(self) -> bool:
        """Whether the kernel is as good as it must be; false where it gave no numbers."""
        return self.error <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Shapes of a decoder and a tower. The defaults are Qwen2.5-VL-7B's."""

    hidden_size: int = 3584
    intermediate_size: int = 18_944
    num_heads: int = 28
    num_kv_heads: int = 4
    head_dim: int = 128
    vision_heads: int = 16
    vision_head_dim: int = 80
    rows: int = 300
    context: int = 2100


def compare_kernels(device: torch.device, sizes: Sizes) -> list[Comparison]:
    """Run every kernel in bfloat16 and hold it against the reference in float32."""
    return [_compare(name, case) for name, case in _cases(device, sizes)]


def _compare(name: str, case: Case) -> Comparison:
    exact = case(reference, torch.float32).double()
    torchs, ours = (case(ops, torch.bfloat16).double() for ops in (reference, triton_ops))
    lost = float((torchs - exact).abs().max())
    unit = torch.finfo(torch.bfloat16).eps * float(exact.abs().max())
    return Comparison(
        name=name, error=float((ours - exact).abs().max()), allowed=2 * lost + 4 * unit
    )


def _cases(device: torch.device, sizes: Sizes) -> Iterator[tuple[str, Case]]:
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).bfloat16().to(device)

    yield from _row_cases(noise, sizes)
    rows, context = sizes.rows, sizes.context
    for name, lens in (
        ("decode", [(1, context), (1, 5), (1, 1)]),
        ("verify", [(9, context), (3, 40)]),
        ("prefill", [(rows, context), (rows // 2, rows // 2)]),
    ):
        for cache in ("bfloat16", "int8"):
            yield f"paged_attention {name} {cache}", _paged_case(noise, sizes, lens, cache)
    packed = noise(rows, 3 * sizes.vision_heads, sizes.vision_head_dim)
    ends = np.array([0, rows // 2, rows // 2, rows - 1, rows], np.int32)

    def varlen(ops: Ops, dtype: torch.dtype) -> Tensor:
        query, key, value = packed.to(dtype).chunk(3, dim=1)
        return ops.varlen_attention(query, key, value, ends, _SCALE)

    yield "varlen_attention", varlen


def _row_cases(noise: Callable[..., Tensor], sizes: Sizes) -> Iterator[tuple[str, Case]]:
    rows, hidden, wide = sizes.rows, sizes.hidden_size, sizes.intermediate_size
    x, weight, more = noise(rows, hidden), noise(hidden), noise(rows, hidden)
    yield "rms_norm", lambda ops, dtype: ops.rms_norm(x.to(dtype), weight.to(dtype), 1e-6)

    def add_rms_norm(ops: Ops, dtype: torch.dtype) -> Tensor:
        residual = more.to(dtype, copy=True)
        normed = ops.add_rms_norm(x.to(dtype), residual, weight.to(dtype), 1e-6)
        return torch.cat((residual, normed))

    yield "add_rms_norm", add_rms_norm
    heads = sizes.num_heads + 2 * sizes.num_kv_heads
    packed, angles = noise(rows, heads, sizes.head_dim), noise(rows, sizes.head_dim // 2)

    def rotary(ops: Ops, dtype: torch.dtype) -> Tensor:
        turned = packed.to(dtype, copy=True)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        ops.rotary_(turned[:, : heads - sizes.num_kv_heads], cos, sin, adjacent=False)
        return turned

    yield "rotary_", rotary
    gate_up = noise(rows, 2 * wide)
    yield "silu_and_mul", lambda ops, dtype: ops.silu_and_mul(gate_up.to(dtype))
    matrix, scales = quantise(noise(wide, hidden))
    bias = noise(wide)
    yield (
        "w8a8_linear",
        lambda ops, dtype: ops.w8a8_linear(x.to(dtype), matrix, scales, bias.to(dtype)),
    )


def _paged_case(
    noise: Callable[..., Tensor], sizes: Sizes, lens: list[tuple[int, int]], cache: str
) -> Case:
    """Attention over blocks in reverse order, stored by the op itself; what is not is NaN."""
    widths = [-(-context // _SIZE) for _, context in lens]
    num_blocks = sum(widths) + 1
    tables = np.zeros((len(lens), max(widths)), np.int32)
    free = iter(range(num_blocks - 1, 0, -1))
    for row, width in enumerate(widths):
        tables[row, :width] = [next(free) for _ in range(width)]
    slots = np.concatenate(
        [
            tables[row, np.arange(context) // _SIZE].astype(np.int64) * _SIZE
            + np.arange(context) % _SIZE
            for row, (_, context) in enumerate(lens)
        ]
    )
    contexts = np.array([context for _, context in lens], np.int32)
    starts = np.cumsum([0, *(query for query, _ in lens)], dtype=np.int32)
    query = noise(int(starts[-1]), sizes.num_heads, sizes.head_dim)
    key, value = (noise(len(slots), sizes.num_kv_heads, sizes.head_dim) for _ in range(2))
    places = torch.from_numpy(slots).to(query.device)
    shape = (num_blocks, _SIZE, sizes.num_kv_heads, sizes.head_dim)

    def run(ops: Ops, dtype: torch.dtype) -> Tensor:
        caches = [_poisoned(shape, cache, dtype, query.device) for _ in range(2)]
        ops.store_kv(key.to(dtype), value.to(dtype), caches[0], caches[1], places)
        rows = query.to(dtype)
        plan: Any = ops.plan_paged(tables, contexts, starts, _SIZE, rows)
        return ops.paged_attention(rows, caches[0], caches[1], plan, _SCALE)

    return run


def _poisoned(
    shape: tuple[int, ...], cache: str, dtype: torch.dtype, device: torch.device
) -> KVStore:
    if cache != "int8":
        return torch.full(shape, float("nan"), dtype=dtype, device=device)
    scales = torch.full(shape[:-1], float("nan"), device=device)
    return KVPlane(KVPart(torch.full(shape, 77, dtype=torch.int8, device=device), scales))
