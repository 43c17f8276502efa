"""Matrices held in 8 or 4 bits a number, and products with them, in plain torch.

Weight-only formats are turned into floating point piece by piece for each product, so that no more
than `PIECE` numbers of a matrix ever stand in floating point. torch's own int8 product
(`torch._weight_int8pack_mm`) is not used: in float32 on AVX2 it took 10 to 40 times as long.
"""

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from vlmcli.kernels.kv_store import quantise

if TYPE_CHECKING:
    from vlmcli.kernels import Ops

PIECE = 1 << 20
"""Numbers of a matrix that are in floating point at a time: 4 MiB in float32. Smaller pieces cost
more calls, larger ones fall out of the processor's cache (measured)."""
_HIGH, _LEVELS = 4, 15


class QuantisedWeight(Protocol):
    """A matrix [out_features, in_features] in fewer bits."""

    out_features: int
    in_features: int

    @property
    def row_scales(self) -> Tensor | None:
        """[out] float32: factors of the outputs that `piece` leaves out; None for none."""

    def piece(self, begin: int, end: int, dtype: torch.dtype) -> Tensor:
        """Rows `begin` to `end` in floating point, [n, in], without `row_scales`."""

    def fill(self, start: int, rows: Tensor) -> None:
        """Quantise `rows` [n, in], any floating dtype, into the rows from `start` on."""


class Int8Weight(nn.Module):
    """int8 with a scale per output: w = data · s, s = max|w| / 127 over the row.

    With `rounds_inputs` the other side of a product is rounded to 8 bits as well: by the kernels of
    `ops`, which the loader puts there, or in plain torch where they are None.
    """

    data: Tensor
    row_scales: Tensor
    ops: "Ops | None" = None

    def __init__(self, out_features: int, in_features: int, *, rounds_inputs: bool) -> None:
        super().__init__()
        self.out_features, self.in_features = out_features, in_features
        self.rounds_inputs = rounds_inputs
        data = torch.empty(out_features, in_features, dtype=torch.int8)
        self.data = nn.Buffer(data, persistent=False)
        self.row_scales = nn.Buffer(
            torch.empty(out_features, dtype=torch.float32), persistent=False
        )

    def piece(self, begin: int, end: int, dtype: torch.dtype) -> Tensor:
        """Rows in floating point, whole numbers up to 127, without their scales."""
        return self.data[begin:end].to(dtype)

    def fill(self, start: int, rows: Tensor) -> None:
        """Quantise rows [n, in] into place."""
        for begin, end in pieces(len(rows), self.in_features):
            data, scales = quantise(rows[begin:end])
            self.data[start + begin : start + end].copy_(data)
            self.row_scales[start + begin : start + end].copy_(scales)


class GroupedInt4Weight(nn.Module):
    """4 bits with a scale and a zero per output and group of inputs: w = (code − zero) · s.

    `data` [out, ⌈in/2⌉] uint8: byte j has column j in its low half and column ⌈in/2⌉ + j in its
    high one. `scales` float32 and `zeros` uint8 are [out, groups]; the last group may be short.
    """

    data: Tensor
    scales: Tensor
    zeros: Tensor
    row_scales = None

    def __init__(self, out_features: int, in_features: int, group_size: int) -> None:
        super().__init__()
        self.out_features, self.in_features = out_features, in_features
        self.group_size, self.row_bytes = group_size, -(-in_features // 2)
        groups = -(-in_features // group_size)
        self.data = nn.Buffer(
            torch.empty(out_features, self.row_bytes, dtype=torch.uint8), persistent=False
        )
        self.scales = nn.Buffer(
            torch.empty(out_features, groups, dtype=torch.float32), persistent=False
        )
        self.zeros = nn.Buffer(
            torch.empty(out_features, groups, dtype=torch.uint8), persistent=False
        )

    def piece(self, begin: int, end: int, dtype: torch.dtype) -> Tensor:
        """Rows in floating point."""
        packed = self.data[begin:end]
        wide = torch.empty(end - begin, self.in_features, dtype=torch.float32, device=packed.device)
        wide[:, : self.row_bytes].copy_(packed & _LEVELS)
        wide[:, self.row_bytes :].copy_((packed >> _HIGH)[:, : self.in_features - self.row_bytes])
        zeros, scales = self.zeros[begin:end].float(), self.scales[begin:end]
        for columns, groups in _grouped(wide, self.group_size):
            columns.sub_(zeros[:, groups].unsqueeze(-1)).mul_(scales[:, groups].unsqueeze(-1))
        return wide.to(dtype)

    def fill(self, start: int, rows: Tensor) -> None:
        """Quantise rows [n, in] into place: each group's range, zero included, in 15 steps."""
        for begin, end in pieces(len(rows), self.in_features):
            wide = rows[begin:end].to(torch.float32, copy=True)
            place = slice(start + begin, start + end)
            for columns, groups in _grouped(wide, self.group_size):
                low, high = columns.amin(-1).clamp_(max=0), columns.amax(-1).clamp_(min=0)
                scales = (high - low).div_(_LEVELS)
                # A group of zeros has any scale.
                scales = torch.where(scales > 0, scales, 1.0)
                zeros = (-low / scales).round_()
                columns.div_(scales.unsqueeze(-1)).round_()
                columns.add_(zeros.unsqueeze(-1)).clamp_(0, _LEVELS)
                self.scales[place, groups].copy_(scales)
                self.zeros[place, groups].copy_(zeros)
            self.put_codes(start + begin, wide.to(torch.uint8))

    def put_codes(self, start: int, codes: Tensor) -> None:
        """Store codes [n, in], uint8 up to 15, in the rows from `start` on."""
        packed = codes[:, : self.row_bytes].clone()
        packed[:, : self.in_features - self.row_bytes] |= codes[:, self.row_bytes :] << _HIGH
        self.data[start : start + len(codes)].copy_(packed)


def pieces(num_rows: int, width: int) -> list[tuple[int, int]]:
    """First row and end of pieces of a matrix that have `PIECE` numbers or one row."""
    step = max(1, PIECE // max(1, width))
    return [(begin, min(begin + step, num_rows)) for begin in range(0, num_rows, step)]


def _grouped(wide: Tensor, group_size: int) -> list[tuple[Tensor, slice]]:
    """Views [n, groups, size] of the columns [n, in], with the groups' numbers: rest last."""
    whole = wide.shape[1] // group_size
    border = whole * group_size
    found = []
    if whole:
        # A view even where the row goes on behind the last whole group.
        view = wide[:, :border].view(-1, whole, group_size)
        found.append((view, slice(0, whole)))
    if border < wide.shape[1]:
        found.append((wide[:, border:].unsqueeze(1), slice(whole, whole + 1)))
    return found
