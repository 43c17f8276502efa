"""dots.ocr written down a second time, straight from its formulas, as transformers has no class.

The decoder is transformers' `Qwen2ForCausalLM`; the tower is plain torch, a picture at a time, and
shares nothing with the engine. Parameters have the names of the published checkpoint. Importing
this registers the model with transformers, so that saving, loading and `generate` are its own.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForImageTextToText, Qwen2Config, Qwen2ForCausalLM


class DotsOcrConfig(Qwen2Config):
    """Qwen2's settings at the top, those of the tower as a plain dictionary."""

    model_type = "dots_ocr"
    vision_config: dict | None = None
    image_token_id: int = 151665
    attention_bias: bool = True


def root_mean_square(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """[N, heads, d], of which element i and i + d/2 turn together by [N, d/2] angles."""
    cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return root_mean_square(x, self.weight, self.eps)


class Patchifier(nn.Module):
    def __init__(self, vision: dict) -> None:
        super().__init__()
        size = vision["patch_size"]
        self.proj = nn.Conv2d(3, vision["embed_dim"], size, stride=size)
        self.norm = Norm(vision["embed_dim"], vision["rms_norm_eps"])

    def forward(self, patches: Tensor) -> Tensor:
        size = self.proj.kernel_size
        return self.norm(self.proj(patches.view(-1, 3, *size)).flatten(1))


class Attention(nn.Module):
    def __init__(self, vision: dict) -> None:
        super().__init__()
        width, bias = vision["embed_dim"], vision["use_bias"]
        self.heads = vision["num_attention_heads"]
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.proj = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        query, key, value = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)
        query, key = turned(query, angles), turned(key, angles)
        scores = torch.einsum("qhd,khd->hqk", query, key) / query.shape[-1] ** 0.5
        return self.proj(torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1))


class Gated(nn.Module):
    def __init__(self, vision: dict) -> None:
        super().__init__()
        width, inner, bias = vision["embed_dim"], vision["intermediate_size"], vision["use_bias"]
        self.fc1 = nn.Linear(width, inner, bias=bias)
        self.fc2 = nn.Linear(inner, width, bias=bias)
        self.fc3 = nn.Linear(width, inner, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.silu(self.fc1(x)) * self.fc3(x))


class Block(nn.Module):
    def __init__(self, vision: dict) -> None:
        super().__init__()
        width, eps = vision["embed_dim"], vision["rms_norm_eps"]
        self.norm1, self.norm2 = Norm(width, eps), Norm(width, eps)
        self.attn, self.mlp = Attention(vision), Gated(vision)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), angles)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    def __init__(self, vision: dict) -> None:
        super().__init__()
        self.width = vision["embed_dim"] * vision["spatial_merge_size"] ** 2
        self.ln_q = nn.LayerNorm(vision["embed_dim"], eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(self.width, self.width),
            nn.GELU(),
            nn.Linear(self.width, vision["hidden_size"]),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.ln_q(x).view(-1, self.width))


class Tower(nn.Module):
    def __init__(self, vision: dict) -> None:
        super().__init__()
        self.vision = vision
        self.patch_embed = nn.ModuleDict({"patchifier": Patchifier(vision)})
        self.blocks = nn.ModuleList(Block(vision) for _ in range(vision["num_hidden_layers"]))
        if vision["post_norm"]:
            self.post_trunk_norm = Norm(vision["embed_dim"], vision["rms_norm_eps"])
        self.merger = Merger(vision)

    def forward(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """One picture's patches, cell by cell, to its tokens."""
        x = self.patch_embed["patchifier"](patches)
        angles = self.angles(rows, columns)
        for block in self.blocks:
            x = block(x, angles)
        return self.merger(self.post_trunk_norm(x) if self.vision["post_norm"] else x)

    def angles(self, rows: int, columns: int) -> Tensor:
        """[patches, d/2]: the row turns the first half of them, the column the second."""
        side = self.vision["spatial_merge_size"]
        axis = self.vision["embed_dim"] // self.vision["num_attention_heads"] // 2
        speeds = 10000.0 ** -(torch.arange(0, axis, 2) / axis)
        places = [
            (cell_row + row, cell_column + column)
            for cell_row in range(0, rows, side)
            for cell_column in range(0, columns, side)
            for row in range(side)
            for column in range(side)
        ]
        return (torch.tensor(places).float().unsqueeze(-1) * speeds).flatten(1)


class DotsOcrForCausalLM(Qwen2ForCausalLM):
    """Qwen2 whose image tokens are replaced by what the tower says, in order."""

    config_class = DotsOcrConfig

    def __init__(self, config: DotsOcrConfig) -> None:
        super().__init__(config)
        self.vision_tower = Tower(config.vision_config)
        self.post_init()

    def forward(
        self, input_ids=None, inputs_embeds=None, pixel_values=None, image_grid_thw=None, **more
    ):
        """As Qwen2's; pictures are looked at while their tokens stand in `input_ids`."""
        if inputs_embeds is None:
            inputs_embeds = self.get_input_embeddings()(input_ids)
            is_image = input_ids == self.config.image_token_id
            if pixel_values is not None and is_image.any():
                grids = image_grid_thw[:, 1:].tolist()
                pieces = pixel_values.split([rows * columns for rows, columns in grids])
                tokens = [
                    self.vision_tower(piece, *grid)
                    for piece, grid in zip(pieces, grids, strict=True)
                ]
                inputs_embeds = inputs_embeds.masked_scatter(
                    is_image.unsqueeze(-1), torch.cat(tokens)
                )
        return super().forward(inputs_embeds=inputs_embeds, **more)


AutoConfig.register("dots_ocr", DotsOcrConfig)
AutoModelForImageTextToText.register(DotsOcrConfig, DotsOcrForCausalLM)
