"""Readers on our own engine: from a page's crops or picture to its text or answers.

With `vlmcli.bench`, the only code outside `engine/` that imports it. Importing this package does no
work; `load_reader` and `load_chat` bring torch and the weights.
"""

from typing import TYPE_CHECKING

from vlmcli.chat import Answerer
from vlmcli.checkpoint import Checkpoint
from vlmcli.errors import WillNotFitError
from vlmcli.memory.allocator import keep_heap_small
from vlmcli.memory.settings import Budgets
from vlmcli.options import OcrOptions
from vlmcli.reading import OutOfMemoryError, Reader

if TYPE_CHECKING:
    from vlmcli.engine.engine import Engine


def load_reader(checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> Reader:
    """The reader for a checkpoint, its weights loaded and its pools made, within the budgets.

    Raises:
        ModelError: the checkpoint is incomplete, unsupported, or does not match its config.
        WillNotFitError: less memory is there than the plan has counted on.
    """
    from vlmcli.readers.guard import Guard
    from vlmcli.readers.lines import LineReader
    from vlmcli.readers.pages import PageReader

    guard = Guard(_load_engine(checkpoint, options, budgets), retries=options.retries)
    if checkpoint.reads == "lines":
        return LineReader(
            guard, max_tokens=options.max_tokens, share_equal_crops=options.reuse != "off"
        )
    return PageReader(guard, max_tokens=options.max_tokens, questions=options.question)


def load_chat(checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> Answerer:
    """What answers chats with a page-reading checkpoint, loaded as by `load_reader`.

    Raises:
        ModelError, WillNotFitError: as for `load_reader`.
    """
    from vlmcli.readers.chat import ChatReader

    return ChatReader(_load_engine(checkpoint, options, budgets))


def _load_engine(checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> "Engine":
    from vlmcli.engine.engine import Engine
    from vlmcli.readers.config import engine_config
    from vlmcli.readers.shortage import memory_errors_translated

    keep_heap_small()
    try:
        with memory_errors_translated():
            return Engine.from_checkpoint(
                checkpoint.path, engine_config(options, budgets, reads=checkpoint.reads)
            )
    except OutOfMemoryError as error:
        raise WillNotFitError(
            f"memory ran out while {checkpoint.name} was loaded: {error}",
            remedy="end other programs, or take a smaller model or --dtype bfloat16",
        ) from error
