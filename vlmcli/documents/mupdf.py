"""The one place that imports PyMuPDF: lazily, without its layout model, and silent.

PyMuPDF 2 imports an ONNX layout model and onnxruntime where it finds them: 0.36 to 2 CPU seconds
and 85 to 139 MiB instead of 0.14 and 49. Nothing here needs them, so they are hidden during the
import.
"""

import re
import sys
from functools import lru_cache
from types import ModuleType

_HEAVY = ("pymupdf.layout", "pymupdf4llm")

# Words that MuPDF uses where something on a page is lost; its other messages are about how it
# copes.
_FAULT = re.compile(
    r"\berror\b|\bcannot\b|\bnot a stream\b|\bend of file\b|\bnon-page object\b|\bcorrupt", re.I
)


@lru_cache(maxsize=1)
def load() -> ModuleType:
    """The `pymupdf` module, imported on first use, its messages kept off stdout and stderr."""
    hidden = [name for name in _HEAVY if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        import pymupdf
    finally:
        for name in hidden:
            del sys.modules[name]
    pymupdf.TOOLS.mupdf_display_errors(False)
    pymupdf.TOOLS.mupdf_display_warnings(False)
    module: ModuleType = pymupdf
    return module


def errors() -> tuple[type[Exception], ...]:
    """What PyMuPDF raises on files that it cannot read: MuPDF's own kind and three of Python's."""
    return (load().mupdf.FzErrorBase, RuntimeError, ValueError, OSError)


def reason(error: BaseException) -> str:
    """MuPDF's own words: `code=7: cycle in page tree` says `cycle in page tree`."""
    text = str(error.__cause__ or error).strip()
    head, _, tail = text.partition(": ")
    return tail if head.startswith("code=") and tail else text or type(error).__name__


def take_warnings() -> tuple[str, ...]:
    """MuPDF's messages since the last call, each once, in order of appearance."""
    text: str = load().TOOLS.mupdf_warnings()
    return tuple(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def take_faults() -> tuple[str, ...]:
    """Those of `take_warnings` that tell of lost content, not of a font or of a repaired table."""
    return tuple(line for line in take_warnings() if _FAULT.search(line))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation of MuPDF's failed, which it reports like any other fault."""
    text = reason(error)
    return text.startswith(("malloc", "calloc", "realloc")) and "failed" in text


def drop_caches() -> None:
    """Let go of decoded images, fonts and the like: MuPDF would keep 256 MiB of them."""
    load().TOOLS.store_shrink(100)
