"""Building blocks that every model family shares, and the slots through which weights reach them.

A module names its attributes as Hugging Face names the weights, so that a tensor's place follows
from its name. Parameters start as unwritten memory: only the strict loader makes a model usable.
No training, no dropout, no gradients.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlmcli.engine.awq import awq_tensors
from vlmcli.engine.weight_formats import WeightFormat
from vlmcli.kernels import Activation, Ops
from vlmcli.kernels.linear import Weight, gated_linear, linear, linear_add
from vlmcli.kernels.packed import HAS_ONEDNN, PackedWeight
from vlmcli.kernels.quantised import GroupedInt4Weight, Int8Weight, QuantisedWeight

Fill = Callable[[Tensor], None]


@dataclass(frozen=True, slots=True)
class WeightSlot:
    """Where one checkpoint tensor goes: the shape that it must have, and what takes its values."""

    shape: tuple[int, ...]
    fill: Fill
    is_packed: bool = False
    """Whether it is int32 with several numbers in each, and not floating point."""


def iter_slots(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, WeightSlot]]:
    """Every tensor that a checkpoint must hold for `module`, by checkpoint name."""
    for name, child in module.named_children():
        if isinstance(child, Layer):
            yield from child.weight_slots(f"{prefix}{name}")
        else:
            yield from iter_slots(child, f"{prefix}{name}.")


def parameter(*shape: int) -> nn.Parameter:
    """Unwritten memory in torch's default dtype and device."""
    return nn.Parameter(torch.empty(*shape), requires_grad=False)


def copy_slot(target: Tensor, row_order: Tensor | None = None) -> WeightSlot:
    """A slot that copies a tensor into `target`, its rows reordered where an order is given."""

    def fill(value: Tensor) -> None:
        target.copy_(value if row_order is None else value[row_order])

    return WeightSlot(tuple(target.shape), fill)


_LARGE_BYTES = 2 << 20
"""Bytes from which a matrix does not stay in a core's cache from one step to the next."""
_PART_BYTES = 16 << 20
"""Of a large matrix as much is packed at a time."""


def make_weight(
    out_features: int, in_features: int, stored: WeightFormat | None, *, for_few_rows: bool = False
) -> Weight:
    """Unwritten memory for a matrix [out, in]; None is torch's default dtype.

    On the CPU a large one that is wider than it is deep lies column by column if it is mostly used
    `for_few_rows`, as in decode steps: a product with one row then is a sum of columns that are
    read in order, and not `out` sums of their own. [1, 768] · [768, 5120] in float32, one Zen 3
    core: 0.68 ms for 1.10; 2 rows 1.3 for 2.3, 512 rows the same.
    """
    if stored is None:
        matrix = parameter(out_features, in_features)
        if for_few_rows and _is_wide(matrix):
            columns = matrix.view(in_features, out_features).t()
            return nn.Parameter(columns, requires_grad=False)
        return matrix
    if stored.is_packed:
        return GroupedInt4Weight(out_features, in_features, stored.group_size)
    return Int8Weight(out_features, in_features, rounds_inputs=stored.kind == "w8a8")


def _is_wide(matrix: Tensor) -> bool:
    """Whether the layout of a matrix [out, in] decides how long products of few rows take."""
    return _is_large(matrix) and len(matrix) > matrix.shape[1]


def _is_large(matrix: Tensor) -> bool:
    """Whether products of few rows take as long as reading a matrix takes."""
    is_read = matrix.nbytes >= _LARGE_BYTES
    return is_read and matrix.device.type == "cpu" and matrix.dtype == torch.float32


def pack_for_batches(model: nn.Module, spare_bytes: int) -> None:
    """Put large matrices that are used `for_few_rows` into the layout for several sequences a step.

    Args:
        model: with its weights in their places, which it cannot be given again.
        spare_bytes: what packing one may take for a moment; those that take more stay as they are.
    """
    if not HAS_ONEDNN:
        return
    for module in model.modules():
        if isinstance(module, Linear) and module.for_few_rows:
            module.pack(spare_bytes)


class Layer(nn.Module):
    """A module that owns weights. By default its parameters' names are the checkpoint's."""

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """The checkpoint tensors of this layer; `name` is its own name without a final dot."""
        for suffix, value in self.named_parameters(recurse=False):
            yield f"{name}.{suffix}", copy_slot(value)


@dataclass(frozen=True, slots=True)
class Part:
    """One checkpoint tensor within a packed projection."""

    name: str
    size: int
    row_order: Tensor | None = None


def quantising_slot(weight: QuantisedWeight, start: int, part: Part) -> WeightSlot:
    """A slot that quantises a matrix into rows of `weight`."""

    def fill(value: Tensor) -> None:
        weight.fill(start, value if part.row_order is None else value[part.row_order])

    return WeightSlot((part.size, weight.in_features), fill)


class Linear(Layer):
    """x · Wᵀ + b: [..., in] to [..., out]; the matrix is held as `stored` says."""

    part_rows: int | None = None
    """Outputs that are packed together; None for as many as are cheap to copy."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        stored: WeightFormat | None = None,
        for_few_rows: bool = False,
    ) -> None:
        super().__init__()
        self.weight: Weight = make_weight(
            out_features, in_features, stored, for_few_rows=for_few_rows
        )
        self.bias = parameter(out_features) if bias else None
        self.out_features = out_features
        self.for_few_rows = for_few_rows
        self.is_packed = stored is not None and stored.kind == "awq"

    def forward(self, x: Tensor) -> Tensor:
        """Apply the projection."""
        return linear(x, self.weight, self.bias)

    def activated(self, x: Tensor, kind: Activation) -> Tensor:
        """The activation of the projection."""
        return linear(x, self.weight, self.bias, kind)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual + self(x)` for matrices, which may overwrite the residual."""
        return linear_add(residual, x, self.weight, self.bias)

    def pack(self, spare_bytes: int) -> None:
        """Let a large matrix lie as oneDNN wants it; `spare_bytes` as in `pack_for_batches`."""
        matrix = self.weight
        if not isinstance(matrix, Tensor) or not _is_large(matrix):
            return
        row_bytes = matrix.nbytes // len(matrix)
        part_rows = self.part_rows or min(len(matrix), max(1, _PART_BYTES // row_bytes))
        if matrix.nbytes + part_rows * row_bytes <= spare_bytes:
            del self.weight
            self.weight = PackedWeight(matrix, part_rows)

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """The matrix and the bias."""
        yield from self.part_slots(name, 0, Part("", self.out_features))

    def part_slots(self, name: str, start: int, part: Part) -> Iterator[tuple[str, WeightSlot]]:
        """The checkpoint tensors of the rows that `part` has from `start` on."""
        assert not isinstance(self.weight, PackedWeight), "a packed matrix is not filled again"
        if isinstance(self.weight, Tensor):
            rows = self.weight[start : start + part.size]
            yield f"{name}.weight", copy_slot(rows, part.row_order)
        elif self.is_packed and isinstance(self.weight, GroupedInt4Weight):
            for found in awq_tensors(self.weight, start, part.size, part.row_order):
                suffix, shape, is_packed, fill = found
                yield f"{name}.{suffix}", WeightSlot(shape, fill, is_packed)
        else:
            yield f"{name}.weight", quantising_slot(self.weight, start, part)
        if self.bias is not None:
            rows = self.bias[start : start + part.size]
            yield f"{name}.bias", copy_slot(rows, part.row_order)


class PackedLinear(Linear):
    """Several projections of the same input as one product, such as qkv_proj of q, k and v.

    The parts lie one behind the other in the output. The checkpoint names them separately.
    """

    def __init__(
        self,
        in_features: int,
        parts: Sequence[Part],
        *,
        bias: bool,
        stored: WeightFormat | None = None,
        for_few_rows: bool = False,
    ) -> None:
        super().__init__(
            in_features,
            sum(part.size for part in parts),
            bias=bias,
            stored=stored,
            for_few_rows=for_few_rows,
        )
        self.parts = tuple(parts)

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """One slot per part: `….qkv_proj` yields `….q_proj`, `….k_proj` and `….v_proj`."""
        stem, _, _ = name.rpartition(".")
        start = 0
        for part in self.parts:
            yield from self.part_slots(f"{stem}.{part.name}", start, part)
            start += part.size


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x)); the checkpoint has gate and up as two tensors, or `fused`."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        ops: Ops,
        *,
        bias: bool,
        fused: bool = False,
        out_size: int | None = None,
        stored: WeightFormat | None = None,
        for_few_rows: bool = False,
    ) -> None:
        super().__init__()
        self.ops = ops
        parts = [Part("gate_proj", intermediate_size), Part("up_proj", intermediate_size)]
        if fused:
            parts = [Part("gate_up_proj", 2 * intermediate_size)]
        self.gate_up_proj = PackedLinear(
            hidden_size, parts, bias=bias, stored=stored, for_few_rows=for_few_rows
        )
        self.gate_up_proj.part_rows = intermediate_size
        self.down_proj = Linear(
            intermediate_size,
            out_size or hidden_size,
            bias=bias,
            stored=stored,
            for_few_rows=for_few_rows,
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, hidden] to [N, out]."""
        out: Tensor = self.down_proj(self._gated(x))
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual + mlp(x)`, which may overwrite the residual."""
        return self.down_proj.add_to(residual, self._gated(x))

    def _gated(self, x: Tensor) -> Tensor:
        gated = gated_linear(x, self.gate_up_proj.weight, self.gate_up_proj.bias)
        return self.ops.silu_and_mul(self.gate_up_proj(x)) if gated is None else gated


class Embedding(Layer):
    """Token ids to rows: [...] int64 to [..., hidden]."""

    def __init__(self, num_embeddings: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = parameter(num_embeddings, hidden_size)

    def forward(self, ids: Tensor) -> Tensor:
        """Look the rows up."""
        return F.embedding(ids, self.weight)


class RMSNorm(Layer):
    """The weight of a root-mean-square norm; the ops compute it."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = parameter(hidden_size)
        self.eps = eps


class HeadNorm(Layer):
    """The weight of a root-mean-square norm over one head, in the order of its elements."""

    def __init__(self, head_dim: int, eps: float, order: Tensor | None) -> None:
        super().__init__()
        self.weight, self.eps, self.order = parameter(head_dim), eps, order

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """The weight, reordered as the rows of the projection were."""
        yield f"{name}.weight", copy_slot(self.weight, self.order)


class LayerNorm(Layer):
    """Mean and variance norm with weight and bias over the last dimension."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = parameter(hidden_size)
        self.bias = parameter(hidden_size)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


def inverse_frequencies(theta: float, dim: int) -> Tensor:
    """[dim/2] float32: θ^(−2i/dim), the rotary frequencies of the RoFormer paper."""
    return 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim))


def rotary_order(
    num_heads: int, head_dim: int, *, adjacent: bool, stored: bool = False, dim: int | None = None
) -> Tensor | None:
    """[num_heads · head_dim] rows of a q or k weight that bring rotary pairs into their places.

    Scores are sums over a head's elements, so a common order of q and k changes none of them.

    Args:
        num_heads: of the weight.
        head_dim: elements of a head.
        adjacent: whether pairs are to lie side by side, instead of half of `dim` apart.
        stored: whether they do in the checkpoint.
        dim: elements that turn, the first ones of each head; None for all.

    Returns:
        None where the rows are in that order already.
    """
    if adjacent == stored:
        return None
    dim = head_dim if dim is None else dim
    turning = torch.arange(dim, device="cpu")
    pairs = (turning.view(2, -1) if adjacent else turning.view(-1, 2)).t().reshape(-1)
    one = torch.cat((pairs, torch.arange(dim, head_dim, device="cpu")))
    return (torch.arange(num_heads, device="cpu").view(-1, 1) * head_dim + one).view(-1)
