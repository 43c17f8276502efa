"""Readers on our own engine, and around others: from a page's crops or picture to its text.

With `vlmcli.bench`, the only code outside `engine/` that imports it. Importing this package does no
work; `load_reader` and `load_chat` bring torch and the weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vlmcli.answers import AnswerChecker
from vlmcli.chat import Answerer
from vlmcli.checkpoint import Checkpoint, find_checkpoint
from vlmcli.errors import WillNotFitError
from vlmcli.memory.address_space import shortage
from vlmcli.memory.allocator import keep_heap_small
from vlmcli.memory.settings import Budgets
from vlmcli.options import OcrOptions, draft_reader
from vlmcli.processors import default_threads
from vlmcli.rapidocr import RAPIDOCR, find_rapidocr
from vlmcli.reading import OutOfMemoryError, Reader

if TYPE_CHECKING:
    from vlmcli.engine.engine import Engine

_NO_PATIENCE = 0.002
"""Seconds that a large reader's steps wait for a small one that drafts in a thread of its own."""


def load_reader(checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> Reader:
    """The reader for a checkpoint, its weights loaded and its pools made, within the budgets.

    Raises:
        ModelError: the checkpoint is incomplete, unsupported, or does not match its config; or a
            library is missing that it needs.
        WillNotFitError: less memory is there than the plan has counted on.
    """
    with _loading(checkpoint):
        return _load(checkpoint, options, budgets)


def load_chat(checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> Answerer:
    """What answers chats with a page-reading checkpoint, loaded as by `load_reader`.

    Raises:
        ModelError, WillNotFitError: as for `load_reader`.
    """
    with _loading(checkpoint):
        from vlmcli.readers.chat import ChatReader

        return ChatReader(_load_engine(checkpoint, options, budgets))


@contextmanager
def _loading(checkpoint: Checkpoint) -> Iterator[None]:
    """Says which checkpoint was loaded when memory ran out.

    Raises:
        WillNotFitError: it did.
    """
    keep_heap_small()
    try:
        yield
    except (OutOfMemoryError, MemoryError) as error:
        doing = f" while {checkpoint.name} was loaded"
        said = f": {error}" if str(error) else ""
        raise shortage(error, doing) or WillNotFitError(
            f"memory ran out{doing}{said}",
            remedy="end other programs, or take a smaller model or --dtype bfloat16",
        ) from error


def _load(checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> Reader:
    if checkpoint.model_type == RAPIDOCR:
        return _rapidocr(options)
    if options.engine == "transformers":
        return _transformers(checkpoint, options)
    reader = _native(checkpoint, options, budgets)
    drafter = draft_reader(options.drafts)
    return reader if drafter is None else _drafted(reader, drafter, options, budgets)


def _transformers(checkpoint: Checkpoint, options: OcrOptions) -> Reader:
    from vlmcli.engine.models.prompts import prompt_for
    from vlmcli.readers.one_by_one import OneByOneReader
    from vlmcli.readers.plain import TransformersModel

    device = "cpu" if options.device == "auto" else options.device
    dtype = "float32" if options.dtype == "auto" and device == "cpu" else options.dtype
    model = TransformersModel(
        checkpoint.path,
        device=device,
        dtype=dtype,
        num_threads=options.threads or default_threads(),
        prompts=options.question or (prompt_for(checkpoint.model_type, options.task),),
        questions=options.question,
        task=options.task,
        max_tokens=options.max_tokens,
        retries=options.retries,
    )
    return OneByOneReader(model)


def _drafted(main: Reader, name: str, options: OcrOptions, budgets: Budgets) -> Reader:
    """The reader behind a small one that drafts for it, on the processor."""
    from vlmcli.readers.drafted import DraftedReader

    if name == RAPIDOCR:
        drafter = _rapidocr(options, patience=_NO_PATIENCE)
        return DraftedReader(main, drafter, name=name, reads_crops=False)
    small = OcrOptions(inputs=(), model=name, device="cpu", retries=0, threads=options.threads)
    assert budgets.drafting is not None, "the plan has no room for the reader that drafts"
    small_reader = _native(find_checkpoint(name), small, budgets.drafting)
    return DraftedReader(main, small_reader, name=name, reads_crops=True)


def _rapidocr(options: OcrOptions, *, patience: float | None = None) -> Reader:
    from vlmcli.readers.one_by_one import OneByOneReader
    from vlmcli.readers.rapid import RapidOcrModel

    threads = options.threads or default_threads()
    model = RapidOcrModel(find_rapidocr(), num_threads=threads)
    return OneByOneReader(model) if patience is None else OneByOneReader(model, patience=patience)


def _native(checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> Reader:
    from vlmcli.readers.checked import CheckedReader
    from vlmcli.readers.guard import Guard
    from vlmcli.readers.lines import LineReader
    from vlmcli.readers.pages import PageReader
    from vlmcli.readers.spelling import Words

    guard = Guard(_load_engine(checkpoint, options, budgets), retries=options.retries)
    if checkpoint.reads == "lines":
        line = checkpoint.line
        return LineReader(
            guard,
            max_tokens=options.max_tokens,
            share_equal_crops=options.reuse != "off",
            reread_below=line.reread_below,
            words=Words.load(checkpoint.path / line.words) if line.words else None,
        )
    reader = PageReader(
        guard, max_tokens=options.max_tokens, questions=options.question, task=options.task
    )
    if options.answer_schema is None:
        return reader
    return CheckedReader(
        reader,
        AnswerChecker(options.answer_schema),
        questions=options.question,
        retries=options.retries,
    )


def _load_engine(checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> "Engine":
    from vlmcli.engine.engine import Engine
    from vlmcli.readers.config import engine_config
    from vlmcli.readers.shortage import memory_errors_translated

    with memory_errors_translated():
        return Engine.from_checkpoint(
            checkpoint.path, engine_config(options, budgets, reads=checkpoint.reads)
        )
