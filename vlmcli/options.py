"""The settings of an `ocr` job: one frozen dataclass, resolved once; defaults stand here alone.

Plain data and parsers of option values; opens no file and imports nothing heavy.
"""

import re
from dataclasses import dataclass
from typing import Literal

from vlmcli.errors import UsageError

Format = Literal["text", "markdown", "jsonl", "hocr", "alto", "pdf", "dolma"]
ReuseMode = Literal["off", "exact", "verified", "similar"]
TextLayerMode = Literal["auto", "ignore", "only", "draft"]
ServerImage = Literal["png", "jpeg"]
ProgressMode = Literal["auto", "rich", "json", "none"]

DRAFT_SOURCES = ("text-layer", "near-duplicate", "draft-head", "ngram")
"""Where drafts come from: the page's own text (with `--text-layer draft`), the text of a similar or
an earlier page, the built-in model's draft head, the answer's own beginning."""

DEFAULT_MODEL = "nano"
DEFAULT_DPI = 200
DEFAULT_MAX_PIXELS = 25_000_000

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
    output: str | None = None
    """A file, a directory (exists, or ends with a slash), or None for stdout."""
    formats: tuple[Format, ...] = ("text",)
    model: str = DEFAULT_MODEL
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
    device: str = "auto"
    dtype: str = "auto"
    kv_dtype: str = "auto"
    vision_kv_dtype: str = "auto"
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
    resume: bool = False
    cache: bool = True
    overwrite: bool = False
    strict: bool = False
    fail_fast: bool = False
    progress: ProgressMode = "auto"
    stats: str | None = None
    quiet: bool = False
    verbose: int = 0


def draft_sources(text: str) -> frozenset[str]:
    """The sources of drafts that `auto`, `off` or a list such as `text-layer,ngram` stand for.

    Raises:
        UsageError: there is no such source.
    """
    if text in ("auto", "off"):
        return frozenset(DRAFT_SOURCES if text == "auto" else ())
    names = frozenset(name.strip() for name in text.split(","))
    if not names <= set(DRAFT_SOURCES):
        raise UsageError(
            f"no such source of drafts in {text!r}",
            remedy=f"give auto, off, or some of {','.join(DRAFT_SOURCES)}",
        )
    return names


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
