"""From a checkpoint directory to a filled model: strict, streaming, safetensors alone.

Names and shapes of all shards are checked against the model before a byte of weights is read; then
each tensor goes straight from the mapped file to its place. Runs no code of the checkpoint, opens
no pickles, downloads nothing.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from vlmcli.engine.config import DtypeName, KvDtypeName, ModelConfig, read_json
from vlmcli.engine.layers import WeightSlot, iter_slots, pack_for_batches
from vlmcli.engine.models.draft_head import CtcHead, DraftHead, SlotHead, parse_draft_head
from vlmcli.engine.models.registry import Model, find_family
from vlmcli.engine.weight_formats import checkpoint_format
from vlmcli.errors import ModelError
from vlmcli.kernels import Ops, load_ops
from vlmcli.kernels.quantised import Int8Weight

_FLOATS = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}
"""Bytes of a number by the format's name of its type."""
_PACKED = {"I32": 4}
"""The same for tensors with several numbers in one."""
_BATCH_BYTES = 64 << 20
"""Tensors that are read before their file is closed and mapped anew: pages of a mapped file count
as resident memory, and a file as large as the model must not stand beside the model."""
_STRIP_ROWS = 4096
_MAX_NAMED = 4
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor of a weight file, before it is read; `name` is its name there."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Size in the file."""
        return math.prod(self.shape) * (_FLOATS | _PACKED).get(self.dtype, 8)


def read_model_config(path: Path) -> ModelConfig:
    """The typed config of a checkpoint directory.

    Raises:
        ModelError: a file is missing or broken, the model type has no native family, or the weights
            are quantised in a way that is not AWQ's.
    """
    raw = read_json(path / "config.json")
    family = find_family(str(raw.get("model_type", "")))
    stored = checkpoint_format(raw)
    config = family.parse_config(raw, _read_processor(path))
    return replace(
        config,
        text=replace(config.text, weights=stored),
        eos_token_ids=_eos_token_ids(path, raw),
        draft_head=parse_draft_head(raw),
    )


def resolve_dtype(name: DtypeName, config: ModelConfig, device: torch.device) -> torch.dtype:
    """`auto` is float32 on the CPU, elsewhere the checkpoint's own; a name is itself."""
    if name != "auto":
        return _DTYPES[name]
    return torch.float32 if device.type == "cpu" else _DTYPES.get(config.dtype, torch.bfloat16)


def resolve_kv_dtype(name: KvDtypeName, otherwise: torch.dtype) -> torch.dtype:
    """The dtype in which KV is stored; `auto` is `otherwise`."""
    if name == "auto":
        return otherwise
    return torch.int8 if name == "int8" else _DTYPES[name]


def load_model(
    path: Path,
    config: ModelConfig,
    ops: Ops,
    dtype: torch.dtype,
    device: torch.device,
    *,
    for_batches: bool = False,
) -> Model:
    """Build the family's model and fill every parameter of it from the checkpoint.

    Args:
        path: checkpoint directory.
        config: of `read_model_config(path)`.
        ops: kernels that the model will call.
        dtype: of weights and activations.
        device: where they live.
        for_batches: whether several sequences will be decoded together: large matrices are then
            packed for that, in the memory that loading takes anyway.

    Raises:
        ModelError: there are no safetensors weights, or tensors are missing, unexpected, double, of
            the wrong shape, or not floating point; it names them.
    """
    family = find_family(config.model_type)
    entries = _scan(_weight_files(path), family.canonical_name)
    config = _head_as_stored(config, entries)
    with _building(dtype, device):
        model = family.build(config, ops, adjacent=ops.has_adjacent_rotary(dtype, device.type))
    assert isinstance(model, nn.Module)
    for part in model.modules():
        if isinstance(part, Int8Weight):
            part.ops = ops
    _fill(dict(iter_slots(model)), entries, path, _ignored(config))
    model.to(device).eval()
    if for_batches:
        largest = max(entry.num_bytes for entry in entries.values())
        pack_for_batches(model, max(_BATCH_BYTES, largest))
    return model


def check_weights(path: Path) -> int:
    """Hold a checkpoint's weight files against its config.json; reads their headers alone.

    Returns:
        The number of weights.

    Raises:
        ModelError: as `load_model` and `read_model_config`.
    """
    config = read_model_config(path)
    family = find_family(config.model_type)
    nowhere = torch.device("meta")
    with _building(torch.float32, nowhere):
        model = family.build(config, load_ops(), adjacent=False)
    assert isinstance(model, nn.Module)
    slots = dict(iter_slots(model))
    _require_match(slots, _scan(_weight_files(path), family.canonical_name), path, _ignored(config))
    load_draft_head(path, config, torch.float32, torch.device("cpu"))
    return len(slots)


def load_draft_head(
    path: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> DraftHead | None:
    """The draft head of `draft/model.safetensors`; None without one.

    Raises:
        ModelError: the file does not fit the model, or config.json promises a head and there is
            none.
    """
    file = path / "draft" / "model.safetensors"
    if config.draft_head is None and not file.is_file():
        return None
    entries = _scan([file], lambda name: name)
    hidden_size, vocab_size = config.text.hidden_size, config.text.vocab_size
    with _building(dtype, device):
        head: DraftHead
        if config.draft_head is not None:
            head = CtcHead(hidden_size, vocab_size, config.draft_head)
        else:
            weight = entries.get("draft_head.weight")
            num_slots = weight.shape[0] // vocab_size if weight is not None else 1
            head = SlotHead(hidden_size, vocab_size, max(1, num_slots))
    _fill(dict(iter_slots(nn.ModuleDict({"draft_head": head}))), entries, file.parent)
    return head


def _head_as_stored(config: ModelConfig, entries: Mapping[str, _Entry]) -> ModelConfig:
    """The config, untied where it says tied and the file has a head unlike the embedding.

    transformers 5 does the same: some published configs leave the key out, and the default of
    their class is not what their weights are.
    """
    head, embedding = entries.get("lm_head.weight"), entries.get("model.embed_tokens.weight")
    if not config.text.tie_word_embeddings or head is None or embedding is None:
        return config
    if head.shape == embedding.shape and _are_equal(head, embedding):
        return config
    return replace(config, text=replace(config.text, tie_word_embeddings=False))


def _are_equal(one: _Entry, other: _Entry) -> bool:
    """Whether two matrices of one shape hold the same numbers; read in strips."""
    with _open(one.file) as first, _open(other.file) as second:
        ours, theirs = first.get_slice(one.name), second.get_slice(other.name)
        strips = range(0, one.shape[0], _STRIP_ROWS)
        return all(
            torch.equal(ours[start : start + _STRIP_ROWS], theirs[start : start + _STRIP_ROWS])
            for start in strips
        )


def _ignored(config: ModelConfig) -> tuple[str, ...]:
    """Beginnings of the names of tensors that may be there and are not read."""
    head = ("lm_head.weight",) if config.text.tie_word_embeddings else ()
    return head + config.unread_weights


@contextmanager
def _building(dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    """Parameters made inside are of this dtype, on this device."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            yield
    finally:
        torch.set_default_dtype(before)


def _fill(
    slots: Mapping[str, WeightSlot],
    entries: Mapping[str, _Entry],
    folder: Path,
    ignored: tuple[str, ...] = (),
) -> None:
    _require_match(slots, entries, folder, ignored)
    for batch in _batches([(name, entries[name]) for name in slots]):
        with torch.no_grad(), _open(batch[0][1].file) as shard:
            for name, entry in batch:
                slots[name].fill(shard.get_tensor(entry.name))


def _require_match(
    slots: Mapping[str, WeightSlot],
    entries: Mapping[str, _Entry],
    folder: Path,
    ignored: tuple[str, ...],
) -> None:
    """Hold the tensors in the files of a folder against the slots.

    Raises:
        ModelError: they do not agree.
    """
    extra = [name for name in entries if name not in slots and not name.startswith(ignored)]
    missing = [name for name in slots if name not in entries]
    misshaped = [
        f"{name} is {list(entries[name].shape)}, not {list(slot.shape)}"
        for name, slot in slots.items()
        if name in entries and entries[name].shape != slot.shape
    ]
    problems = [
        f"{label}: {_listed(names)}"
        for label, names in (("missing", missing), ("unexpected", extra), ("misshaped", misshaped))
        if names
    ]
    if problems:
        raise ModelError(f"weights in {folder} do not match config.json: {'; '.join(problems)}")
    _check_dtypes(entries, slots)


def _batches(entries: list[tuple[str, _Entry]]) -> Iterator[list[tuple[str, _Entry]]]:
    """Tensors of one file each, up to `_BATCH_BYTES` of them, or one that is larger."""
    batch: list[tuple[str, _Entry]] = []
    for name, entry in sorted(entries, key=lambda item: (item[1].file, item[1].name)):
        size = sum(one.num_bytes for _, one in batch) + entry.num_bytes
        if batch and (batch[0][1].file != entry.file or size > _BATCH_BYTES):
            yield batch
            batch = []
        batch.append((name, entry))
    if batch:
        yield batch


def _scan(files: Iterable[Path], canonical_name: Callable[[str], str | None]) -> dict[str, _Entry]:
    """Names, shapes and dtypes out of the headers of weight files."""
    entries: dict[str, _Entry] = {}
    for file in files:
        with _open(file) as shard:
            for name in shard.keys():  # noqa: SIM118
                canonical = canonical_name(name)
                if canonical is None:
                    continue
                if canonical in entries:
                    raise ModelError(f"weight {canonical} stands twice in {file.parent}")
                view = shard.get_slice(name)
                entries[canonical] = _Entry(file, name, tuple(view.get_shape()), view.get_dtype())
    return entries


def _check_dtypes(entries: Mapping[str, _Entry], slots: Mapping[str, WeightSlot]) -> None:
    packed = {name for name, slot in slots.items() if slot.is_packed}
    others = [
        f"{name} ({entry.dtype})"
        for name, entry in entries.items()
        if entry.dtype not in (_PACKED if name in packed else _FLOATS)
    ]
    if others:
        raise ModelError(f"weights of a number format that is not supported: {_listed(others)}")


@contextmanager
def _open(file: Path) -> Iterator[Any]:
    try:
        with safe_open(str(file), framework="pt", device="cpu") as shard:
            yield shard
    except FileNotFoundError as error:
        raise ModelError(f"weight file is missing: {file}") from error
    except (SafetensorError, OSError) as error:
        raise ModelError(f"cannot read weights {file}: {error}") from error


def _weight_files(path: Path) -> list[Path]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ModelError(f"{index} has no weight_map")
        return [path / name for name in sorted(set(weight_map.values()))]
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise ModelError(
            f"no weights in {path}", remedy="the engine reads *.safetensors, no pickles"
        )
    return files


def _read_optional(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}


def _read_processor(path: Path) -> dict[str, Any]:
    """The image processor's settings: a file of their own, or part of transformers 5's one."""
    file = path / "preprocessor_config.json"
    if file.is_file():
        return read_json(file)
    nested = _read_optional(path / "processor_config.json").get("image_processor")
    return nested if isinstance(nested, dict) else {}


def _eos_token_ids(path: Path, raw: Mapping[str, Any]) -> tuple[int, ...]:
    """Stop tokens: those of generation_config.json, else of config.json."""
    generation = _read_optional(path / "generation_config.json")
    text = raw.get("text_config") or {}
    for source in (generation, raw, text):
        value = source.get("eos_token_id")
        if value is not None:
            return tuple(value) if isinstance(value, list) else (int(value),)
    return ()


def _listed(names: list[str]) -> str:
    rest = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")
