"""Keys or values of one layer where they are not simply one tensor of the model's dtype.

Blocks may be stored in another floating dtype or as int8 with a float32 scale per token and head,
and those that hold image tokens alone (`vision`) otherwise than the rest. What attention reads is
what was stored, in every step, so that a token's rounding does not depend on how a prompt was cut
or batched. Plain torch; shapes depend on values on the CPU alone, as captured graphs need it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_LEVELS = 127.0


@dataclass(frozen=True, slots=True)
class KVPart:
    """Blocks of one format: `data` [blocks, block_size, kv_heads, d], its first block unused.

    `scales` [blocks, block_size, kv_heads] float32 where the data are int8, else None.
    """

    data: Tensor
    scales: Tensor | None = None


@dataclass(frozen=True, slots=True)
class KVPlane:
    """Keys or values of one layer. Slots of `vision` come behind those of `text`.

    The first block of `vision` has no slots: slot s ≥ n, where n is the number of slots of `text`,
    is slot s − n of its second block and those behind.
    """

    text: KVPart
    vision: KVPart | None = None


KVStore = Tensor | KVPlane
"""Keys or values of one layer: a tensor [blocks, block_size, kv_heads, d] of the model's dtype, or
planes of other formats."""


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric int8 per row: q = round(x / s), s = max|x| / 127 over the last dimension.

    Args:
        x: [..., d], any floating dtype.

    Returns:
        int8 [..., d] and the scales s, float32 [...]; |q · s − x| ≤ s / 2 but for rounding.
    """
    wide = x.float()
    scale = wide.abs().amax(-1).div_(_LEVELS)
    # A row of zeros has any scale; this one keeps it zero.
    steps = torch.where(scale > 0, scale, 1.0).unsqueeze(-1)
    return (wide / steps).round_().to(torch.int8), scale


def dequantise(data: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of `quantise` as numbers again, [..., d] of `dtype`."""
    # Converted first: a product of mixed types takes five times as long on a CPU.
    return data.float().mul_(scales.unsqueeze(-1)).to(dtype)


def store_rows(plane: KVStore, rows: Tensor, slots: Tensor) -> None:
    """Write rows [T, kv_heads, d] to their slots [T]; slot −1 writes nowhere."""
    if isinstance(plane, Tensor):
        _write(plane.view(-1, *plane.shape[2:]), rows, slots)
        return
    if plane.vision is None:
        _store(plane.text, rows, slots)
        return
    first = _num_slots(plane.text)
    is_text = slots < first
    _store(plane.text, rows, torch.where(is_text, slots, -1))
    local = slots - first + plane.vision.data.shape[1]
    _store(plane.vision, rows, torch.where(is_text, -1, local))


def block_slots(plane: KVStore, blocks: Tensor) -> Tensor:
    """All slots of blocks [B], one block behind the other: [B · block_size] int64."""
    size = plane.shape[1] if isinstance(plane, Tensor) else plane.text.data.shape[1]
    within = torch.arange(size, device=blocks.device)
    return (blocks.unsqueeze(1) * size + within).view(-1)


def gather_rows(plane: KVStore, slots: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of slots [N], [N, kv_heads, d] of `dtype`; where none was written, anything."""
    if isinstance(plane, Tensor):
        return plane.view(-1, *plane.shape[2:]).index_select(0, slots)
    if plane.vision is None:
        return _gather(plane.text, slots, dtype)
    first = _num_slots(plane.text)
    is_text = slots < first
    local = slots - first + plane.vision.data.shape[1]
    out = _gather(plane.vision, torch.where(is_text, 0, local), dtype)
    if slots.is_cuda:
        text = _gather(plane.text, torch.where(is_text, slots, 0), dtype)
        return torch.where(is_text.view(-1, 1, 1), text, out)
    places = is_text.nonzero().view(-1)
    return out.index_copy_(0, places, _gather(plane.text, slots.index_select(0, places), dtype))


def _num_slots(part: KVPart) -> int:
    return part.data.shape[0] * part.data.shape[1]


def _store(part: KVPart, rows: Tensor, slots: Tensor) -> None:
    data = part.data.view(-1, *part.data.shape[2:])
    if part.scales is None:
        _write(data, rows.to(data.dtype), slots)
        return
    values, scales = quantise(rows)
    _write(data, values, slots)
    _write(part.scales.view(-1, part.scales.shape[2]), scales, slots)


def _write(flat: Tensor, rows: Tensor, slots: Tensor) -> None:
    """Write rows [T, …] into `flat` [slots, …]; rows with slot −1 are written nowhere."""
    padding = slots < 0
    if rows.is_cuda or bool(padding.any()):
        # Padding writes slot 0 onto itself: no shape depends on values, as graphs need it.
        slots = slots.clamp(min=0)
        rows = torch.where(padding.view(-1, *(1,) * (rows.ndim - 1)), flat[:1], rows)
    flat.index_copy_(0, slots, rows)


def _gather(part: KVPart, slots: Tensor, dtype: torch.dtype) -> Tensor:
    rows = part.data.view(-1, *part.data.shape[2:]).index_select(0, slots)
    if part.scales is None:
        return rows.to(dtype)
    scales = part.scales.view(-1, part.scales.shape[2]).index_select(0, slots)
    return dequantise(rows, scales, dtype)
