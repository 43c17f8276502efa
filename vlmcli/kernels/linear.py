"""Matrix products of a layer, with what follows them in the same pass: bias, activation, sum.

On a CPU with vectors of 512 bits they go to oneDNN where torch has it and there are rows enough.
`F.linear` in float32 goes to MKL, which uses half of that width on processors that are not Intel's,
and what follows is a pass over memory of its own. One Zen 5 core, [1120, 96] · [96, 384] with a
GELU: MKL 108 GFLOP/s and 0.2 ms for the activation, oneDNN 230 GFLOP/s and nothing. With vectors of
256 bits MKL is the faster one, and oneDNN's GELU far slower than a pass of torch's: one Zen 3 core,
[1120, 640] · [640, 2560], MKL 84 GFLOP/s, oneDNN 74, with a GELU 79 and 58. Everywhere else, plain
torch: the definition.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from vlmcli.kernels.kv_store import quantise
from vlmcli.kernels.packed import (
    FUSES,
    PackedWeight,
    packed_gated_linear,
    packed_linear,
)
from vlmcli.kernels.quantised import Int8Weight, QuantisedWeight, pieces

if TYPE_CHECKING:
    from vlmcli.kernels import Activation

Weight = Tensor | PackedWeight | QuantisedWeight
"""[out, in], dense where it is a tensor; or a matrix in oneDNN's layout, or in fewer bits."""
_MIN_ROWS = 16
"""Rows from which a oneDNN call is cheaper than an MKL one (measured)."""
_FUSED: "dict[Activation, tuple[str, str]]" = {
    "silu": ("swish", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
}
"""Activation → oneDNN's name and variant. Its swish has no factor, so quick_gelu is not here."""


def linear(
    x: Tensor, weight: Weight, bias: Tensor | None, activation: "Activation | None" = None
) -> Tensor:
    """activation(x · Wᵀ + b).

    Args:
        x: [..., in].
        weight: [out, in].
        bias: [out] or None.
        activation: None for the identity.

    Returns:
        A new tensor, [..., out].
    """
    if not isinstance(weight, Tensor):
        out = _other_linear(x, weight, bias)
        return out if activation is None else activate(out, activation)
    if not _is_fused(x, weight):
        out = F.linear(x, weight, bias)
        return out if activation is None else activate(out, activation)
    name, variant = ("none", "") if activation is None else _FUSED.get(activation, ("none", ""))
    out = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, name, [], variant)
    return out if activation is None or activation in _FUSED else activate(out, activation)


def linear_add(residual: Tensor, x: Tensor, weight: Weight, bias: Tensor | None) -> Tensor:
    """residual + x · Wᵀ + b for [N, in] and a residual of [N, out], which may be overwritten."""
    if not isinstance(weight, Tensor):
        return residual.add_(_other_linear(x, weight, bias))
    if _is_fused(x, weight):
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, weight, bias, "add")
        return out
    if bias is not None:
        residual.add_(bias)
    return residual.addmm_(x, weight.t())


def gated_linear(x: Tensor, gate_up: Weight, bias: Tensor | None) -> Tensor | None:
    """silu(x · Gᵀ + g) * (x · Uᵀ + u) for a weight of [G ‖ U], [2n, in]: [N, in] to [N, n].

    Returns:
        None where it cannot be done in two passes: then `silu_and_mul` follows `linear`.
    """
    if isinstance(gate_up, PackedWeight) and gate_up.is_halved and bias is None:
        return packed_gated_linear(x, gate_up)
    if not isinstance(gate_up, Tensor) or not _is_large(x, gate_up):
        return None
    gate, up = gate_up.chunk(2)
    gate_bias, up_bias = (None, None) if bias is None else bias.chunk(2)
    gated = linear(x, gate, gate_bias, "silu")
    if not FUSES:
        return gated.mul_(F.linear(x, up, up_bias))
    out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, gated, up, up_bias, "mul")
    return out


def activate(x: Tensor, kind: "Activation") -> Tensor:
    """The activation function of a plain MLP; may overwrite `x`."""
    if kind == "silu":
        return F.silu(x, inplace=True)
    if kind == "quick_gelu":
        # x · sigmoid(1.702 x), CLIP's approximation; silu of the scaled value saves two passes.
        return F.silu(x.mul_(1.702), inplace=True).mul_(1 / 1.702)
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


def w8a8_linear(x: Tensor, weight: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """x · Wᵀ + b with 8-bit weights and activations; each row of `x` has a scale of its own.

    LLM.int8, Dettmers et al. 2022, arXiv 2208.07339; SmoothQuant, Xiao et al. 2022, arXiv
    2211.10438. Sums of whole numbers are taken in float32, exact for up to 1,040 inputs
    (1,040 · 127² < 2²⁴) and beyond that as good as any sum in float32; then scales and bias.
    `torch._int_mm` is not used: without instructions for it, a processor took 30 times as long.

    Args:
        x: [M, in], any floating dtype.
        weight: [out, in] int8.
        scales: [out] float32; row o of the weight is `weight[o] * scales[o]`.
        bias: [out] or None.

    Returns:
        [M, out] of the dtype of `x`.
    """
    out = x.new_empty(len(x), len(weight))
    for first, last in pieces(*x.shape):
        rows, steps = quantise(x[first:last])
        wide = rows.float()
        for begin, end in pieces(*weight.shape):
            sums = linear(wide, weight[begin:end].float(), None)
            sums.mul_(steps.unsqueeze(1)).mul_(scales[begin:end])
            out[first:last, begin:end] = sums if bias is None else sums.add_(bias[begin:end])
    return out


def _other_linear(x: Tensor, weight: PackedWeight | QuantisedWeight, bias: Tensor | None) -> Tensor:
    if not isinstance(weight, PackedWeight):
        return _quantised_linear(x, weight, bias)
    out = packed_linear(x.reshape(-1, weight.in_features), weight, bias)
    return out.view(*x.shape[:-1], weight.out_features)


def _quantised_linear(x: Tensor, weight: QuantisedWeight, bias: Tensor | None) -> Tensor:
    """x · Wᵀ + b for [..., in]; the weight is turned into floating point piece by piece."""
    rows = x.reshape(-1, weight.in_features)
    if isinstance(weight, Int8Weight) and weight.rounds_inputs:
        product = w8a8_linear if weight.ops is None else weight.ops.w8a8_linear
        out = product(rows, weight.data, weight.row_scales, bias)
        return out.view(*x.shape[:-1], weight.out_features)
    out = rows.new_empty(len(rows), weight.out_features)
    for begin, end in pieces(weight.out_features, weight.in_features):
        out[:, begin:end] = linear(rows, weight.piece(begin, end, x.dtype), None)
    if weight.row_scales is not None:
        out.mul_(weight.row_scales)
    if bias is not None:
        out.add_(bias)
    return out.view(*x.shape[:-1], weight.out_features)


def _is_fused(x: Tensor, weight: Tensor) -> bool:
    return FUSES and _is_large(x, weight)


def _is_large(x: Tensor, weight: Tensor) -> bool:
    # A weight that is not dense takes oneDNN a thousand times as long.
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.numel() >= _MIN_ROWS * x.shape[-1]
        and weight.is_contiguous()
    )
