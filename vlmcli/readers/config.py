"""From a job's options to the engine's configuration: the pools of each kind of reading."""

import os

from vlmcli.checkpoint import Checkpoint
from vlmcli.engine.config import EngineConfig
from vlmcli.options import OcrOptions

_PAGE_POOLS = {
    "kv_cache_bytes": 512 << 20,
    "encoder_cache_bytes": 64 << 20,
    "vision_cache_bytes": 128 << 20,
    "max_encoder_tokens": 16_384,
}
"""A page is thousands of visual tokens, a line some dozens: `EngineConfig` defaults suit lines."""


def engine_config(checkpoint: Checkpoint, options: OcrOptions) -> EngineConfig:
    """The configuration for reading with `checkpoint` under `options`."""
    pools = dict(_PAGE_POOLS) if checkpoint.reads == "page" else {}
    if options.vision_cache is not None:
        pools["vision_cache_bytes"] = options.vision_cache
    return EngineConfig(
        device="cpu" if options.device == "auto" else options.device,
        enable_drafts=options.drafts != "off",
        num_threads=options.threads or default_threads(),
        **pools,
    )


def default_threads() -> int:
    """Threads of the model: every processor that this process may use, eight at most.

    The page workers run between its steps; with the passive wait policy that `__main__` sets, a
    thread without work sleeps instead of spinning.
    """
    if hasattr(os, "sched_getaffinity"):
        return min(8, len(os.sched_getaffinity(0)))
    return min(8, os.cpu_count() or 1)
