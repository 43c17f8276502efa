"""The tensors of the paged KV pool: keys and values of all layers, made once.

Which block belongs to whom is the block manager's affair. Block 0 is the null block: block tables
are padded with it, nothing is ever written to it, and nothing that is read from it is used. Blocks
of image tokens alone may have a format of their own; then they are the last ones of the pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vlmcli.engine.config import TextConfig
from vlmcli.kernels.kv_store import KVPart, KVPlane, KVStore

NULL_BLOCK = 0
LayerKV = tuple[KVStore, KVStore]
"""Keys and values of one layer, as the ops take them."""
SavedBlock = list[Tensor]
"""A block outside of the pool: keys, values and, for int8, their scales."""
SCALE_BYTES = 4
"""A float32 per token, head, and key or value, beside int8."""


def bytes_per_block(config: TextConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block, keys and values of all layers."""
    scales = 0
    if dtype == torch.int8:
        scales = 2 * config.num_layers * config.num_kv_heads * SCALE_BYTES
    return block_size * (config.kv_bytes_per_token(dtype.itemsize) + scales)


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values, each [layers, num_blocks, block_size, kv_heads, head_dim].

    Attributes:
        keys: of all blocks, or of those that are not in `vision`.
        values: likewise.
        key_scales: [layers, num_blocks, block_size, kv_heads] where they are int8, else None.
        value_scales: likewise.
        vision: the blocks behind them, in their own format; its first block is never used.
        is_plain: whether the ops get tensors of the model's dtype, not planes.
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None
    vision: "KVCache | None" = None
    is_plain: bool = True

    @classmethod
    def allocate(
        cls,
        config: TextConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        stored: torch.dtype | None = None,
        num_vision_blocks: int = 0,
        vision_stored: torch.dtype | None = None,
    ) -> "KVCache":
        """A pool of `num_blocks` blocks, the null block counted, all zero.

        Args:
            config: shapes of the decoder.
            num_blocks: in the pool.
            block_size: tokens of each.
            dtype: that the model computes in.
            device: where they live.
            stored: dtype of the blocks; None for `dtype`.
            num_vision_blocks: how many of them, the last ones, are stored as `vision_stored`.
            vision_stored: dtype of these.
        """
        stored = stored or dtype
        vision = None
        if num_vision_blocks:
            assert vision_stored is not None
            vision = _part(config, num_vision_blocks + 1, block_size, vision_stored, device)
        text = _part(config, num_blocks - num_vision_blocks, block_size, stored, device)
        is_plain = vision is None and stored == dtype
        return cls(*text, vision=vision and cls(*vision, is_plain=False), is_plain=is_plain)

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool, the null block counted."""
        return self.keys.shape[1] + (self.vision.num_blocks - 1 if self.vision else 0)

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.keys.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool."""
        tensors = (self.keys, self.values, self.key_scales, self.value_scales)
        own = sum(tensor.nbytes for tensor in tensors if tensor is not None)
        return own + (self.vision.nbytes if self.vision else 0)

    def layer(self, index: int) -> LayerKV:
        """Keys and values of one layer, views."""
        if self.is_plain:
            return self.keys[index], self.values[index]
        own = self._parts(index)
        others = self.vision._parts(index) if self.vision else (None, None)
        return KVPlane(own[0], others[0]), KVPlane(own[1], others[1])

    def save(self, blocks: Sequence[int]) -> list[SavedBlock]:
        """Copies of blocks in host memory."""
        return [[view.to("cpu", copy=True) for view in self._block(block)] for block in blocks]

    def load(self, saved: Sequence[SavedBlock], blocks: Sequence[int]) -> None:
        """Write saved blocks into as many others of the same formats."""
        for copies, block in zip(saved, blocks, strict=True):
            for view, copy in zip(self._block(block), copies, strict=True):
                view.copy_(copy)

    def _block(self, block: int) -> list[Tensor]:
        """Views [layers, block_size, …] of everything that is stored of a block."""
        own = self.keys.shape[1]
        if block >= own:
            assert self.vision is not None, f"there is no block {block}"
            return self.vision._block(block - own + 1)
        tensors = (self.keys, self.values, self.key_scales, self.value_scales)
        return [tensor[:, block] for tensor in tensors if tensor is not None]

    def _parts(self, index: int) -> tuple[KVPart, KVPart]:
        keys, values = KVPart(self.keys[index]), KVPart(self.values[index])
        if self.key_scales is not None and self.value_scales is not None:
            keys = KVPart(keys.data, self.key_scales[index])
            values = KVPart(values.data, self.value_scales[index])
        return keys, values


def _part(
    config: TextConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Keys, values and, for int8, their scales."""
    shape = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
    keys, values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
    if dtype != torch.int8:
        return keys, values, None, None
    first, second = (torch.zeros(shape[:-1], dtype=torch.float32, device=device) for _ in range(2))
    return keys, values, first, second
