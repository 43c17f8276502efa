"""RapidOCR, where it is installed: which files it reads with, and how large a picture it looks at.

Plain facts, without importing it; `readers.rapid` reads with it and `memory.foreign` plans for it.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from vlmcli.errors import ModelError

RAPIDOCR = "rapidocr"
"""What `--model` calls it."""
MAX_SIDE = 2000
"""Longest side of the picture in which lines are looked for, in pixels: RapidOCR's own default."""
LEAST_SIDE = 736
"""Pictures with a shorter side are enlarged by its detector."""
MOST_LOPSIDED = 4
"""Longer side over shorter side; the shorter one is padded, or the detector would enlarge a strip
of 30 × 2000 pixels to 736 × 49,000."""
CELL = 32
"""Sides that the detector sees are multiples of this many pixels."""
_MODELS = ("*_det_*.onnx", "*_rec_*.onnx")
_REMEDY = "pip install 'vlmcli[rapidocr]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class RapidOcrFiles:
    """An installed RapidOCR: its two models."""

    detector: Path
    recogniser: Path

    @property
    def num_bytes(self) -> int:
        """Size of both models.

        Raises:
            ModelError: one cannot be read.
        """
        with _unreadable_named():
            return self.detector.stat().st_size + self.recogniser.stat().st_size

    def revision(self) -> str:
        """Twelve hex digits over the models and the versions of what runs them: reads the models.

        Raises:
            ModelError: one cannot be read.
        """
        digest = hashlib.sha256()
        for name in ("rapidocr", "onnxruntime"):
            digest.update(f"{name} {metadata.version(name)}\0".encode())
        with _unreadable_named():
            for path in (self.detector, self.recogniser):
                digest.update(path.name.encode() + b"\0")
                with path.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()[:12]


@contextmanager
def _unreadable_named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(f"cannot read model file {error.filename}: {error.strerror}") from error


def detector_size(width: int, height: int) -> tuple[int, int]:
    """Width and height of what the detector looks at, for a page of that size; all in pixels."""
    scale = min(1.0, MAX_SIDE / max(width, height))
    across, down = width * scale, height * scale
    across, down = max(across, down / MOST_LOPSIDED), max(down, across / MOST_LOPSIDED)
    enlarged = max(1.0, LEAST_SIDE / min(across, down))
    return _cells(across * enlarged) * CELL, _cells(down * enlarged) * CELL


def _cells(side: float) -> int:
    return max(1, round(side / CELL))


def find_rapidocr() -> RapidOcrFiles:
    """The installed RapidOCR.

    Raises:
        ModelError: it is not installed, or comes without its models.
    """
    if any(util.find_spec(name) is None for name in ("rapidocr", "onnxruntime")):
        raise ModelError("RapidOCR is not installed", remedy=_REMEDY)
    shipped = sorted(Path(str(file.locate())) for file in metadata.files("rapidocr") or ())
    found = [next((path for path in shipped if path.match(name)), None) for name in _MODELS]
    detector, recogniser = found
    if detector is None or recogniser is None:
        raise ModelError("the installed RapidOCR has no models", remedy=_REMEDY)
    return RapidOcrFiles(detector=detector, recogniser=recogniser)
