"""From a job's options to what a plan needs: the model's shapes, the device, the cap, the command.

Shared by `vlmcli plan`, which predicts, and `vlmcli ocr`, which holds itself to the prediction.
Opens a checkpoint for its configuration and headers; loads no weights and opens no document.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from vlmcli.checkpoint import checkpoint_path, shown_name
from vlmcli.memory import address_space
from vlmcli.memory.calibration import calibration_key, load_calibration
from vlmcli.memory.checkpoint_facts import facts_from_directory
from vlmcli.memory.command import input_words, other_words
from vlmcli.memory.devices import (
    MIB,
    address_space_room,
    cuda_free,
    default_cap,
    find_cuda,
    host_cap,
)
from vlmcli.memory.drafting import plan_drafting
from vlmcli.memory.estimate import PDF_WRITER_BYTES
from vlmcli.memory.facts import DTYPE_BYTES, ModelFacts
from vlmcli.memory.foreign import rapidocr_facts, transformers_facts
from vlmcli.memory.presets import require_preset
from vlmcli.memory.remedies import CommandLine, plan_with_remedies
from vlmcli.memory.settings import DeviceKind, Drafting, PageShape, Plan, PlanSettings
from vlmcli.memory.spread import Spread
from vlmcli.options import (
    EngineName,
    Format,
    OcrOptions,
    ReuseMode,
    TextLayerMode,
    draft_reader,
    parse_size,
)
from vlmcli.processors import default_jobs
from vlmcli.rapidocr import RAPIDOCR

_DEFAULTS = OcrOptions(inputs=())
_ASKED_AGAIN = 400
"""Tokens of what stands behind a question that is put a second time (`readers.checked`)."""
_NOT_PLANNED = frozenset(
    {
        *("reuse", "cache", "formats", "drafts", "answer_schema", "frame_interval", "ray_workers"),
        "text_layer",
    }
)
"""Options that a plan takes into account and never changes: remedies repeat them as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The options that decide memory. Sizes in bytes; None is an option that was not given."""

    inputs: tuple[str, ...] = ()
    question: tuple[str, ...] = ()
    answer_schema: str | None = None
    model: str = _DEFAULTS.model
    engine: EngineName = _DEFAULTS.engine
    pages: str | None = None
    dpi: int = _DEFAULTS.dpi
    max_pixels: int = _DEFAULTS.max_pixels
    frame_interval: float = _DEFAULTS.frame_interval
    max_tokens: int | None = None
    device: str = _DEFAULTS.device
    device_memory: str | None = None
    max_memory: int | None = None
    dtype: str = "auto"
    kv_dtype: str = "auto"
    vision_kv_dtype: str = "auto"
    quantize: tuple[str, ...] = ()
    vision_cache: int | None = None
    pages_in_flight: int | None = None
    jobs: int | None = None
    ray_workers: int | None = None
    """Workers of a cluster, for the plan to say what each takes."""
    reuse: ReuseMode = _DEFAULTS.reuse
    cache: bool = _DEFAULTS.cache
    drafts: str = _DEFAULTS.drafts
    text_layer: TextLayerMode = _DEFAULTS.text_layer
    """Says which pages are for the model; memory is planned as if all of them were."""
    other_words: tuple[str, ...] = ()
    """What else the command line said, to be repeated in remedies."""
    formats: tuple[Format, ...] = ()
    """Of the outputs: some are made from the document itself."""

    @classmethod
    def of(cls, options: OcrOptions) -> "PlanRequest":
        """What the options of a job ask for."""
        known = {field.name for field in fields(options)}
        names = {field.name for field in fields(cls)} & known
        return cls(
            **{name: getattr(options, name) for name in names},
            other_words=other_words(options, names - _NOT_PLANNED),
        )


@dataclass(frozen=True, slots=True)
class Target:
    """Where the job will run, how much memory it may take there, and who says so."""

    device: DeviceKind
    cap_bytes: int
    source: str
    is_given: bool
    is_address_space: bool = False
    """Whether a limit on address space is what leaves so little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Everything about a job but its pages. `facts` is None for a job without a model."""

    facts: ModelFacts | None
    settings: PlanSettings
    target: Target
    command: CommandLine

    def plan(self, pages: Sequence[PageShape]) -> Plan:
        """The plan for these pages, with remedies where they do not fit."""
        assert self.facts is not None, "there is no model to plan for"
        return plan_with_remedies(
            pages, self.facts, self.settings, self.target.cap_bytes, self.command
        )


def make_planner(
    request: PlanRequest,
    *,
    needs_model: bool = True,
    spread: Spread | None = None,
    remote_pages: int = 0,
) -> Planner:
    """Find out what a plan needs beside the pages.

    Args:
        request: the options.
        needs_model: False for a job in which no page can be for a model of ours.
        spread: the workers, where the model is elsewhere.
        remote_pages: that a server reads at the same time; 0 where none does.

    Raises:
        VlmcliError: the model is unknown, or an option makes no sense.
    """
    facts = find_facts(request.model, request.engine) if needs_model else None
    device = request.device if needs_model else "cpu"
    if spread is None:
        target = find_target(device, request.device_memory, request.max_memory)
    else:
        target = _worker_target(device, request.max_memory is not None, spread)
    settings = PlanSettings(
        dpi=request.dpi,
        max_pixels=request.max_pixels,
        device=target.device,
        dtype=request.dtype,
        kv_dtype=request.kv_dtype,
        vision_kv_dtype=request.vision_kv_dtype,
        quantize=request.quantize,
        max_tokens=request.max_tokens,
        question_tokens=_question_tokens(request),
        vision_cache=request.vision_cache,
        max_pages_in_flight=request.pages_in_flight,
        jobs=request.jobs or default_jobs(),
        writer_bytes=PDF_WRITER_BYTES if "pdf" in request.formats else 0,
        writes_pdf="pdf" in request.formats,
        remote_pages=remote_pages,
        draws_pages=needs_model or remote_pages > 0,
        compares_pages=request.reuse in ("verified", "similar"),
        keeps_results=request.cache and request.reuse != "off",
        drafting=_drafting(request.drafts) if needs_model else None,
    )
    return Planner(
        facts=facts,
        settings=settings if facts is None else with_calibration(settings, facts),
        target=target,
        command=_command(request, target),
    )


def _question_tokens(request: PlanRequest) -> int:
    """Tokens of the longest question: a byte is one at the most."""
    longest = max((len(text.encode()) for text in request.question), default=0)
    return longest + (_ASKED_AGAIN if request.answer_schema is not None else 0)


def _drafting(drafts: str) -> Drafting | None:
    name = draft_reader(drafts)
    return None if name is None else plan_drafting(find_facts(name))


def find_facts(model: str, engine: EngineName = "native") -> ModelFacts:
    """What `--model` names: the built-in model, RapidOCR, a directory, or a published name.

    Raises:
        ModelError: there is no such model, or its configuration cannot be used.
    """
    if model == RAPIDOCR:
        return rapidocr_facts()
    path = checkpoint_path(model)
    if engine == "transformers":
        return transformers_facts(model, path)
    if path is None:
        return require_preset(model)
    return facts_from_directory(path, shown_name(model, path))


def with_calibration(settings: PlanSettings, facts: ModelFacts) -> PlanSettings:
    """The settings with what was measured for this model and device, if anything was."""
    keys = {dtype: calibration_key(facts, settings.device, dtype) for dtype in DTYPE_BYTES}
    found = {dtype: load_calibration(key) for dtype, key in keys.items()}
    return replace(
        settings, measured={dtype: one for dtype, one in found.items() if one is not None}
    )


def find_target(device: str, device_memory: str | None, max_memory: int | None) -> Target:
    """The device and the cap: what the user says, else what is free less a margin.

    Without `--device` a GPU is planned for where its memory is given or asked for, as `ocr` uses
    one only when told to.

    Raises:
        UsageError: a GPU is asked for whose memory cannot be found out, or a size is none.
    """
    match = re.fullmatch(r"cuda:(\d+)", device)
    index = int(match[1]) if match else 0
    size = None if device_memory in (None, "auto") else parse_size(device_memory or "")
    is_cuda = device.startswith("cuda") or (device == "auto" and size is not None)
    limits = [limit for limit in (max_memory, size) if limit is not None]
    if limits and (is_cuda or device_memory is None or device == "cpu"):
        return Target("cuda" if is_cuda else "cpu", min(limits), "as given", is_given=True)
    gpu = cuda_free(index) if is_cuda else None
    if device == "auto" and device_memory == "auto":
        gpu = find_cuda(index)
    kind: DeviceKind = "cpu" if gpu is None else "cuda"
    if limits:
        return Target(kind, min(limits), "as given", is_given=True)
    cap = host_cap() if gpu is None else default_cap(gpu[0])
    space = address_space.limit_bytes() if gpu is None else None
    if space is not None and address_space_room(space) == cap:
        source = f"left by {address_space.named(space)}"
        return Target(kind, cap, source, is_given=False, is_address_space=True)
    place = "on this machine" if gpu is None else f"on GPU {index}"
    return Target(kind, cap, f"free {place}, less a margin", is_given=False)


def _worker_target(device: str, is_given: bool, spread: Spread) -> Target:
    """One worker of a cluster. A remedy's command line has the job's cap, not the worker's."""
    kind: DeviceKind = "cuda" if device.startswith("cuda") else "cpu"
    cap = spread.worker_cap_bytes if kind == "cuda" else spread.plan_cap_bytes
    count = spread.num_workers
    source = f"for each of {count} workers" if count > 1 else "for the cluster's worker"
    return Target(kind, cap, f"as given, {source}" if is_given else source, is_given=False)


def _command(request: PlanRequest, target: Target) -> CommandLine:
    """The command line that does the planned job, with the options that were given."""
    default = PlanRequest()
    cap = target.cap_bytes if target.is_given else request.max_memory
    planned = None if target.device == "cpu" else target.device
    given: dict[str, object] = {
        "--model": None if request.model == default.model else request.model,
        "--engine": None if request.engine == default.engine else request.engine,
        "--pages": request.pages,
        "--dpi": None if request.dpi == default.dpi else request.dpi,
        "--max-pixels": None if request.max_pixels == default.max_pixels else request.max_pixels,
        "--max-tokens": request.max_tokens,
        "--device": planned if request.device == "auto" else request.device,
        "--max-memory": None if cap is None else _size(cap),
        "--dtype": None if request.dtype == "auto" else request.dtype,
        "--kv-dtype": None if request.kv_dtype == "auto" else request.kv_dtype,
        "--vision-kv-dtype": None if request.vision_kv_dtype == "auto" else request.vision_kv_dtype,
        "--quantize": ",".join(request.quantize) or None,
        "--vision-cache": None if request.vision_cache is None else _size(request.vision_cache),
        "--jobs": request.jobs,
    }
    inputs = input_words(request.inputs)
    known = frozenset("--" + field.name.replace("_", "-") for field in fields(OcrOptions))
    asked = [word for text in request.question for word in ("-q", text)]
    words: tuple[str, ...] = ("vlmcli", "plan", *asked, *request.other_words)
    if inputs:
        words = ("vlmcli", "ask" if asked else "ocr", *inputs, *asked, *request.other_words)
    return CommandLine(
        words=words,
        options={name: str(value) for name, value in given.items() if value is not None},
        accepts=known if request.inputs else None,
    )


def _size(size: int) -> str:
    """A size as an option's value: whole MiB where it is one."""
    return str(size) if size % MIB else f"{size // MIB}MiB"
