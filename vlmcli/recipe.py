"""The recipe of a job: everything besides a page's pixels that could change what is read in it.

A kept result is used only where the recipe is the same to the last bit. What is in doubt is part of
it: a needless reading costs time, a stale result is a wrong text. So it also has the digest of the
code that makes a text out of pixels, and the versions of the libraries that compute.
"""

import hashlib
import sys
from functools import cache
from pathlib import Path

from vlmcli.checkpoint import ReadingModel
from vlmcli.journal import RESULT_OPTIONS
from vlmcli.options import EngineName, OcrOptions
from vlmcli.reuse.entries import Recipe

_SEEN_IN_PIXELS = frozenset(
    {"pages", "dpi", "max_pixels", "frame_interval", "strict", "text_layer", "reuse"}
)
"""Options that decide which pixels a page has and who answers it, not what is read in them."""
_OWN_ENTRIES = frozenset({"device", "dtype"})
_READING_CODE = (
    *("documents", "engine", "kernels", "readers", "remote", "markup"),
    *("reading.py", "answering.py", "answers.py", "assemble.py", "joining.py", "loops.py"),
    *("rapidocr.py", "strip.py"),
)
_LIBRARIES = ("torch", "numpy", "opencv-python-headless", "tokenizers")


def job_recipe(options: OcrOptions, model: ReadingModel) -> bytes:
    """The digest of the job's recipe, 32 bytes.

    Drafts, number of workers and memory are absent: they cannot change a text.
    """
    task = [
        f"{name}={getattr(options, name)}"
        for name in (*RESULT_OPTIONS, "retries")
        if name not in _SEEN_IN_PIXELS | _OWN_ENTRIES
    ]
    return Recipe(
        model=model.identity,
        task=" ".join(task),
        resolution=f"{model.line.height} x {model.line.max_width}",
        dtype=options.dtype,
        device=options.device,
        reader=f"{model.reads} {model.model_type}",
        code=code_digest(),
        libraries=_libraries(options.engine),
    ).digest()


@cache
def code_digest() -> str:
    """SHA-256 over the sources that turn pixels into text: a changed reader is another reader."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _READING_CODE:
        place = root / name
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        for file in files:
            data = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _libraries(engine: EngineName) -> str:
    names = _LIBRARIES if engine == "native" else (*_LIBRARIES, "transformers", "pillow")
    return " ".join(f"{name}={_version(name)}" for name in names)


def _version(name: str) -> str:
    """The installed version, from the name of its metadata; `importlib.metadata` takes 2 MiB."""
    pattern = f"{name.replace('-', '_')}-*.dist-info"
    for folder in sys.path:
        for found in Path(folder).glob(pattern):
            return found.stem.partition("-")[2]
    return "unknown"
