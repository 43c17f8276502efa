"""A matrix in AWQ's 4-bit gemm layout, unpacked into our own.

Lin et al. 2023, "AWQ: Activation-aware Weight Quantization", arXiv 2306.00978; the layout is that
of AutoAWQ's `WQLinear_GEMM`. Three tensors stand for a matrix [out, in]: `qweight` [in, out/8] and
`qzeros` [in/group, out/8], eight codes to an int32, and `scales` [in/group, out]; then
w[o, i] = (code[i, o] − zero[group of i, o]) · scale[group of i, o]. Sizes that are no multiples of
eight or of the group do not exist in it and are refused.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vlmcli.errors import ModelError
from vlmcli.kernels.quantised import GroupedInt4Weight

_CODES = 8
"""In an int32."""
_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which 4 bits of an int32, from the lowest, hold column 0, 1, … 7 of its eight. AutoAWQ puts
columns 0, 2, 4, 6, 1, 3, 5, 7 there in that order."""

Stored = tuple[str, tuple[int, ...], bool, Callable[[Tensor], None]]
"""Suffix of a tensor's name, its shape, whether it is packed, and what takes its values."""


def awq_tensors(
    weight: GroupedInt4Weight, start: int, size: int, order: Tensor | None
) -> Iterator[Stored]:
    """The three tensors of the `size` outputs from `start` on, reordered where an order is given.

    Raises:
        ModelError: the matrix has a size that cannot be packed so.
    """
    inputs, group_size = weight.in_features, weight.group_size
    if size % _CODES or inputs % group_size:
        raise ModelError(f"[{size}, {inputs}] is no matrix of AWQ's with groups of {group_size}")
    groups = inputs // group_size
    place = slice(start, start + size)

    def by_output(values: Tensor) -> Tensor:
        return values.t() if order is None else values.t()[order]

    def fill_codes(packed: Tensor) -> None:
        weight.put_codes(start, by_output(unpacked(packed)))

    def fill_zeros(packed: Tensor) -> None:
        weight.zeros[place].copy_(by_output(unpacked(packed)))

    def fill_scales(values: Tensor) -> None:
        weight.scales[place].copy_(by_output(values))

    yield "qweight", (inputs, size // _CODES), True, fill_codes
    yield "qzeros", (groups, size // _CODES), True, fill_zeros
    yield "scales", (groups, size), False, fill_scales


def unpacked(packed: Tensor) -> Tensor:
    """[n, m] int32 to the codes in them, [n, 8 · m] uint8."""
    codes = torch.empty(*packed.shape, _CODES, dtype=torch.uint8)
    for column, place in enumerate(_PLACES):
        # The sign is shifted in from the left, and cut off again.
        codes[:, :, column] = (packed >> 4 * place) & 15
    return codes.flatten(1)
