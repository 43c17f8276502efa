"""The vision transformer of every family: pre-norm blocks over packed patches of several images.

Patches of all images lie one behind the other, sorted by image size, and attend only within their
image. Resizing, prompts and positions of the tokens that come out are not its business.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from vlmcli.engine.config import ProcessorConfig, VisionConfig
from vlmcli.engine.layers import (
    GatedMLP,
    HeadNorm,
    Layer,
    LayerNorm,
    Linear,
    PackedLinear,
    Part,
    RMSNorm,
    WeightSlot,
    copy_slot,
    inverse_frequencies,
    parameter,
    rotary_order,
)
from vlmcli.engine.models.tower_inputs import Grid, Rope
from vlmcli.kernels import Ops
from vlmcli.kernels.linear import linear
from vlmcli.kernels.segments import Ends


class PatchEmbed(Layer):
    """uint8 patches to vectors: normalisation and the projection over two equal frames in one.

    The checkpoint's kernel covers `temporal_patch_size` frames. A picture repeats one frame, so the
    kernel's slices are summed and the frame is sent once. For a grey picture, whose channels are
    equal, the channels are summed as well, each with its own mean and deviation.
    """

    def __init__(self, config: VisionConfig, processor: ProcessorConfig) -> None:
        super().__init__()
        channels, size = config.in_channels, config.patch_size
        self.config, self.rescale = config, processor.rescale_factor
        self.colour = parameter(config.hidden_size, channels * size * size)
        self.grey = parameter(config.hidden_size, size * size)
        self.grey_bias = parameter(config.hidden_size)
        self.bias = parameter(config.hidden_size) if config.patch_bias else None
        mean, std = (
            torch.tensor(x, dtype=torch.float32, device="cpu").repeat_interleave(size * size)
            for x in (processor.image_mean, processor.image_std)
        )
        self.divisor: Tensor | None
        self.register_buffer("divisor", exact_divisor(self.rescale), persistent=False)
        self.mean = nn.Buffer(mean, persistent=False)
        self.std = nn.Buffer(std, persistent=False)

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """The one kernel, [hidden, channels, frames, size, size], or without frames."""
        config = self.config
        frames = (config.temporal_patch_size,) if config.temporal_patch_size else ()
        size = config.patch_size
        shape = (config.hidden_size, config.in_channels, *frames, size, size)
        yield f"{name}.proj.weight", WeightSlot(shape, self._fill)
        if self.bias is not None:
            yield f"{name}.proj.bias", copy_slot(self.bias)

    def forward(self, patches: Tensor) -> Tensor:
        """[N, channels · size²] or grey [N, size²], uint8, to [N, hidden]."""
        dtype = self.colour.dtype
        if patches.shape[1] == self.grey.shape[1] != self.colour.shape[1]:
            centred = patches.to(torch.float32).mul_(self.rescale).sub_(0.5)
            bias = self.grey_bias if self.bias is None else self.grey_bias + self.bias
            return linear(centred.to(dtype), self.grey, bias)
        return linear(self.normalised(patches).to(dtype), self.colour, self.bias)

    def normalised(self, patches: Tensor) -> Tensor:
        """[N, channels · size²] uint8 to float32, bit by bit what `preprocess.normalise` gives."""
        if self.divisor is None:
            scaled = patches.to(torch.float64).mul_(self.rescale).to(torch.float32)
        else:
            scaled = patches.to(torch.float32).div_(self.divisor)
        return scaled.sub_(self.mean).div_(self.std)

    def _fill(self, kernel: Tensor) -> None:
        frames = kernel.float().sum(dim=2) if kernel.ndim == 5 else kernel.float()
        self.colour.copy_(frames.flatten(1))
        area = self.grey.shape[1]
        mean, std = (x.cpu()[::area].view(1, -1, 1, 1) for x in (self.mean, self.std))
        # (x − mean_c) / std_c = (x − ½) / std_c + (½ − mean_c) / std_c, summed over channels c.
        self.grey.copy_((frames / std).sum(dim=1).flatten(1))
        self.grey_bias.copy_((frames * ((0.5 - mean) / std)).sum(dim=(1, 2, 3)))


def exact_divisor(rescale: float) -> Tensor | None:
    """A float32 that bytes are divided by to get `float32(float64(byte) · rescale)`; None if none.

    A product with `float32(rescale)` is another number for half of all bytes, and float64 takes
    twice the memory.
    """
    levels = torch.arange(256, dtype=torch.float64, device="cpu")
    divisor = torch.tensor(1.0 / rescale, dtype=torch.float32, device="cpu")
    is_exact = torch.equal(levels.float() / divisor, (levels * rescale).float())
    return divisor if is_exact else None


class VisionAttention(nn.Module):
    """Bidirectional self-attention within each image."""

    def __init__(self, config: VisionConfig, ops: Ops, *, adjacent: bool) -> None:
        super().__init__()
        self.ops, self.adjacent, self.num_heads = ops, adjacent, config.num_heads
        self.head_dim, self.scale = config.head_dim, config.head_dim**-0.5
        size, has_bias = config.hidden_size, config.has_block_bias
        heads = rotary_order(config.num_heads, config.head_dim, adjacent=adjacent)
        parts: tuple[Part, ...] = (
            Part("q_proj", size, heads),
            Part("k_proj", size, heads),
            Part("v_proj", size),
        )
        if not config.has_split_qkv:
            values = torch.arange(2 * size, 3 * size, device="cpu")
            order = None if heads is None else torch.cat((heads, heads + size, values))
            parts = (Part("qkv", 3 * size, order),)
        self.qkv = PackedLinear(
            size, parts, bias=has_bias and config.has_qkv_bias, stored=config.weights
        )
        self.proj = Linear(size, size, bias=has_bias, stored=config.weights)
        self.q_norm: HeadNorm | VisionRMSNorm | None = None
        self.k_norm: HeadNorm | VisionRMSNorm | None = None
        if config.qk_norm:
            order = rotary_order(1, config.head_dim, adjacent=adjacent)
            self.q_norm = HeadNorm(config.head_dim, config.norm_eps, order)
            self.k_norm = HeadNorm(config.head_dim, config.norm_eps, order)

    def forward(self, x: Tensor, rope: Rope, ends: Ends) -> Tensor:
        """[N, hidden] to head outputs [N, hidden]; the caller applies proj."""
        qkv = self.qkv(x).view(x.shape[0], -1, self.head_dim)
        query, key, value = qkv.chunk(3, dim=1)
        for heads, norm in ((query, self.q_norm), (key, self.k_norm)):
            if norm is not None:
                heads.copy_(self.ops.rms_norm(heads, norm.weight, norm.eps))
        if rope is not None:
            self.ops.rotary_(qkv[:, : 2 * self.num_heads], *rope, adjacent=self.adjacent)
        out = self.ops.varlen_attention(query, key, value, ends, self.scale)
        return out.flatten(1)


class VisionMLP(nn.Module):
    """fc2(activation(fc1(x)))."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.activation = config.activation
        hidden, inter = config.hidden_size, config.intermediate_size
        self.fc1 = Linear(hidden, inter, stored=config.weights)
        self.fc2 = Linear(inter, hidden, stored=config.weights)

    def forward(self, x: Tensor) -> Tensor:
        """[N, hidden] to [N, hidden]."""
        out: Tensor = self.fc2(self.fc1.activated(x, self.activation))
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual += mlp(x)`, in place."""
        return self.fc2.add_to(residual, self.fc1.activated(x, self.activation))


class VisionRMSNorm(RMSNorm):
    """Root-mean-square norm of a tower."""

    def __init__(self, hidden_size: int, eps: float, ops: Ops) -> None:
        super().__init__(hidden_size, eps)
        self.ops = ops

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return self.ops.rms_norm(x, self.weight, self.eps)


def vision_norm(
    config: VisionConfig, ops: Ops, size: int | None = None, eps: float | None = None
) -> LayerNorm | VisionRMSNorm:
    """The norm that the tower uses throughout, over its own width or `size`."""
    eps = config.norm_eps if eps is None else eps
    if config.norm == "rms":
        return VisionRMSNorm(size or config.hidden_size, eps, ops)
    return LayerNorm(size or config.hidden_size, eps)


class VisionBlock(nn.Module):
    """Attention and MLP, each behind a norm and added to the residual stream."""

    def __init__(self, config: VisionConfig, ops: Ops, *, adjacent: bool) -> None:
        super().__init__()
        self.norm1 = vision_norm(config, ops)
        self.attn = VisionAttention(config, ops, adjacent=adjacent)
        self.norm2 = vision_norm(config, ops)
        self.mlp = (
            GatedMLP(
                config.hidden_size,
                config.intermediate_size,
                ops,
                bias=config.has_block_bias,
                stored=config.weights,
            )
            if config.is_gated
            else VisionMLP(config)
        )

    def forward(self, x: Tensor, rope: Rope, ends: Ends) -> Tensor:
        """[N, hidden] to [N, hidden], in place; without `rope` no head turns."""
        x = self.attn.proj.add_to(x, self.attn(self.norm1(x), rope, ends))
        return self.mlp.add_to(x, self.norm2(x))


class VisionRotary(nn.Module):
    """2-D rotary positions: half of the frequencies turn with the row, half with the column."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        if config.has_axis_frequencies:
            frequencies = inverse_frequencies(config.rope_theta, config.head_dim).view(-1, 2).t()
        else:
            frequencies = inverse_frequencies(config.rope_theta, config.head_dim // 2)
        self.frequencies = nn.Buffer(frequencies.contiguous(), persistent=False)

    def forward(self, places: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """[N, 2] rows and columns of patches to cos and sin, each [N, head_dim/2]."""
        angles = (places.unsqueeze(-1) * self.frequencies).flatten(1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def patch_places(grid: Grid, merge_size: int) -> npt.NDArray[np.int32]:
    """[t·h·w, 2] row and column of each patch, in the order in which patches are sent.

    That order walks merged cells row by row, and within a cell its `merge_size`² patches.
    """
    frames, height, width = grid
    rows, columns = np.indices((height, width), dtype=np.int32)
    cells = (height // merge_size, merge_size, width // merge_size, merge_size)
    places = np.stack([x.reshape(cells).transpose(0, 2, 1, 3).ravel() for x in (rows, columns)], 1)
    return np.tile(places, (frames, 1))


def frame_ends(grids: Sequence[Grid]) -> npt.NDArray[np.int32]:
    """Cumulative patch counts; every frame attends within itself."""
    lens = [height * width for frames, height, width in grids for _ in range(frames)]
    return np.cumsum([0, *lens], dtype=np.int32)
