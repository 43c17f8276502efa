"""Readers on our own engine: from a page's crops or picture to its text.

With `vlmcli.bench`, the only code outside `engine/` that imports it. Importing this package does no
work; `load_reader` brings torch and the weights.
"""

from vlmcli.checkpoint import Checkpoint
from vlmcli.options import OcrOptions
from vlmcli.reading import Reader


def load_reader(checkpoint: Checkpoint, options: OcrOptions) -> Reader:
    """The reader for a checkpoint, its weights loaded.

    Raises:
        ModelError: the checkpoint is incomplete, unsupported, or does not match its config.
        WillNotFitError: the memory cap leaves no room for the engine's pools.
    """
    from vlmcli.engine.engine import Engine
    from vlmcli.readers.config import engine_config
    from vlmcli.readers.guard import Guard
    from vlmcli.readers.lines import LineReader
    from vlmcli.readers.pages import PageReader

    engine = Engine.from_checkpoint(checkpoint.path, engine_config(checkpoint, options))
    guard = Guard(engine, retries=options.retries)
    if checkpoint.reads == "lines":
        return LineReader(
            guard, max_tokens=options.max_tokens, share_equal_crops=options.reuse != "off"
        )
    return PageReader(guard, max_tokens=options.max_tokens)
