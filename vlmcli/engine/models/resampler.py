"""A perceiver resampler: learned vectors that look at a picture and leave as its tokens.

Whatever the size of the picture, their number is the same. Alayrac et al. 2022, "Flamingo", arXiv
2204.14198, section 3.1.1; Laurençon et al. 2024, "What matters when building vision-language
models?", arXiv 2405.02246, section 3.1.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlmcli.engine.config import ResamplerConfig
from vlmcli.engine.layers import (
    GatedMLP,
    Layer,
    Linear,
    PackedLinear,
    Part,
    WeightSlot,
    copy_slot,
    parameter,
)
from vlmcli.engine.models.vision import VisionRMSNorm
from vlmcli.kernels import Ops


class Latents(Layer):
    """The learned vectors that a picture's tokens begin as; the name is the tensor's own."""

    def __init__(self, num_latents: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = parameter(num_latents, hidden_size)

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """The one tensor, without a suffix."""
        yield name, copy_slot(self.weight)


class LatentAttention(nn.Module):
    """Latents of each image attend to its patches and to one another."""

    def __init__(self, config: ResamplerConfig) -> None:
        super().__init__()
        self.num_latents, self.head_dim = config.num_latents, config.head_dim
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = Linear(config.hidden_size, size, bias=False)
        parts = (Part("k_proj", kv_size), Part("v_proj", kv_size))
        self.kv_proj = PackedLinear(config.hidden_size, parts, bias=False)
        self.o_proj = Linear(size, config.hidden_size, bias=False)

    def forward(self, latents: Tensor, context: Tensor, lengths: Sequence[int]) -> Tensor:
        """[images · latents, hidden] and [N, hidden] to head outputs; the caller applies o_proj."""
        query = self.q_proj(latents).view(-1, self.num_latents, self.num_heads, self.head_dim)
        own = self._heads(self.kv_proj(latents), self.num_latents)
        seen, outputs, image, patch = self.kv_proj(context), [], 0, 0
        for length, members in groupby(lengths):
            count = len(list(members))
            of_patches = self._heads(seen[patch : patch + count * length], length)
            both = torch.cat((of_patches, own[image : image + count]), dim=1)
            key, value = both.transpose(1, 2).chunk(2, dim=1)
            out = F.scaled_dot_product_attention(
                query[image : image + count].transpose(1, 2), key, value, enable_gqa=True
            )
            outputs.append(out.transpose(1, 2).reshape(count * self.num_latents, -1))
            image, patch = image + count, patch + count * length
        return torch.cat(outputs)

    def _heads(self, kv: Tensor, length: int) -> Tensor:
        """[images, length, keys' and values' heads, head_dim]."""
        return kv.view(-1, length, 2 * self.num_kv_heads, self.head_dim)


class ResamplerLayer(nn.Module):
    """Attention and MLP, each behind a norm and added to the latents."""

    def __init__(self, config: ResamplerConfig, ops: Ops) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.norm_eps
        self.input_latents_norm = VisionRMSNorm(size, eps, ops)
        self.input_context_norm = VisionRMSNorm(size, eps, ops)
        self.self_attn = LatentAttention(config)
        self.post_attention_layernorm = VisionRMSNorm(size, eps, ops)
        self.mlp = GatedMLP(size, 4 * size, ops, bias=False)

    def forward(self, latents: Tensor, context: Tensor, lengths: Sequence[int]) -> Tensor:
        """Latents [images · latents, hidden] to the same, in place; context [N, hidden]."""
        heads = self.self_attn(
            self.input_latents_norm(latents), self.input_context_norm(context), lengths
        )
        latents = self.self_attn.o_proj.add_to(latents, heads)
        return self.mlp.add_to(latents, self.post_attention_layernorm(latents))


class Resampler(nn.Module):
    """Patches of several images to `num_latents` tokens each."""

    def __init__(self, config: ResamplerConfig, ops: Ops) -> None:
        super().__init__()
        self.latents = Latents(config.num_latents, config.hidden_size)
        self.layers = nn.ModuleList(ResamplerLayer(config, ops) for _ in range(config.num_layers))
        self.norm = VisionRMSNorm(config.hidden_size, config.norm_eps, ops)

    def forward(self, context: Tensor, lengths: Sequence[int]) -> Tensor:
        """[N, hidden] of images with these numbers of patches to [images · latents, hidden]."""
        latents = self.latents.weight.repeat(len(lengths), 1)
        for layer in self.layers:
            latents = layer(latents, context, lengths)
        tokens: Tensor = self.norm(latents)
        return tokens
