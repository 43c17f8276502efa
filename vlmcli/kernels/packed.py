"""Matrices in oneDNN's own layout: products of a few rows read them once, whatever their number.

MKL takes a product with 2 to 16 rows for so many with one; oneDNN does as well unless it may choose
where the numbers lie. [M, 768] · [768, 5120] in float32, one Zen 3 core, M = 2, 4, 8, 16: MKL by
rows 3.3, 3.4, 4.0, 5.3 ms, by columns 1.4, 2.8, 4.5, 4.1, packed 1.6, 1.9, 2.4, 3.3. With one row
1.2, 0.8 and 1.4: who decodes one sequence does not pack.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")
FUSES = HAS_ONEDNN and torch.backends.cpu.get_cpu_capability() != "AVX2"
"""Whether oneDNN does what follows a product in the same pass, and in less time than two passes."""
_ROWS = 8
"""Rows that the layout is chosen for; from 2 to 256 it comes out the same (measured)."""


class PackedWeight:
    """A float32 matrix [out_features, in_features], in parts that lie one below the other.

    Args:
        matrix: in any layout; copied.
        part_rows: rows of each part but the last.
    """

    def __init__(self, matrix: Tensor, part_rows: int) -> None:
        self.out_features, self.in_features = matrix.shape
        self.parts: tuple[Tensor, ...] = tuple(
            torch.ops.mkldnn._reorder_linear_weight(part.contiguous(), _ROWS)
            for part in torch.split(matrix, part_rows)
        )

    @property
    def is_halved(self) -> bool:
        """Whether there are two equal parts, such as gate and up."""
        return len(self.parts) == 2 and len(self.parts[0]) == len(self.parts[1])


def packed_linear(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """x · Wᵀ + b for [N, in]: [N, out]."""
    product = torch.ops.mkldnn._linear_pointwise.default
    parts = [product(x, part, None, "none", [], "") for part in weight.parts]
    out: Tensor = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return out if bias is None else out.add_(bias)


def packed_gated_linear(x: Tensor, gate_up: PackedWeight) -> Tensor:
    """silu(x · Gᵀ) * (x · Uᵀ) for [N, in] and a weight of the two parts G and U: [N, out / 2]."""
    gate, up = gate_up.parts
    product = torch.ops.mkldnn._linear_pointwise
    out: Tensor
    if FUSES:
        gated = product.default(x, gate, None, "swish", [], "")
        out = product.binary(x, gated, up, None, "mul")
    else:
        out = F.silu(product.default(x, gate, None, "none", [], ""), inplace=True)
        out.mul_(product.default(x, up, None, "none", [], ""))
    return out
