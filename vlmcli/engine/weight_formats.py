"""In which formats the matrices of a model can be held, and the bytes that each takes.

Imports no torch: the memory model counts with the same formulas as the engine allocates by. What
the numbers mean is said by `kernels.quantised`, which computes with them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vlmcli.errors import ModelError

WeightKind = Literal["int8", "int4", "awq", "w8a8"]
INT4_GROUP = 128
"""Inputs that share a scale and a zero where this program quantises to int4."""
_SCALE_BYTES, _ZERO_BYTES = 4, 1
_AWQ_BITS, _AWQ_VERSION = 4, "gemm"


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How a matrix is held: what `kind` says, by groups of `group_size` inputs where it has such.

    int8 and w8a8 hold a byte a number and a scale per output; with w8a8 the activations are rounded
    too. int4 and awq hold half a byte and a scale and a zero per output and group; they differ in
    the checkpoint alone, where awq is packed already.
    """

    kind: WeightKind
    group_size: int = INT4_GROUP

    @property
    def is_packed(self) -> bool:
        """Whether two numbers share a byte."""
        return self.kind in ("int4", "awq")


INT8, INT4, W8A8 = WeightFormat("int8"), WeightFormat("int4"), WeightFormat("w8a8")


def matrix_bytes(stored: WeightFormat, out_features: int, in_features: int) -> int:
    """Bytes of one matrix with its scales and zeros."""
    if not stored.is_packed:
        return out_features * (in_features + _SCALE_BYTES)
    groups = -(-in_features // stored.group_size)
    row = -(-in_features // 2) + groups * (_SCALE_BYTES + _ZERO_BYTES)
    return out_features * row


def decoder_format(modes: Iterable[str]) -> WeightFormat | None:
    """What the modes of `--quantize` make of the decoder's matrices; None for floating point."""
    return next((one for one in (INT8, INT4) if one.kind in modes), None)


def tower_format(modes: Iterable[str]) -> WeightFormat | None:
    """What the modes of `--quantize` make of the vision tower's matrices."""
    return W8A8 if "vit-int8" in modes else None


def checkpoint_format(config: Mapping[str, Any]) -> WeightFormat | None:
    """How a checkpoint holds its decoder's matrices, by its config.json; None for floating point.

    Raises:
        ModelError: they are quantised in a way that is not AWQ's with 4 bits, in its gemm layout
            with zeros.
    """
    text = config.get("text_config")
    nested = text.get("quantization_config") if isinstance(text, Mapping) else None
    found = config.get("quantization_config") or nested
    if not found:
        return None
    method = found.get("quant_method") if isinstance(found, Mapping) else found
    if not isinstance(found, Mapping) or method != "awq":
        raise _unsupported(f"by the method {method!r}")
    bits = found.get("bits", found.get("w_bit", _AWQ_BITS))
    version = str(found.get("version", _AWQ_VERSION)).lower()
    if bits != _AWQ_BITS:
        raise _unsupported(f"by AWQ with {bits} bits")
    if version != _AWQ_VERSION:
        raise _unsupported(f"by AWQ in its layout {version!r}")
    if not found.get("zero_point", True):
        raise _unsupported("by AWQ without zero points")
    group_size = found.get("group_size", found.get("q_group_size", INT4_GROUP))
    if not isinstance(group_size, int) or group_size < 1:
        raise _unsupported(f"by AWQ in groups of {group_size!r}")
    return WeightFormat("awq", group_size)


def _unsupported(how: str) -> ModelError:
    return ModelError(
        f"the checkpoint is quantised {how}",
        remedy="give its unquantised original, or one in AWQ's 4-bit gemm format; "
        "--quantize int8 and int4 quantise while loading",
    )
