"""From a job's options to the engine's configuration: the pools of each kind of reading."""

from dataclasses import replace

from vlmcli.checkpoint import Checkpoint
from vlmcli.engine.config import EngineConfig
from vlmcli.options import OcrOptions
from vlmcli.processors import num_cpus

_PAGE_CONFIG = EngineConfig(
    kv_cache_bytes=512 << 20,
    encoder_cache_bytes=64 << 20,
    vision_cache_bytes=128 << 20,
    max_encoder_tokens=16_384,
)
"""A page is thousands of visual tokens, a line some dozens: `EngineConfig` defaults suit lines."""


def engine_config(checkpoint: Checkpoint, options: OcrOptions) -> EngineConfig:
    """The configuration for reading with `checkpoint` under `options`."""
    config = _PAGE_CONFIG if checkpoint.reads == "page" else EngineConfig()
    vision_cache = options.vision_cache
    return replace(
        config,
        device="cpu" if options.device == "auto" else options.device,
        enable_drafts=options.drafts != "off",
        num_threads=options.threads or default_threads(),
        vision_cache_bytes=config.vision_cache_bytes if vision_cache is None else vision_cache,
    )


def default_threads() -> int:
    """Threads of the model: every processor that this process may use, eight at most.

    The page workers run between its steps; with the passive wait policy that `__main__` sets, a
    thread without work sleeps instead of spinning.
    """
    return min(8, num_cpus())
