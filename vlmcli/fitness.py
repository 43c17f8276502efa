"""Options that a reader cannot follow, refused before anything is opened: what contradicts what."""

from vlmcli.checkpoint import Checkpoint
from vlmcli.errors import UsageError
from vlmcli.options import OcrOptions
from vlmcli.rapidocr import RAPIDOCR

_OF_THE_ENGINE = ("dtype", "kv_dtype", "vision_kv_dtype", "vision_cache", "max_tokens")
_DEFAULTS = OcrOptions(inputs=())


def takes_drafts(options: OcrOptions) -> bool:
    """Whether guesses at a page's text are of use to the job's reader."""
    return options.model != RAPIDOCR and not options.question


def check_reader(options: OcrOptions, checkpoint: Checkpoint) -> None:
    """Refuse options that the model's reader has no use for: they would be ignored in silence.

    Raises:
        UsageError: there is one.
    """
    if checkpoint.model_type == RAPIDOCR:
        _check_rapidocr(options)


def _check_rapidocr(options: OcrOptions) -> None:
    if options.device not in ("auto", "cpu"):
        raise UsageError(f"{RAPIDOCR} runs on the processor", remedy="leave out --device")
    for name in _OF_THE_ENGINE:
        if getattr(options, name) != getattr(_DEFAULTS, name):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{RAPIDOCR} has no {option}", remedy=f"leave out {option}")
