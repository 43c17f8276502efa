"""What `vlmcli plan` finds out: the model's shapes, the memory that is there, the pages' sizes.

Opens documents to measure their pages, and a checkpoint for its configuration and headers; renders
nothing, loads no weights, imports no torch.
"""

import re
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from vlmcli.checkpoint import BUILT_IN, built_in_path
from vlmcli.documents.selection import parse_pages
from vlmcli.documents.source import PageHandle, Source, iter_sources, open_document
from vlmcli.errors import VlmcliError
from vlmcli.memory.calibration import calibration_key, load_calibration
from vlmcli.memory.checkpoint_facts import facts_from_directory
from vlmcli.memory.devices import MIB, available_memory, cuda_free, default_cap, find_cuda
from vlmcli.memory.facts import ModelFacts
from vlmcli.memory.presets import require_preset
from vlmcli.memory.remedies import CommandLine, plan_with_remedies
from vlmcli.memory.settings import DeviceKind, PageShape, Plan, PlanSettings
from vlmcli.options import DEFAULT_DPI, DEFAULT_MAX_PIXELS, DEFAULT_MODEL, parse_size
from vlmcli.processors import default_jobs

_A4_POINTS = (595.28, 841.89)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What `vlmcli plan` was asked. Sizes in bytes; None is an option that was not given."""

    inputs: tuple[str, ...]
    model: str = DEFAULT_MODEL
    pages: str | None = None
    password: str | None = None
    strict: bool = False
    dpi: int = DEFAULT_DPI
    max_pixels: int = DEFAULT_MAX_PIXELS
    max_tokens: int | None = None
    device: str = "auto"
    device_memory: str | None = None
    max_memory: int | None = None
    dtype: str = "auto"
    kv_dtype: str = "auto"
    vision_kv_dtype: str = "auto"
    vision_cache: int | None = None
    pages_in_flight: int = 16
    jobs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The plan, who set its cap, and documents that are not in it."""

    plan: Plan
    cap_source: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the job will run, how much memory it may take there, and who says so."""

    device: DeviceKind
    cap_bytes: int
    source: str
    is_given: bool


def make_plan(request: PlanRequest) -> PlanResult:
    """Measure the pages and plan the job.

    Raises:
        VlmcliError: the model is unknown, no document can be read, or an option makes no sense.
    """
    facts = find_facts(request.model)
    target = find_target(request.device, request.device_memory, request.max_memory)
    shapes, warnings = collect_pages(request)
    settings = PlanSettings(
        dpi=request.dpi,
        max_pixels=request.max_pixels,
        device=target.device,
        dtype=request.dtype,
        kv_dtype=request.kv_dtype,
        vision_kv_dtype=request.vision_kv_dtype,
        max_tokens=request.max_tokens,
        vision_cache=request.vision_cache,
        max_pages_in_flight=request.pages_in_flight,
        jobs=request.jobs or default_jobs(),
    )
    plan = plan_with_remedies(
        shapes,
        facts,
        with_calibration(settings, facts),
        target.cap_bytes,
        _command(request, target),
    )
    return PlanResult(plan=plan, cap_source=target.source, warnings=tuple(warnings))


def find_facts(model: str) -> ModelFacts:
    """The shapes of what `--model` names: the built-in model, a directory, or a published name.

    Raises:
        ModelError: there is no such model, or its configuration cannot be used.
    """
    path = built_in_path() if model == BUILT_IN else Path(model).expanduser()
    if path.is_dir():
        return facts_from_directory(path, model if model == BUILT_IN else path.resolve().name)
    return require_preset(model)


def with_calibration(settings: PlanSettings, facts: ModelFacts) -> PlanSettings:
    """The settings with what was measured for this model and device, if anything was."""
    key = calibration_key(facts, settings.device, settings.resolve_dtype(facts))
    measured = load_calibration(key)
    if measured is None:
        return settings
    return replace(settings, coefficients=measured, is_calibrated=True)


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
    available = available_memory() if gpu is None else gpu[0]
    place = "on this machine" if gpu is None else f"on GPU {index}"
    return Target(kind, default_cap(available), f"free {place}, less a margin", is_given=False)


def collect_pages(request: PlanRequest) -> tuple[list[PageShape], list[str]]:
    """Measured pages of all documents, and what could not be read; an A4 page without inputs.

    Raises:
        VlmcliError: none of the documents could be read: the first one's error.
    """
    if not request.inputs:
        width, height = _A4_POINTS
        page = PageHandle(
            document="A4", index=0, num_pages=1, width=width, height=height, unit="pt"
        )
        return [page], []
    shapes: list[PageShape] = []
    errors: list[VlmcliError] = []
    with closing(iter_sources(request.inputs)) as sources:
        for source in sources:
            try:
                shapes += _measure(source, request)
            except VlmcliError as error:
                errors.append(error)
    if errors and not shapes:
        raise errors[0]
    return shapes, [str(error) for error in errors]


def _measure(source: Source, request: PlanRequest) -> list[PageShape]:
    with open_document(source, password=request.password, strict=request.strict) as document:
        count = document.num_pages
        numbers = parse_pages(request.pages, count) if request.pages else range(1, count + 1)
        return [document.page(number - 1) for number in numbers]


def _command(request: PlanRequest, target: Target) -> CommandLine:
    """The command line that does the planned job, with the options that were given."""
    default = PlanRequest(inputs=())
    cap = target.cap_bytes if target.is_given else None
    given: dict[str, object] = {
        "--model": None if request.model == default.model else request.model,
        "--pages": request.pages,
        "--dpi": None if request.dpi == default.dpi else request.dpi,
        "--max-pixels": None if request.max_pixels == default.max_pixels else request.max_pixels,
        "--max-tokens": request.max_tokens,
        "--device": None if target.device == "cpu" else target.device,
        "--max-memory": None if cap is None else _size(cap),
        "--dtype": None if request.dtype == "auto" else request.dtype,
        "--kv-dtype": None if request.kv_dtype == "auto" else request.kv_dtype,
        "--vision-kv-dtype": None if request.vision_kv_dtype == "auto" else request.vision_kv_dtype,
        "--vision-cache": None if request.vision_cache is None else _size(request.vision_cache),
        "--jobs": request.jobs,
    }
    return CommandLine(
        words=("vlmcli", "ocr", *request.inputs) if request.inputs else ("vlmcli", "plan"),
        options={name: str(value) for name, value in given.items() if value is not None},
    )


def _size(size: int) -> str:
    """A size as an option's value: whole MiB where it is one."""
    return str(size) if size % MIB else f"{size // MIB}MiB"
