"""Which models there are: families that run natively, checkpoints at hand, and if one is sound.

The table of families in the documentation is made here, so that it cannot say what is not so.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vlmcli.checkpoint import (
    BUILT_IN,
    Checkpoint,
    built_in_path,
    find_checkpoint,
    model_type_of,
)
from vlmcli.engine.models.registry import native_families, published_as
from vlmcli.errors import ModelError
from vlmcli.hub import cached_checkpoints
from vlmcli.memory.facts import ModelFacts
from vlmcli.memory.request import find_facts
from vlmcli.rapidocr import RAPIDOCR, find_rapidocr


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledModel:
    """A checkpoint that is there."""

    name: str
    path: Path
    model_type: str
    num_bytes: int

    @property
    def is_native(self) -> bool:
        """Whether the engine runs it."""
        return self.model_type in native_families()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What can be said of a checkpoint without loading it."""

    checkpoint: Checkpoint
    facts: ModelFacts
    num_bytes: int

    @property
    def is_native(self) -> bool:
        """Whether the engine runs it."""
        return self.checkpoint.model_type in native_families()


def families_by_type() -> dict[str, str]:
    """Model types that the engine runs, as transformers names them, and who is of them."""
    return {kind: published_as(kind) for kind in native_families()}


def installed_models() -> Iterator[InstalledModel]:
    """The built-in model, RapidOCR where it is, then those in the Hugging Face cache."""
    path = built_in_path()
    yield InstalledModel(
        name=BUILT_IN,
        path=path,
        model_type=model_type_of(path),
        num_bytes=_weight_bytes(path),
    )
    with contextlib.suppress(ModelError):
        files = find_rapidocr()
        yield InstalledModel(
            name=RAPIDOCR,
            path=files.detector.parent,
            model_type=RAPIDOCR,
            num_bytes=files.num_bytes,
        )
    for cached in cached_checkpoints():
        try:
            kind = model_type_of(cached.path)
        except ModelError:
            kind = "unreadable"
        yield InstalledModel(
            name=cached.name, path=cached.path, model_type=kind, num_bytes=cached.num_bytes
        )


def describe(model: str) -> ModelCard:
    """A checkpoint's family, revision and shapes.

    Raises:
        ModelError: it is not there, or its configuration cannot be used.
    """
    checkpoint = find_checkpoint(model)
    return ModelCard(
        checkpoint=checkpoint,
        facts=find_facts(model),
        num_bytes=_model_bytes(checkpoint),
    )


def verify(model: str) -> int:
    """Compare a checkpoint's weight files with its config.json, from their headers; loads torch.

    Returns:
        The number of weights, each of which is there once and has the right shape.

    Raises:
        ModelError: it is not there, of no native family, incomplete, or contradicts itself.
    """
    from vlmcli.engine.loader import check_weights

    if model == RAPIDOCR:
        raise ModelError(f"{RAPIDOCR} is a program with models of its own, no checkpoint")
    return check_weights(find_checkpoint(model).path)


def family_table() -> list[str]:
    """The families as lines of a Markdown table."""
    rows = [f"| `{kind}` | {names} |" for kind, names in families_by_type().items()]
    return ["| model type in `config.json` | published as |", "|---|---|", *rows]


def _model_bytes(checkpoint: Checkpoint) -> int:
    if checkpoint.model_type == RAPIDOCR:
        return find_rapidocr().num_bytes
    return _weight_bytes(checkpoint.path)


def _weight_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.safetensors"))
