"""The nano reader as a trainable module, named as Hugging Face names Qwen2-VL's weights.

One line of text, 28 px high, becomes one visual token every 28 px. A draft head on those tokens
guesses the line's bytes with CTC; the decoder gets the visual tokens and the draft in its prompt
and writes the line:

    <vision_start> image … <vision_end> draft bytes, padded … <draft_end> line bytes … <im_end>

The draft is padded to a fixed length, so that what comes next always lies equally far behind, give
or take the head's own errors: rotary attention finds it by distance. It does not read pages, and it
knows no other geometry than one row of tokens. A decoder without the draft in its prompt was given
up: it needs many times the training before it keeps its place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from attention import attend
from torch import Tensor, nn

IMAGE, VISION_START, VISION_END, END, BLANK, DRAFT_END = 256, 257, 258, 259, 260, 262
VOCABULARY = 264
PATCH, MERGE = 7, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NanoConfig:
    """Sizes of the tower, the decoder and the draft head; the defaults are the released model."""

    vision_width: int = 96
    vision_heads: int = 3
    vision_depth: int = 6
    width: int = 192
    heads: int = 3
    kv_heads: int = 1
    head_width: int = 64
    depth: int = 4
    intermediate: int = 512
    rope_theta: float = 10000.0
    mrope: tuple[int, int, int] = (8, 12, 12)
    draft_steps: int = 12
    draft_width: int = 96
    draft_reach: int = 4
    draft_length: int = 96


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class _VisionAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, count, width = x.shape
        qkv = self.qkv(x).view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
        mixed = attend(query, key, value.contiguous())
        return cast(Tensor, self.proj(mixed.transpose(1, 2).reshape(batch, count, width)))


class _VisionMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        return cast(Tensor, self.fc2(x * torch.sigmoid(1.702 * x)))


class _VisionBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.attn = _VisionAttention(width, heads)
        self.mlp = _VisionMlp(width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        return cast(Tensor, x + self.mlp(self.norm2(x)))


class _Merger(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        joined = width * MERGE * MERGE
        self.ln_q = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(joined, joined), nn.GELU(), nn.Linear(joined, out))


class _PatchEmbed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(PATCH * PATCH, width, bias=False)  # grey; a conv3d once exported


class VisionTower(nn.Module):
    """Pixels to visual tokens; also gives the columns before the merger, for the dense loss."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        width = config.vision_width
        self.head_width = width // config.vision_heads
        self.patch_embed = _PatchEmbed(width)
        self.blocks = nn.ModuleList(
            _VisionBlock(width, config.vision_heads) for _ in range(config.vision_depth)
        )
        self.merger = _Merger(width, config.width)

    def _rotary(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        span = torch.arange(MERGE, device=device)
        rows = span.view(1, MERGE, 1).expand(count, MERGE, MERGE).reshape(-1)
        columns = torch.arange(count * MERGE, device=device).view(count, 1, MERGE)
        columns = columns.expand(count, MERGE, MERGE).reshape(-1)
        half = self.head_width // 2
        inverse = 10000.0 ** -(torch.arange(0, half, 2, device=device).float() / half)
        angles = torch.cat((rows[:, None] * inverse, columns[:, None] * inverse), -1)
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """pixels [B, 28, W] in -1 … 1 → tokens [B, W/28, width], columns [B, W/7, 4·vision]."""
        batch, _, wide = pixels.shape
        count = wide // (PATCH * MERGE)
        x = pixels.view(batch, MERGE, PATCH, count, MERGE, PATCH).permute(0, 3, 1, 4, 2, 5)
        x = self.patch_embed.proj(x.reshape(batch, count * MERGE * MERGE, PATCH * PATCH))
        cos, sin = self._rotary(count, pixels.device)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = self.merger.ln_q(x)
        columns = x.view(batch, count, MERGE, MERGE, -1).transpose(2, 3)
        columns = columns.reshape(batch, count * MERGE, -1)
        return self.merger.mlp(x.view(batch, count, -1)), columns


class _Attention(nn.Module):
    """Grouped-query attention; while `watched`, head 0 leaves its scores [B, N, N] in `pointer`."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.config = config
        self.watched = False
        self.pointer: Tensor | None = None
        kv = config.kv_heads * config.head_width
        self.q_proj = nn.Linear(config.width, config.heads * config.head_width)
        self.k_proj = nn.Linear(config.width, kv)
        self.v_proj = nn.Linear(config.width, kv)
        self.o_proj = nn.Linear(config.heads * config.head_width, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, count, _ = x.shape
        c = self.config
        query = self.q_proj(x).view(batch, count, c.heads, c.head_width).transpose(1, 2)
        key = self.k_proj(x).view(batch, count, c.kv_heads, c.head_width).transpose(1, 2)
        value = self.v_proj(x).view(batch, count, c.kv_heads, c.head_width).transpose(1, 2)
        query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
        group = c.heads // c.kv_heads
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        if self.watched:
            self.pointer = (query[:, 0] @ key[:, 0].transpose(1, 2)) * c.head_width**-0.5
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return cast(Tensor, self.o_proj(mixed.transpose(1, 2).reshape(batch, count, -1)))


class _Mlp(nn.Module):
    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.width, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)))


class _RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-6)


class _Layer(nn.Module):
    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.input_layernorm = _RmsNorm(config.width)
        self.post_attention_layernorm = _RmsNorm(config.width)
        self.self_attn = _Attention(config)
        self.mlp = _Mlp(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return cast(Tensor, x + self.mlp(self.post_attention_layernorm(x)))


class _Decoder(nn.Module):
    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, config.width)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.depth))
        self.norm = _RmsNorm(config.width)


class DraftHead(nn.Module):
    """CTC over `draft_steps` steps a visual token; class BLANK is CTC's blank.

    The convolution looks over the borders of the tokens, so that a letter that lies on one is
    neither read twice nor lost.
    """

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        width, reach = config.draft_width, config.draft_reach
        self.steps = config.draft_steps
        self.fc1 = nn.Linear(config.width, config.draft_steps * width)
        self.conv = nn.Conv1d(width, width, 2 * reach + 1, padding=reach)
        self.fc2 = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [B, T, width] → logits [B, T·steps, VOCABULARY]."""
        batch, count, _ = tokens.shape
        hidden = F.gelu(self.fc1(tokens)).view(batch, count * self.steps, -1)
        hidden = hidden + F.gelu(self.conv(hidden.transpose(1, 2))).transpose(1, 2)
        return cast(Tensor, self.fc2(hidden))


class Nano(nn.Module):
    """Tower, decoder, draft head, and the column head that only training uses."""

    def __init__(self, config: NanoConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or NanoConfig()
        self.visual = VisionTower(config)
        self.model = _Decoder(config)
        self.draft_head = DraftHead(config)
        self.column_head = nn.Linear(MERGE * config.vision_width, VOCABULARY)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.visual.patch_embed.proj.weight, 0, 0.05)
        nn.init.normal_(self.draft_head.fc1.weight, 0, 0.07)
        nn.init.normal_(self.draft_head.fc2.weight, 0, 0.07)
        nn.init.zeros_(self.draft_head.conv.weight)
        nn.init.zeros_(self.draft_head.conv.bias)
        nn.init.normal_(self.model.embed_tokens.weight, 0, 0.02)

    def watch(self, layers: Sequence[int]) -> None:
        """Let head 0 of these decoder layers leave its scores behind; none ends it."""
        for index, layer in enumerate(self.model.layers):
            layer.self_attn.watched = index in layers
            layer.self_attn.pointer = None

    def pointers(self) -> list[Tensor]:
        """What the watched heads left in the last `decode`: scores [B, N, N] before softmax."""
        found = (layer.self_attn.pointer for layer in self.model.layers)
        return [scores for scores in found if scores is not None]

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        c = self.config
        steps = torch.arange(0, c.head_width, 2, device=positions.device).float() / c.head_width
        angles = positions[:, :, None].float() * (c.rope_theta**-steps)
        ends = list(itertools.accumulate(c.mrope))
        parts = [angles[axis, :, end - c.mrope[axis] : end] for axis, end in enumerate(ends)]
        angles = torch.cat((*parts, *parts), -1)
        return angles.cos(), angles.sin()

    def decode(self, tokens: Tensor, text: Tensor) -> Tensor:
        """Visual tokens [B, T, width] and text ids [B, N] → logits [B, N, VOCABULARY].

        Positions are Qwen2-VL's: the row of T image tokens counts T places along its columns,
        text follows one by one (transformers' `get_rope_index`).
        """
        batch, count, _ = tokens.shape
        embed = self.model.embed_tokens
        start = embed.weight[VISION_START].expand(batch, 1, -1).to(tokens.dtype)
        end = embed.weight[VISION_END].expand(batch, 1, -1).to(tokens.dtype)
        x = torch.cat((start, tokens, end, embed(text).to(tokens.dtype)), 1)
        places = torch.arange(count + 2 + text.shape[1], device=text.device)
        positions = places.expand(3, -1).clone()
        positions[:2, 1 : 1 + count] = 1
        cos, sin = self._rotary(positions)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return cast(Tensor, F.linear(self.model.norm(x)[:, 2 + count :], embed.weight))


def pad_draft(draft: bytes, length: int) -> list[int]:
    """The draft as the prompt holds it: `length` bytes and BLANKs, then DRAFT_END."""
    kept = draft[:length]
    return [*kept, *[BLANK] * (length - len(kept)), DRAFT_END]


@torch.no_grad()
def look_back(model: Nano, layers: Sequence[int], strength: float = 2.8, bands: int = 14) -> None:
    """Start head 0 of these layers as a look back by the draft's length.

    Rotary scores of two constant vectors depend on the distance alone; with the query's turned by
    the wanted distance they peak there: sum of strength² cos(frequency · (distance - wanted)).
    """
    c = model.config
    half = c.head_width // 2
    for index in layers:
        attention = cast(_Layer, model.model.layers[index]).self_attn
        for band in range(bands):
            angle = c.draft_length * c.rope_theta ** (-2 * band / c.head_width)
            attention.k_proj.bias[band] += strength
            attention.q_proj.bias[band] += strength * math.cos(angle)
            attention.q_proj.bias[band + half] -= strength * math.sin(angle)


def collapse(steps: list[int]) -> bytes:
    """CTC's best path as bytes: repeats merged, blanks and special tokens dropped."""
    return bytes(token for token, _ in itertools.groupby(steps) if token < 256)


def normalise(pixels: Tensor) -> Tensor:
    """uint8 pixels → -1 … 1, as preprocessor_config.json says."""
    return (pixels.float() / 255 - 0.5) / 0.5
