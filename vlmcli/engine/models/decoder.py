"""The text decoder of every family: pre-norm, grouped-query attention over paged KV, gated MLP.

Runs ragged batches: T query tokens of any number of sequences lie one behind the other, and the
attention plan knows where each begins. Holds no cache and no positions of its own.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vlmcli.engine.config import RopeConfig, TextConfig
from vlmcli.engine.kv_cache import KVCache, LayerKV
from vlmcli.engine.layers import (
    Embedding,
    GatedMLP,
    HeadNorm,
    Linear,
    PackedLinear,
    Part,
    RMSNorm,
    inverse_frequencies,
    rotary_order,
)
from vlmcli.kernels import Ops


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """Tensors of one forward pass of the decoder, on its device."""

    embeds: Tensor
    """[T, hidden]; overwritten by the pass."""
    positions: Tensor
    """[3, T] int64; three equal rows for 1-D positions."""
    slot_mapping: Tensor
    """[T] int64, −1 writes nowhere."""
    plan: Any
    """Attention plan of the ops."""
    rows: Tensor | None
    """[R] int64 rows whose hidden state is wanted, ascending; None for all."""
    deepstack: tuple[Tensor, Tensor] | None = None
    """[V] int64 rows of visual tokens, and [V, n, hidden]: what is added to them after each of the
    first n layers (DeepStack, Meng et al. 2024, arXiv 2406.04334)."""


class Rotary(nn.Module):
    """Positions to cosines and sines, 1-D or sectioned (M-RoPE, Qwen2-VL paper, section 2.1).

    `dim` elements of a head turn, all of them or its first ones.
    """

    def __init__(self, config: RopeConfig, dim: int) -> None:
        super().__init__()
        self.frequencies = nn.Buffer(inverse_frequencies(config.theta, dim), persistent=False)
        axes = _axes(config, dim // 2)
        self.axis = nn.Buffer(torch.tensor(axes, device="cpu"), persistent=False)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """[3, T] positions to cos and sin, each [T, dim/2]; angles are float32."""
        angles = positions.t().index_select(1, self.axis).mul(self.frequencies)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def _axes(config: RopeConfig, num_frequencies: int) -> list[int]:
    """Which position turns each frequency: 0 for time, 1 for row, 2 for column."""
    sections = config.sections or (num_frequencies,)
    assert sum(sections) == num_frequencies, "sections cover the frequencies of one head"
    if not config.is_interleaved:
        return [i % 3 for i, size in enumerate(sections) for _ in range(size)]
    axes = [0] * num_frequencies
    for axis in (1, 2):
        for i in range(axis, min(3 * sections[axis], num_frequencies), 3):
            axes[i] = axis
    return axes


class Attention(nn.Module):
    """Causal self-attention that reads and writes the paged cache."""

    def __init__(self, config: TextConfig, ops: Ops, *, adjacent: bool) -> None:
        super().__init__()
        self.ops, self.adjacent = ops, adjacent
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5
        self.rotary_dim = config.rotary_dim
        q_order, k_order, order = (
            rotary_order(
                num_heads,
                config.head_dim,
                adjacent=adjacent,
                stored=config.rope.has_adjacent_pairs,
                dim=config.rotary_dim,
            )
            for num_heads in (config.num_heads, config.num_kv_heads, 1)
        )
        kv_size = config.num_kv_heads * config.head_dim
        self.qkv_proj = PackedLinear(
            config.hidden_size,
            (
                Part("q_proj", config.num_heads * config.head_dim, q_order),
                Part("k_proj", kv_size, k_order),
                Part("v_proj", kv_size),
            ),
            bias=config.qkv_bias,
            stored=config.weights,
            for_few_rows=True,
        )
        self.o_proj = Linear(
            config.num_heads * config.head_dim,
            config.hidden_size,
            bias=False,
            stored=config.weights,
            for_few_rows=True,
        )
        self.q_norm = self.k_norm = None
        if config.qk_norm:
            eps = config.rms_norm_eps
            self.q_norm = HeadNorm(config.head_dim, eps, order)
            self.k_norm = HeadNorm(config.head_dim, eps, order)

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], kv: LayerKV, step: StepInputs
    ) -> Tensor:
        """[T, hidden] to head outputs [T, num_heads · head_dim]; the caller applies o_proj."""
        qkv = self.qkv_proj(x).view(x.shape[0], -1, self.head_dim)
        rotated = qkv[:, : self.num_heads + self.num_kv_heads, : self.rotary_dim]
        query, key, value = qkv.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)
        for heads, norm in ((query, self.q_norm), (key, self.k_norm)):
            if norm is not None:
                heads.copy_(self.ops.rms_norm(heads, norm.weight, norm.eps))
        self.ops.rotary_(rotated, *rope, adjacent=self.adjacent)
        self.ops.store_kv(key, value, *kv, step.slot_mapping)
        return self.ops.paged_attention(query, *kv, step.plan, self.scale).flatten(1)


class DecoderLayer(nn.Module):
    """Attention and MLP, each behind a norm and added to the residual stream.

    With sandwich norms, what they give is normalised before it is added.
    """

    def __init__(self, config: TextConfig, ops: Ops, *, adjacent: bool) -> None:
        super().__init__()
        self.ops = ops
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, ops, adjacent=adjacent)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(
            config.hidden_size,
            config.intermediate_size,
            ops,
            bias=False,
            fused=config.has_fused_gate_up,
            stored=config.weights,
            for_few_rows=True,
        )
        self.post_self_attn_layernorm = self.post_mlp_layernorm = None
        if config.has_sandwich_norm:
            self.post_self_attn_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
            self.post_mlp_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        x: Tensor,
        rope: tuple[Tensor, Tensor],
        kv: LayerKV,
        step: StepInputs,
        rows: Tensor | None,
    ) -> Tensor:
        """[T, hidden], changed in place; where `rows` are given, a new tensor of these alone."""
        normed = self._norm(x, self.input_layernorm)
        heads = self.self_attn(normed, rope, kv, step)
        if rows is not None:
            x, heads = x.index_select(0, rows), heads.index_select(0, rows)
        if self.post_self_attn_layernorm is None or self.post_mlp_layernorm is None:
            x = self.self_attn.o_proj.add_to(x, heads)
            return self.mlp.add_to(x, self._norm(x, self.post_attention_layernorm))
        x = x.add_(self._norm(self.self_attn.o_proj(heads), self.post_self_attn_layernorm))
        out = self.mlp(self._norm(x, self.post_attention_layernorm))
        return x.add_(self._norm(out, self.post_mlp_layernorm))

    def _norm(self, x: Tensor, norm: RMSNorm) -> Tensor:
        return self.ops.rms_norm(x, norm.weight, norm.eps)


class Decoder(nn.Module):
    """Embedding, layers, final norm; the language head is `lm_head` beside it."""

    def __init__(self, config: TextConfig, ops: Ops, *, adjacent: bool) -> None:
        super().__init__()
        self.ops = ops
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            DecoderLayer(config, ops, adjacent=adjacent) for _ in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary = Rotary(config.rope, config.rotary_dim)

    def forward(self, step: StepInputs, cache: KVCache) -> Tensor:
        """Normalised hidden states [R, hidden] of the wanted rows.

        The last layer's projections and MLP run on the wanted rows alone: the keys and values of
        the others are all that anybody will ever read of them.
        """
        x = step.embeds
        rope = self.rotary(step.positions, x.dtype)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x, rope, cache.layer(i), step, step.rows if i == last else None)
            if step.deepstack is not None and i < step.deepstack[1].shape[1]:
                rows, extra = step.deepstack
                x.index_add_(0, rows, extra[:, i])
        return self.ops.rms_norm(x, self.norm.weight, self.norm.eps)
