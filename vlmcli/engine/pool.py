"""How many KV blocks the pool's bytes are, and which tokens may have them. Integers alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from vlmcli.engine.config import BlockKind, EngineConfig
from vlmcli.engine.interfaces import Runner
from vlmcli.errors import WillNotFitError

_TEXT_RESERVE = 8
"""One block in so many is kept from image tokens, so that sequences that decode can grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """The KV pool in blocks.

    Attributes:
        num_blocks: all of them, the null block counted.
        num_vision_blocks: the last of them, in a format of their own and for image tokens alone; 0
            where all blocks are alike.
        block_bytes: of a block by kind.
        quotas: blocks of each kind that may be resident.
    """

    num_blocks: int
    num_vision_blocks: int
    block_bytes: Mapping[BlockKind, int]
    quotas: Mapping[BlockKind, int]


def size_pool(runner: Runner, config: EngineConfig) -> PoolSize:
    """The pool that `kv_cache_bytes` are.

    Raises:
        WillNotFitError: they do not hold a single block beside what is never handed out.
    """
    block_bytes: dict[BlockKind, int] = {
        "vision": runner.bytes_per_block("vision"),
        "text": runner.bytes_per_block("text"),
    }
    if not runner.has_vision_pool:
        num_blocks = _blocks(config.kv_cache_bytes, block_bytes["text"])
        usable = num_blocks - 1
        reserve = min(config.max_num_seqs, usable // _TEXT_RESERVE)
        return PoolSize(
            num_blocks=num_blocks,
            num_vision_blocks=0,
            block_bytes=block_bytes,
            quotas={"vision": usable - reserve, "text": usable},
        )
    vision_bytes = config.vision_kv_bytes
    if vision_bytes is None:
        vision_bytes = config.kv_cache_bytes // 2
    # Each of the two pools has a block that nobody gets: padding points there.
    num_text = _blocks(config.kv_cache_bytes - vision_bytes, block_bytes["text"])
    num_vision = _blocks(vision_bytes, block_bytes["vision"]) - 1
    return PoolSize(
        num_blocks=num_text + num_vision,
        num_vision_blocks=num_vision,
        block_bytes=block_bytes,
        quotas={"vision": num_vision, "text": num_text - 1},
    )


def _blocks(num_bytes: int, block_bytes: int) -> int:
    num_blocks = num_bytes // block_bytes
    if num_blocks < 2:
        raise WillNotFitError(
            f"the KV cache of {num_bytes} bytes holds no block of {block_bytes}",
            remedy="give it more memory",
        )
    return num_blocks
