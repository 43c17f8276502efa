"""The tensors of the paged KV pool: one key and one value tensor for all layers, made once.

Which block belongs to whom is the block manager's affair. Block 0 is the null block: block tables
are padded with it, nothing is ever written to it, and nothing that is read from it is used.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vlmcli.engine.config import TextConfig

NULL_BLOCK = 0


def bytes_per_block(config: TextConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block, keys and values of all layers."""
    return block_size * config.kv_bytes_per_token(dtype.itemsize)


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values, each [layers, num_blocks, block_size, kv_heads, head_dim]."""

    keys: Tensor
    values: Tensor

    @classmethod
    def allocate(
        cls,
        config: TextConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> "KVCache":
        """A pool of `num_blocks` blocks, the null block counted, all zero."""
        shape = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        keys, values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        return cls(keys, values)

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool, the null block counted."""
        return self.keys.shape[1]

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.keys.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool."""
        return self.keys.nbytes + self.values.nbytes

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, views."""
        return self.keys[index], self.values[index]
