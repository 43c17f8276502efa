"""What a model directory says about itself, without torch: enough to plan a job and key a cache.

Knows directories and JSON, no tensors. Whether the weights match their config is found out by the
engine's loader, later.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from vlmcli.errors import ModelError
from vlmcli.hub import READ_SUFFIXES, cached_path, is_hub_id
from vlmcli.paths import is_folder
from vlmcli.rapidocr import RAPIDOCR, find_rapidocr

BUILT_IN = "nano"
_CHUNK = 1 << 20
_WHOLE_FILE_LIMIT = 256 << 20
"""Weights up to this size are hashed whole; of larger files the header and the size must do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSpec:
    """How a line reader wants its crops, in pixels, and when it should look again."""

    height: int = 28
    max_width: int = 1120
    reread_below: float = 0.0
    """Confidence below which a line is looked at again, drawn a little otherwise; 0 for never."""
    words: str = ""
    """The model's file of words that lines in doubt may be mended by; none without."""


_USUAL_LINE = LineSpec()


class ReadingModel(Protocol):
    """Whatever reads a job's pages, as far as the job has to know it."""

    @property
    def label(self) -> str:
        """`model` of page records."""

    @property
    def identity(self) -> str:
        """What must be equal for two readings to be interchangeable."""

    @property
    def reads(self) -> Literal["lines", "page"]:
        """What it is given: lines or whole pages."""

    @property
    def line(self) -> LineSpec:
        """The lines that it wants."""

    @property
    def model_type(self) -> str:
        """Its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model that is there: where, which revision, and how it reads."""

    name: str
    path: Path
    revision: str
    model_type: str
    reads: Literal["lines", "page"]
    line: LineSpec
    quantised: tuple[str, ...] = ()
    """Modes of `--quantize` in which it is loaded; none as it is."""

    @property
    def label(self) -> str:
        """`model` of page records: name and revision, and how it was quantised: `nano@…+int8`."""
        return "+".join((f"{self.name}@{self.revision}", *self.quantised))

    @property
    def identity(self) -> str:
        """As the label: the revision is a hash of the files."""
        return self.label


def built_in_path() -> Path:
    """Directory of the model inside the package."""
    return Path(__file__).parent / "nano"


def checkpoint_path(model: str) -> Path | None:
    """Directory of the built-in model, a directory, or `owner/model` in the Hugging Face cache."""
    # Unlike pathlib's, which raises for users that there are not.
    path = built_in_path() if model == BUILT_IN else Path(os.path.expanduser(model))  # noqa: PTH111
    return path if is_folder(path) else cached_path(model)


def find_checkpoint(model: str, quantize: tuple[str, ...] = ()) -> Checkpoint:
    """The checkpoint that `--model` names: see `checkpoint_path`; or RapidOCR.

    Args:
        model: name or directory.
        quantize: modes of `--quantize` in which it will be loaded.

    Raises:
        ModelError: there is no such model, or its config cannot be read.
    """
    if model == RAPIDOCR:
        return _rapidocr()
    path = checkpoint_path(model)
    if path is None:
        remedy = f"give a directory with config.json and *.safetensors, or use '{BUILT_IN}'"
        if is_hub_id(model):
            remedy = f"fetch it: vlmcli models pull {model}"
        raise ModelError(f"model not found: {model}", remedy=remedy)
    reading = _read_json(path / "vlmcli.json") if (path / "vlmcli.json").is_file() else {}
    return Checkpoint(
        name=shown_name(model, path),
        path=path,
        revision=revision_of(path),
        model_type=model_type_of(path),
        reads="lines" if reading.get("reads") == "lines" else "page",
        line=LineSpec(
            height=int(reading.get("line_height", _USUAL_LINE.height)),
            max_width=int(reading.get("max_line_width", _USUAL_LINE.max_width)),
            reread_below=float(reading.get("reread_below", _USUAL_LINE.reread_below)),
            words=str(reading.get("words", _USUAL_LINE.words)),
        ),
        quantised=quantize,
    )


def _rapidocr() -> Checkpoint:
    files = find_rapidocr()
    return Checkpoint(
        name=RAPIDOCR,
        path=files.detector.parent,
        revision=files.revision(),
        model_type=RAPIDOCR,
        reads="page",
        line=_USUAL_LINE,
    )


def shown_name(model: str, path: Path) -> str:
    """What a checkpoint is called: as it was asked for; a directory by its own name."""
    return model if model == BUILT_IN or is_hub_id(model) else path.resolve().name


def model_type_of(path: Path) -> str:
    """The family of a checkpoint, as transformers names it.

    Raises:
        ModelError: there is no config.json, or it cannot be read.
    """
    return str(_read_json(path / "config.json").get("model_type", "unknown"))


def revision_of(path: Path) -> str:
    """Twelve hex digits over every file that can change what the model says.

    Configuration, tokenizer and weights are hashed; very large weight files by their safetensors
    header and size, since hashing them would take longer than loading.

    Raises:
        ModelError: a file cannot be read.
    """
    digest = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.suffix in READ_SUFFIXES)
    try:
        for file in files:
            digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
            _hash_file(digest, file)
    except OSError as error:
        raise ModelError(f"cannot read model file {error.filename}: {error.strerror}") from error
    return digest.hexdigest()[:12]


def _hash_file(digest: "hashlib._Hash", file: Path) -> None:
    limit = file.stat().st_size
    with file.open("rb") as stream:
        if limit > _WHOLE_FILE_LIMIT:
            limit = 8 + int.from_bytes(stream.read(8), "little")
            stream.seek(0)
        while limit > 0 and (block := stream.read(min(_CHUNK, limit))):
            digest.update(block)
            limit -= len(block)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"not a model directory: {file.parent} has no {file.name}",
            remedy="give a directory in Hugging Face format",
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}: {error}") from error
    if not isinstance(data, dict):
        raise ModelError(f"cannot read {file}: not a JSON object")
    return data
