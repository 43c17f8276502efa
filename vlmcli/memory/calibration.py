"""Measured coefficients, kept on disk per model, device, number format and version.

A calibration is one JSON object in the user's cache folder. A missing or broken one is none: a plan
then uses its defaults and says so. Who measures is not decided here.
"""

import hashlib
import json
import os
from dataclasses import asdict, fields
from pathlib import Path

from vlmcli.errors import OutputError
from vlmcli.memory.estimate import Coefficients
from vlmcli.memory.facts import ModelFacts
from vlmcli.version import __version__


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/vlmcli`, or `~/.cache/vlmcli`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "vlmcli"


def calibration_key(facts: ModelFacts, device: str, dtype: str) -> str:
    """Sixteen hex digits that change with anything a measurement depends on."""
    shapes = (facts.model_type, asdict(facts.decoder), [asdict(tower) for tower in facts.towers])
    text = json.dumps([__version__, device, dtype, shapes, facts.num_parameters], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_calibration(key: str, folder: Path | None = None) -> Coefficients | None:
    """The stored coefficients; None if there are none that can be used."""
    file = (folder or cache_folder()) / f"calibration-{key}.json"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        values = {field.name: data[field.name] for field in fields(Coefficients)}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_sound = all(isinstance(value, int | float) and value >= 0 for value in values.values())
    return Coefficients(**values) if is_sound else None


def store_calibration(key: str, coefficients: Coefficients, folder: Path | None = None) -> Path:
    """Keep coefficients for later plans; the file appears whole or not at all.

    Raises:
        OutputError: the cache folder cannot be written.
    """
    folder = folder or cache_folder()
    file = folder / f"calibration-{key}.json"
    temporary = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(coefficients), indent=1), encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        raise OutputError(f"cannot write {file}: {error.strerror}") from error
    return file
