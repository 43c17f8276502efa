"""The settings of an `ocr` job: one frozen dataclass, resolved once; defaults stand here alone.

Plain data and parsers of option values; opens no file and imports nothing heavy.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from vlmcli.errors import UsageError

Format = Literal["text", "markdown", "jsonl", "hocr", "alto", "pdf", "dolma"]
ReuseMode = Literal["off", "exact", "verified", "similar"]
TextLayerMode = Literal["auto", "ignore", "only", "draft"]
ServerImage = Literal["png", "jpeg"]
ProgressMode = Literal["auto", "rich", "json", "none"]
EngineName = Literal["native", "transformers"]
TaskName = Literal["text", "markdown", "table", "formula", "layout"]

DRAFT_SOURCES = ("text-layer", "near-duplicate", "draft-head", "ngram")
"""Where drafts come from: the page's own text (with `--text-layer draft`), the text of a similar or
an earlier page, the built-in model's draft head, the answer's own beginning."""
DRAFT_READERS = ("nano", "rapidocr")
"""Small readers that read a page first, so that a large model need only check it. Only where named:
what they cost depends on the machine, and so does whether that is less than they save."""

QUANTISATIONS = ("int8", "int4", "vit-int8")
"""Modes of `--quantize`: what the model's matrices are rounded to while they are loaded."""

DEFAULT_MODEL = "nano"
DEFAULT_DPI = 200
DEFAULT_MAX_PIXELS = 25_000_000
DEFAULT_FRAME_INTERVAL = 1.0
ASK_REUSE: ReuseMode = "exact"
"""Of questions, which may be about what two scans of one sheet do not have in common, so that only
pages with equal pixels share their answers."""

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OcrOptions:
    """What `vlmcli ocr` was asked to do. Sizes in bytes, times in seconds, counts as they are."""

    inputs: tuple[str, ...]
    question: tuple[str, ...] = ()
    """What every page is asked (`vlmcli ask`); none to have its text."""
    answer_schema: str | None = None
    """A JSON Schema, as JSON, that the answers to a page's questions must satisfy together."""
    output: str | None = None
    """A file, a directory (exists, or ends with a slash), or None for stdout."""
    formats: tuple[Format, ...] = ("text",)
    pdfa: bool = False
    """Whether searchable PDFs are PDF/A."""
    model: str = DEFAULT_MODEL
    engine: EngineName = "native"
    """What runs a checkpoint: our own engine, or transformers, which knows more families."""
    server: str | None = None
    """URL of a server that reads the pages, in place of an engine of our own."""
    server_concurrency: int | None = None
    """Pages with the server at a time; None for a few."""
    server_prompt: str | None = None
    """What the server is asked about every page; None for our own words."""
    server_image: ServerImage = "png"
    pages: str | None = None
    password: str | None = None
    dpi: int = DEFAULT_DPI
    max_pixels: int = DEFAULT_MAX_PIXELS
    frame_interval: float = DEFAULT_FRAME_INTERVAL
    """Seconds between the frames of a video that are pages."""
    device: str = "auto"
    dtype: str = "auto"
    kv_dtype: str = "auto"
    vision_kv_dtype: str = "auto"
    task: TaskName = "text"
    """What a model that takes instructions is to write down of every page."""
    quantize: tuple[str, ...] = ()
    """Some of `QUANTISATIONS`, in their order; see `parse_quantisations`."""
    text_layer: TextLayerMode = "auto"
    drafts: str = "auto"
    reuse: ReuseMode = "verified"
    max_tokens: int | None = None
    max_memory: int | None = None
    vision_cache: int | None = None
    page_timeout: float | None = None
    retries: int = 2
    jobs: int | None = None
    """Page workers (render, find lines); None chooses from the machine."""
    threads: int | None = None
    """Threads of the model; None chooses from the machine."""
    ray: str | None = None
    """The Ray cluster that reads the pages: `local`, `auto`, or an address; None for none."""
    ray_workers: int | None = None
    """Workers on the cluster; None for as many as there is room for."""
    resume: bool = False
    cache: bool = True
    overwrite: bool = False
    strict: bool = False
    fail_fast: bool = False
    progress: ProgressMode = "auto"
    stats: str | None = None
    quiet: bool = False
    verbose: int = 0
    config: bool = True
    """Whether configuration files may add to these settings; False where they have."""


def draft_sources(text: str) -> frozenset[str]:
    """The sources of drafts that `auto`, `off` or a list such as `text-layer,ngram` stand for.

    Raises:
        UsageError: there is no such source, or two readers are to read every page first.
    """
    if text in ("auto", "off"):
        return frozenset(DRAFT_SOURCES if text == "auto" else ())
    names = frozenset(name.strip() for name in text.split(","))
    if not names <= {*DRAFT_SOURCES, *DRAFT_READERS}:
        raise UsageError(
            f"no such source of drafts in {text!r}",
            remedy=f"give auto, off, or some of {','.join((*DRAFT_SOURCES, *DRAFT_READERS))}",
        )
    if names.issuperset(DRAFT_READERS):
        raise UsageError(
            "two readers to draft with", remedy=f"name one of {', '.join(DRAFT_READERS)}"
        )
    return names


def draft_reader(text: str) -> str | None:
    """The one of `DRAFT_READERS` that a value of `--drafts` names, if any."""
    return next((name for name in DRAFT_READERS if name in draft_sources(text)), None)


def parse_quantisations(texts: Iterable[str]) -> tuple[str, ...]:
    """The modes that `--quantize` names, each time one or several with commas between them.

    Returns:
        Each of them once, in the order of `QUANTISATIONS`.

    Raises:
        UsageError: there is no such mode, or two of them are for the same matrices.
    """
    names = {name.strip() for text in texts for name in text.split(",")}
    if not names <= set(QUANTISATIONS):
        unknown = ", ".join(sorted(names - set(QUANTISATIONS)))
        raise UsageError(
            f"no such quantisation: {unknown!r}",
            remedy=f"give some of {','.join(QUANTISATIONS)}",
        )
    if {"int8", "int4"} <= names:
        raise UsageError("the decoder cannot be int8 and int4 at once", remedy="give one of them")
    return tuple(name for name in QUANTISATIONS if name in names)


def parse_size(text: str) -> int:
    """Bytes from `512MiB`, `4GiB`, `2GB`, `1048576`.

    Raises:
        UsageError: not a size.
    """
    match = _SIZE.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or unit not in _UNITS:
        raise UsageError(
            f"not a size: {text!r}", remedy="write a number and a unit, as in 512MiB, 4GiB or 2GB"
        )
    return int(float(match[1]) * _UNITS[unit])


def format_size(size: int) -> str:
    """A size for people, in binary units: `126.0 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
