"""The engine's tensor operations behind one interface, `Ops`; `reference` defines each of them.

On CUDA devices `triton_ops` has a Triton kernel for each. Importing this package loads no torch.
Nothing under kernels knows requests, models or files.
"""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from vlmcli.kernels.kv_store import KVStore
    from vlmcli.kernels.segments import Ends, Segments

_log = logging.getLogger(__name__)
Activation = Literal["silu", "gelu", "gelu_tanh", "quick_gelu"]
"""Activation functions of plain MLPs."""


class Ops(Protocol):
    """What a set of kernels offers. Contracts (shapes, edge cases) stand in `kernels.reference`.

    A plan is what attention prepares once per step and uses in every layer; only the ops that made
    it know what is in it.
    """

    def rms_norm(self, x: "Tensor", weight: "Tensor", eps: float) -> "Tensor":
        """Root-mean-square norm over the last dimension."""

    def add_rms_norm(
        self, x: "Tensor", residual: "Tensor", weight: "Tensor", eps: float
    ) -> "Tensor":
        """Add `x` to `residual` in place, return the norm of the sum."""

    def has_adjacent_rotary(self, dtype: "Any", device_type: str) -> bool:
        """Whether weights should be laid out so that rotary pairs lie side by side."""

    def rotary_(self, x: "Tensor", cos: "Tensor", sin: "Tensor", *, adjacent: bool) -> None:
        """Rotate the pairs of each head in place."""

    def silu_and_mul(self, x: "Tensor") -> "Tensor":
        """`silu(x[:, :n]) * x[:, n:]`."""

    def store_kv(
        self,
        key: "Tensor",
        value: "Tensor",
        key_cache: "KVStore",
        value_cache: "KVStore",
        slot_mapping: "Tensor",
    ) -> None:
        """Write keys and values to their slots; slot −1 writes nowhere."""

    def plan_paged(
        self,
        block_tables: "npt.NDArray[np.int32]",
        context_lens: "npt.NDArray[np.int32]",
        cu_seqlens_q: "npt.NDArray[np.int32]",
        block_size: int,
        like: "Tensor",
    ) -> Any:
        """Prepare causal attention of a ragged batch over block tables."""

    def plan_decode(
        self,
        block_tables: "Tensor",
        context_lens: "Tensor",
        block_size: int,
        like: "Tensor",
        num_query: int = 1,
    ) -> Any:
        """Prepare some query rows per sequence, by tensor operations of fixed shape alone."""

    def paged_attention(
        self,
        query: "Tensor",
        key_cache: "KVStore",
        value_cache: "KVStore",
        plan: Any,
        scale: float,
    ) -> "Tensor":
        """Causal attention over the block tables of a plan."""

    def varlen_attention(
        self,
        query: "Tensor",
        key: "Tensor",
        value: "Tensor",
        cu_seqlens: "Ends",
        scale: float,
    ) -> "Tensor":
        """Bidirectional attention within each of several packed sequences."""

    def make_segments(
        self, num_rows: int, max_segments: int, head_dim: int, like: "Tensor"
    ) -> "Segments | None":
        """Room for the ends of packed sequences that a captured step reads when it runs."""

    def w8a8_linear(
        self, x: "Tensor", weight: "Tensor", scales: "Tensor", bias: "Tensor | None"
    ) -> "Tensor":
        """x · Wᵀ + b with int8 weights and activations, rounded row by row."""


def load_ops(device_type: str = "cpu") -> Ops:
    """The kernels for a type of device; imports torch, and Triton for CUDA devices.

    Where Triton is missing, plain torch does the work, with a warning: the same answers, slower.
    """
    from vlmcli.kernels import reference

    if device_type != "cuda":
        return reference
    if find_spec("triton") is None:
        _log.warning("Triton is not installed; attention runs in plain torch, which is slow")
        return reference
    from vlmcli.kernels import triton_ops

    return triton_ops
