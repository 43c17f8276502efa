"""Options that a reader cannot follow, refused before anything is opened: what contradicts what."""

from dataclasses import replace

from vlmcli.checkpoint import Checkpoint
from vlmcli.errors import ModelError, UsageError
from vlmcli.options import OcrOptions, draft_reader
from vlmcli.rapidocr import RAPIDOCR, find_rapidocr

_POOLS = ("kv_dtype", "vision_kv_dtype", "vision_cache")
_OF_THE_ENGINE = ("dtype", "quantize", *_POOLS, "max_tokens", "engine")
_OF_THIS_MACHINE = (
    *("device", "dtype", *_POOLS, "threads"),
    *("engine", "quantize", "ray", "ray_workers", "answer_schema"),
)
_OF_SERVERS = ("server_concurrency", "server_prompt", "server_image")
_DEFAULTS = OcrOptions(inputs=())


def settled(options: OcrOptions) -> OcrOptions:
    """The options as the job follows them: a task for a model is not answered by a text layer."""
    if options.task != "text" and options.text_layer == "auto":
        return replace(options, text_layer="ignore")
    return options


def takes_drafts(options: OcrOptions) -> bool:
    """Whether guesses at a page's text are of use to the job's reader."""
    is_ours = options.model != RAPIDOCR and options.engine == "native"
    return is_ours and options.server is None and not options.question


def require_consistent(options: OcrOptions) -> None:
    """Check that options for servers and for our own engine do not meet.

    Raises:
        UsageError: they do.
    """
    if options.server is None:
        option = _given(options, _OF_SERVERS)
        if option is not None:
            raise UsageError(f"{option} needs --server URL")
        return
    option = _given(options, _OF_THIS_MACHINE)
    if option is not None:
        raise UsageError(
            f"{option} is for reading on this machine",
            remedy="leave it out, or leave out --server",
        )
    drafter = draft_reader(options.drafts)
    if drafter is not None:
        raise UsageError(
            f"{drafter} cannot draft for a server", remedy=f"leave {drafter} out of --drafts"
        )


def check_reader(options: OcrOptions, checkpoint: Checkpoint) -> None:
    """Refuse options that the model's reader has no use for: they would be ignored in silence.

    Raises:
        UsageError: there is one.
        ModelError: answers have to be data, and the model cannot be asked anything; or the reader
            that is to draft is not installed.
    """
    is_asked = checkpoint.reads == "page" and checkpoint.model_type != RAPIDOCR
    if options.task != "text" and not is_asked:
        raise UsageError(
            f"{checkpoint.name} reads text and takes no instructions",
            remedy=f"for --task {options.task} give a --model that does",
        )
    if options.answer_schema is not None:
        _check_answers(options, checkpoint, is_asked=is_asked)
    if checkpoint.model_type == RAPIDOCR:
        _check_rapidocr(options)
    if options.engine == "transformers":
        _check_transformers(options, checkpoint)
    drafter = draft_reader(options.drafts)
    if drafter is not None:
        _check_drafter(drafter, options, checkpoint)


def _check_answers(options: OcrOptions, checkpoint: Checkpoint, *, is_asked: bool) -> None:
    if not is_asked:
        raise ModelError(
            f"{checkpoint.name} reads lines and answers no questions: it gives no data",
            remedy="name a checkpoint that does after -m, such as Qwen2.5-VL or Qwen3-VL",
        )
    if options.engine == "transformers":
        raise UsageError(
            "--engine transformers does not check answers against a schema",
            remedy="leave out --answer-schema",
        )


def _check_drafter(name: str, options: OcrOptions, checkpoint: Checkpoint) -> None:
    remedy = f"leave {name} out of --drafts"
    if options.question:
        raise UsageError(f"{name} cannot draft answers to questions", remedy=remedy)
    if checkpoint.reads == "lines" or not takes_drafts(options):
        raise UsageError(f"{name} drafts for models that read pages whole", remedy=remedy)
    if name == RAPIDOCR:
        find_rapidocr()


def _check_rapidocr(options: OcrOptions) -> None:
    if options.device not in ("auto", "cpu"):
        raise UsageError(f"{RAPIDOCR} runs on the processor", remedy="leave out --device")
    _refuse(options, RAPIDOCR, _OF_THE_ENGINE)


def _check_transformers(options: OcrOptions, checkpoint: Checkpoint) -> None:
    if checkpoint.reads == "lines":
        raise UsageError(
            f"{checkpoint.name} reads lines, which transformers cannot ask it to",
            remedy="leave out --engine",
        )
    _refuse(options, "--engine transformers", ("quantize", *_POOLS))


def _refuse(options: OcrOptions, who: str, names: tuple[str, ...]) -> None:
    option = _given(options, names)
    if option is not None:
        raise UsageError(f"{who} has no {option}", remedy=f"leave out {option}")


def _given(options: OcrOptions, names: tuple[str, ...]) -> str | None:
    """The first of these options that is not what it is without a word, as it is written."""
    for name in names:
        if getattr(options, name) != getattr(_DEFAULTS, name):
            return "--" + name.replace("_", "-")
    return None
