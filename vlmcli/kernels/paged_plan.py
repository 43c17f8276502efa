"""What paged attention in Triton needs to know of a step: tables, lengths, and tiles of queries.

Made once per step and used in every layer. Plain torch and numpy; reads nothing back from a device.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vlmcli.kernels.attention_tile import query_tiles

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedPlan:
    """S sequences with T query rows in all, as `reference.plan_paged` describes them."""

    block_tables: Tensor
    """[S, max_blocks] int32."""
    context_lens: Tensor
    """[S] int32."""
    query_starts: Tensor
    """[S + 1] int32, cumulative query lengths."""
    block_size: int
    max_query: int
    """Query rows of the sequence that has most, at least 1."""
    max_context: int
    """Tokens that a context may have; the real ones stand on the device."""
    query_lens: npt.NDArray[np.int64] | None
    """[S]; None where all sequences have `max_query` rows."""
    _tiles: dict[int, Tensor] = field(default_factory=dict)

    def tiles(self, block: int) -> Tensor:
        """[tiles, 2] int32: sequence and first query row of tiles of at most `block` rows.

        Layers of a model ask for one and the same height, so they are made once.
        """
        if block not in self._tiles:
            self._tiles[block] = self._make_tiles(block)
        return self._tiles[block]

    def _make_tiles(self, block: int) -> Tensor:
        device = self.context_lens.device
        if self.query_lens is not None:
            return torch.from_numpy(query_tiles(self.query_lens, block)).to(device)
        per_sequence = -(-self.max_query // block)
        numbers = torch.arange(
            len(self.context_lens) * per_sequence, dtype=torch.int32, device=device
        )
        return torch.stack((numbers // per_sequence, numbers % per_sequence * block), dim=1)


def plan_paged(
    block_tables: Int32Array,
    context_lens: Int32Array,
    cu_seqlens_q: Int32Array,
    block_size: int,
    like: Tensor,
) -> PagedPlan:
    """`reference.plan_paged` for the kernel: copies the tables to the device of `like`."""
    query_lens = np.diff(cu_seqlens_q).astype(np.int64)

    def to_device(array: npt.NDArray[Any]) -> Tensor:
        dense = np.ascontiguousarray(array, dtype=np.int32)
        return torch.from_numpy(dense).to(like.device, non_blocking=True)

    return PagedPlan(
        block_tables=to_device(block_tables),
        context_lens=to_device(context_lens),
        query_starts=to_device(cu_seqlens_q),
        block_size=block_size,
        max_query=max(1, int(query_lens.max(initial=0))),
        max_context=int(context_lens.max(initial=0)),
        query_lens=query_lens,
    )


def plan_decode(
    block_tables: Tensor, context_lens: Tensor, block_size: int, like: Tensor, num_query: int = 1
) -> PagedPlan:
    """`reference.plan_decode` for the kernel; a captured graph may contain it."""
    num_seqs, width = block_tables.shape
    last = num_seqs * num_query + 1
    return PagedPlan(
        block_tables=block_tables.to(torch.int32),
        context_lens=context_lens.to(torch.int32),
        query_starts=torch.arange(0, last, num_query, dtype=torch.int32, device=like.device),
        block_size=block_size,
        max_query=num_query,
        max_context=width * block_size,
        query_lens=None,
    )
