"""The ops for CUDA devices: a Triton kernel for each, under the names of `reference`.

Products of matrices are not here: torch's own library does them. Importing this imports Triton.
"""

from typing import Any

from vlmcli.kernels.paged_attention import paged_attention as paged_attention
from vlmcli.kernels.paged_plan import plan_decode as plan_decode
from vlmcli.kernels.paged_plan import plan_paged as plan_paged
from vlmcli.kernels.rms_norm import add_rms_norm as add_rms_norm
from vlmcli.kernels.rms_norm import rms_norm as rms_norm
from vlmcli.kernels.rotary import rotary_ as rotary_
from vlmcli.kernels.silu_and_mul import silu_and_mul as silu_and_mul
from vlmcli.kernels.store_kv import store_kv as store_kv
from vlmcli.kernels.varlen_attention import make_segments as make_segments
from vlmcli.kernels.varlen_attention import varlen_attention as varlen_attention
from vlmcli.kernels.w8a8_linear import w8a8_linear as w8a8_linear


def has_adjacent_rotary(dtype: Any, device_type: str) -> bool:
    """Never: pairs side by side win nothing on a GPU, so weights stay as they are."""
    del dtype, device_type
    return False
