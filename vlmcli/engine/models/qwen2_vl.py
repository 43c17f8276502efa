"""Qwen2-VL: a vision tower with 2-D rotary positions, an MLP merger, a Qwen2 decoder with M-RoPE.

Covers every checkpoint of transformers' `qwen2_vl` type (Qwen2-VL, MinerU2.5, the built-in model).
Refuses sliding windows and scaled rotary embeddings, which no published OCR checkpoint of the
family uses. Wang et al. 2024, "Qwen2-VL", arXiv 2409.12191.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vlmcli.engine.config import (
    ModelConfig,
    ProcessorConfig,
    TextConfig,
    VisionConfig,
)
from vlmcli.engine.geometry import (
    ImageGeometry,
    SmartResizeConfig,
    qwen2_vl,
)
from vlmcli.engine.kv_cache import KVCache
from vlmcli.engine.layers import Linear
from vlmcli.engine.models.decoder import Decoder, StepInputs
from vlmcli.engine.models.learned_positions import LearnedPositions
from vlmcli.engine.models.parsing import (
    decoder_fields,
    faults_named,
    multimodal_rope,
    parse_processor,
    stored_dtype,
    tower_fields,
)
from vlmcli.engine.models.tower_inputs import Grid, TowerInputs
from vlmcli.engine.models.vision import (
    PatchEmbed,
    VisionBlock,
    VisionRotary,
    frame_ends,
    patch_places,
    vision_norm,
)
from vlmcli.engine.models.windows import window_order
from vlmcli.errors import ModelError
from vlmcli.kernels import Ops
from vlmcli.kernels.linear import linear
from vlmcli.kernels.upload import upload

CHAT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n<|vision_start|>",
    "<|vision_end|>{question}<|im_end|>\n<|im_start|>assistant\n",
)
"""What stands before and behind the tokens of a picture in the prompt."""


class PatchMerger(nn.Module):
    """`merge_size`² neighbouring patches to one token of the decoder's width."""

    def __init__(self, config: VisionConfig, ops: Ops, *, norm_merged: bool = False) -> None:
        super().__init__()
        self.width = config.hidden_size * config.merge_size**2
        size = self.width if norm_merged else None
        self.ln_q = vision_norm(config, ops, size, config.merger_norm_eps)
        self.norm_merged = norm_merged
        fc1, fc2 = Linear(self.width, self.width), Linear(self.width, config.out_hidden_size)
        self.mlp = nn.ModuleDict({"0": fc1, "2": fc2})

    def forward(self, x: Tensor) -> Tensor:
        """[N, hidden] to [N / merge_size², out_hidden]."""
        fc1 = self.mlp["0"]
        assert isinstance(fc1, Linear)
        x = self.ln_q(x.view(-1, self.width) if self.norm_merged else x)
        tokens: Tensor = self.mlp["2"](fc1.activated(x.view(-1, self.width), "gelu"))
        return tokens


class VisionTower(nn.Module):
    """Patches of several images to visual tokens."""

    def __init__(
        self, config: VisionConfig, processor: ProcessorConfig, ops: Ops, *, adjacent: bool
    ) -> None:
        super().__init__()
        self.config, self.merge_size = config, config.merge_size
        self.patch_embed = PatchEmbed(config, processor)
        self.patch_norm = vision_norm(config, ops) if config.has_patch_norm else None
        self.rotary = VisionRotary(config)
        self.blocks = nn.ModuleList(
            VisionBlock(config, ops, adjacent=adjacent) for _ in range(config.num_layers)
        )
        self.post_norm = vision_norm(config, ops) if config.has_post_norm else None
        self.merger = self.make_merger(config, ops)
        side, taps = config.position_side, config.deepstack_layers
        self.pos_embed = (
            LearnedPositions(side, config.hidden_size, centred=config.has_centred_positions)
            if side
            else None
        )
        self.deepstack_merger_list = nn.ModuleList(
            PatchMerger(config, ops, norm_merged=True) for _ in taps
        )

    @staticmethod
    def make_merger(config: VisionConfig, ops: Ops) -> nn.Module:
        """What turns patches into tokens; families with another one say so here."""
        return PatchMerger(config, ops)

    def forward(self, patches: Tensor, grids: Sequence[Grid]) -> Tensor:
        """[N, channels · size²] uint8 of images with the given grids to [tokens, embedding]."""
        return self.run(patches, self.prepare(grids))

    def prepare(self, grids: Sequence[Grid]) -> TowerInputs:
        """Positions, and who attends to whom, of images with these grids."""
        weight = self.patch_embed.colour
        places = np.concatenate([patch_places(grid, self.merge_size) for grid in grids])
        corners = None if self.pos_embed is None else self.pos_embed.prepare(places, grids)
        cos, sin = self.rotary(upload(places, weight.device), weight.dtype)
        ends = frame_ends(grids)
        if not self.config.window_cells:
            return TowerInputs(ends=ends, rope=(cos, sin), corners=corners)
        order, windows = window_order(grids, self.merge_size, self.config.window_cells)
        cells = upload(order, weight.device)
        rope = _by_cell(cos, cells), _by_cell(sin, cells)
        return TowerInputs(ends=ends, rope=rope, corners=corners, cells=cells, windows=windows)

    def run(self, patches: Tensor, inputs: TowerInputs) -> Tensor:
        """[N, channels · size²] uint8 of images that `inputs` describe to [tokens, embedding]."""
        x = self.patch_embed(patches)
        if self.patch_norm is not None:
            x = self.patch_norm(x)
        if self.pos_embed is not None and inputs.corners is not None:
            x.add_(self.pos_embed(*inputs.corners))
        if inputs.cells is not None:
            x = _by_cell(x, inputs.cells)
        taps = iter(self.deepstack_merger_list)
        features = []
        for i, block in enumerate(self.blocks):
            is_full = inputs.windows is None or i in self.config.full_attention_layers
            x = block(x, inputs.rope, inputs.ends if is_full else inputs.windows)
            if i in self.config.deepstack_layers:
                features.append(next(taps)(x))
        if self.post_norm is not None:
            x = self.post_norm(x)
        tokens: Tensor = self.merger(x)
        if inputs.cells is not None:
            tokens = torch.empty_like(tokens).index_copy_(0, inputs.cells, tokens)
        return torch.cat((tokens, *features), dim=1) if features else tokens


def _by_cell(rows: Tensor, cells: Tensor) -> Tensor:
    """[N, width] of patches, cells brought into another order."""
    return rows.view(len(cells), -1).index_select(0, cells).view(rows.shape)


class Qwen2VL(nn.Module):
    """The whole model; `visual` and `language_model` are its two halves."""

    def __init__(self, config: ModelConfig, ops: Ops, *, adjacent: bool) -> None:
        super().__init__()
        self.visual = self.make_tower(config, ops, adjacent=adjacent)
        self.model = Decoder(config.text, ops, adjacent=adjacent)
        self.lm_head = (
            None
            if config.text.tie_word_embeddings
            else Linear(
                config.text.hidden_size, config.text.vocab_size, bias=False, for_few_rows=True
            )
        )

    @staticmethod
    def make_tower(config: ModelConfig, ops: Ops, *, adjacent: bool) -> nn.Module:
        """The vision half; families with another one say so here."""
        return VisionTower(config.vision, config.processor, ops, adjacent=adjacent)

    def encode(self, patches: Tensor, grids: Sequence[Grid]) -> Tensor:
        """Visual tokens of several images, [tokens, hidden], one image behind the other."""
        tokens: Tensor = self.visual(patches, grids)
        return tokens

    def embed(self, input_ids: Tensor) -> Tensor:
        """[T] ids to [T, hidden]."""
        rows: Tensor = self.model.embed_tokens(input_ids)
        return rows

    def forward(self, step: StepInputs, cache: KVCache) -> Tensor:
        """Hidden states [R, hidden] of the wanted rows."""
        hidden: Tensor = self.model(step, cache)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[R, hidden] to [R, vocab] float32."""
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return linear(hidden, head.weight, None).float()


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """A `qwen2_vl` config.json, as written by transformers 4 (flat) or 5 (nested), made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know.
    """
    parse_text = partial(parse_qwen2_text, "qwen2_vl")
    return parse_with(parse_text, _parse_vision, "qwen2_vl", raw, processor)


def parse_with(
    parse_text: Callable[[dict[str, Any], dict[str, Any]], TextConfig],
    parse_vision: Callable[[dict[str, Any]], VisionConfig],
    model_type: str,
    raw: dict[str, Any],
    processor: dict[str, Any],
    limits: SmartResizeConfig | None = None,
) -> ModelConfig:
    """The config.json of a family with another tower; raises what `parse_config` does.

    `limits` hold where preprocessor_config.json says nothing.
    """
    text = raw.get("text_config") or raw
    with faults_named(model_type):
        vision = parse_vision(raw["vision_config"])
        return ModelConfig(
            model_type=model_type,
            text=parse_text(raw, text),
            vision=vision,
            processor=parse_processor(processor, vision, limits),
            image_token_id=int(raw.get("image_token_id", 151655)),
            vision_start_token_id=int(raw.get("vision_start_token_id", 151652)),
            vision_end_token_id=int(raw.get("vision_end_token_id", 151653)),
            dtype=stored_dtype(raw),
        )


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor; None for one that carries no weight.

    transformers 4 wrote `visual.…` and `model.layers.…`; 5 has `model.visual.…` and
    `model.language_model.…` in memory, and either on disk.
    """
    if name.endswith("rotary_emb.inv_freq"):
        return None
    for old, new in (("model.language_model.", "model."), ("model.visual.", "visual.")):
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def geometry(width: int, height: int, processor: ProcessorConfig) -> ImageGeometry:
    """Resized size, grid and token count of a picture of `width` × `height` pixels."""
    assert isinstance(processor.geometry, SmartResizeConfig)
    return qwen2_vl(width, height, processor.geometry)


def parse_qwen2_text(model_type: str, raw: dict[str, Any], text: dict[str, Any]) -> TextConfig:
    """The decoder's part of a config.json, `text`, within the whole, `raw`."""
    if text.get("use_sliding_window"):
        raise ModelError(f"sliding-window attention of {model_type} is not supported")
    if text.get("hidden_act", "silu") != "silu":
        raise ModelError(f"activation {text['hidden_act']!r} of {model_type} is not supported")
    shared = decoder_fields(text)
    hidden, heads = shared["hidden_size"], shared["num_heads"]
    tied = text.get("tie_word_embeddings") or raw.get("tie_word_embeddings")
    if hidden % heads:
        raise ModelError(f"hidden size {hidden} and {heads} heads do not agree")
    head_dim = hidden // heads
    return TextConfig(
        **shared,
        head_dim=head_dim,
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-5)),
        max_position_embeddings=int(text.get("max_position_embeddings", 32768)),
        rope=multimodal_rope(model_type, text, head_dim, theta=1e6, sections=(16, 24, 24)),
        qkv_bias=True,
        tie_word_embeddings=bool(tied),
    )


def _parse_vision(raw: dict[str, Any]) -> VisionConfig:
    activation = raw.get("hidden_act", "quick_gelu")
    if activation not in ("quick_gelu", "gelu", "silu"):
        raise ModelError(f"activation {activation!r} of the vision tower is not supported")
    width = int(raw["embed_dim"])
    return VisionConfig(
        hidden_size=width,
        intermediate_size=int(width * raw.get("mlp_ratio", 4)),
        out_hidden_size=int(raw["hidden_size"]),
        activation=activation,
        **tower_fields(raw, int(raw["patch_size"])),
    )
