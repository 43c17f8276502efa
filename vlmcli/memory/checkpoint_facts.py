"""The facts of a checkpoint directory, from its JSON files and the headers of its weight files.

Reads a few kilobytes of each weight file, never weights.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from vlmcli.engine.weight_formats import checkpoint_format
from vlmcli.errors import ModelError
from vlmcli.memory.facts import DTYPE_BYTES, ModelFacts
from vlmcli.memory.families import facts_from_config

_MAX_HEADER = 128 << 20
"""Bytes. The format allows no more than 100 MB."""
STORED_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8",
    "F8_E5M2": "float8",
    "I8": "int8",
    "U8": "int8",
}


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """What the headers say: numbers by dtype, and the bytes of the largest tensor."""

    counts: Mapping[str, int]
    largest_tensor_bytes: int

    @property
    def num_parameters(self) -> int:
        """Numbers of all dtypes."""
        return sum(self.counts.values())

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        sizes = {kind: DTYPE_BYTES.get(STORED_DTYPES.get(kind, ""), 8) for kind in self.counts}
        return sum(count * sizes[kind] for kind, count in self.counts.items())

    @property
    def dtype(self) -> str | None:
        """The dtype of most numbers; None for one that the engine does not have."""
        return STORED_DTYPES.get(max(self.counts, key=lambda kind: self.counts[kind]))


def facts_from_directory(path: Path, name: str) -> ModelFacts:
    """Shapes from `config.json`, parameters as stored, and how the model reads.

    Args:
        path: directory of a checkpoint in Hugging Face format.
        name: what the plan calls it.

    Raises:
        ModelError: a file is missing or broken, the family is unknown, or the weights are quantised
            in a way that is not AWQ's.
    """
    config = _read_json(path / "config.json")
    facts = facts_from_config(name, config, _preprocessor(path))
    draft_steps, draft_length = _draft_room(config)
    facts = replace(facts, draft_steps=draft_steps, draft_length=draft_length)
    reading = _read_optional(path / "vlmcli.json")
    if reading.get("reads") == "lines":
        facts = replace(
            facts,
            reads="lines",
            line_height=int(reading.get("line_height", facts.line_height)),
            max_line_width=int(reading.get("max_line_width", facts.max_line_width)),
        )
    stored = checkpoint_format(config)
    weights = stored_weights(path)
    if stored is not None:
        # Several of its numbers are one in the headers, so that the shapes must do.
        largest = weights.largest_tensor_bytes if weights else None
        return replace(facts, stored=stored, largest_tensor_bytes=largest)
    if weights is None:
        return facts
    return replace(
        facts,
        dtype=weights.dtype or facts.dtype,
        stored_parameters=weights.num_parameters,
        largest_tensor_bytes=weights.largest_tensor_bytes,
    )


def _draft_room(config: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Draft tokens in the prompt: per visual token, or for any picture."""
    head = config.get("draft_head")
    if not isinstance(head, Mapping) or not head.get("in_prompt"):
        return None, None
    steps, length = head.get("steps"), head.get("prompt_length")
    return (
        steps if isinstance(steps, int) else None,
        length if isinstance(length, int) else None,
    )


def _preprocessor(path: Path) -> Mapping[str, Any]:
    """The picture processor's settings, which newer checkpoints keep in `processor_config.json`."""
    own = _read_optional(path / "preprocessor_config.json")
    if own:
        return own
    nested = _read_optional(path / "processor_config.json").get("image_processor")
    return nested if isinstance(nested, Mapping) else {}


def stored_weights(path: Path) -> StoredWeights | None:
    """What the headers of a checkpoint's weight files say; None without any.

    Raises:
        ModelError: a header cannot be read.
    """
    counts: dict[str, int] = {}
    largest = 0
    for file in _weight_files(path):
        for dtype, shape in _tensors(file):
            count = prod(shape)
            counts[dtype] = counts.get(dtype, 0) + count
            largest = max(largest, count * DTYPE_BYTES.get(STORED_DTYPES.get(dtype, ""), 8))
    return StoredWeights(counts, largest) if counts else None


def _weight_files(path: Path) -> Iterator[Path]:
    yield from sorted(path.glob("*.safetensors"))
    yield from sorted(path.glob("draft/*.safetensors"))


def _tensors(file: Path) -> Iterator[tuple[str, list[int]]]:
    """(dtype, shape) of every tensor, from the JSON header behind its 8-byte little-endian size."""
    try:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(size)) if 0 < size <= _MAX_HEADER else None
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read the header of {file}: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"not a safetensors file: {file}")
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            yield str(entry["dtype"]), [int(side) for side in entry["shape"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"broken header of {file}: {name}") from error


def _read_optional(file: Path) -> dict[str, Any]:
    return _read_json(file) if file.is_file() else {}


def _read_json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"not a checkpoint: {file.parent} has no {file.name}",
            remedy="give a directory in Hugging Face format",
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}: {error}") from error
    if not isinstance(data, dict):
        raise ModelError(f"cannot read {file}: not a JSON object")
    return data
