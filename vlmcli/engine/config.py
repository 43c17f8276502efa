"""What the engine is told (`EngineConfig`) and what a checkpoint says of itself (`ModelConfig`).

Frozen values, resolved once. Torch stays out: dtypes and devices are names here. Reading a family's
config.json is the business of its file under `engine/models`; this one holds the result.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vlmcli.engine.buckets import DECODE_BUCKETS, ENCODER_TOKENS, VERIFY_WIDTHS
from vlmcli.engine.geometry import (
    Idefics2Config,
    Idefics3Config,
    LlavaOneVisionConfig,
    PixtralConfig,
    SmartResizeConfig,
    TileConfig,
)
from vlmcli.engine.weight_formats import WeightFormat, decoder_format, tower_format
from vlmcli.errors import ModelError
from vlmcli.kernels import Activation

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
Geometry = (
    SmartResizeConfig
    | PixtralConfig
    | TileConfig
    | Idefics2Config
    | Idefics3Config
    | LlavaOneVisionConfig
)
KvDtypeName = Literal["auto", "float32", "bfloat16", "float16", "int8"]
BlockKind = Literal["vision", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Every bound of the engine. Pools are bounded in bytes, batches in tokens and sequences."""

    block_size: int = 16
    """KV tokens per block."""
    kv_cache_bytes: int = 64 << 20
    """All KV blocks of all layers together."""
    encoder_cache_bytes: int = 32 << 20
    """Visual embeddings that are resident: those still needed, and those kept for later requests
    that show the same image. A single larger one is held beside them while it is needed."""
    vision_cache_bytes: int = 16 << 20
    """Share of the KV pool that blocks of finished requests' image prefixes may keep."""
    swap_bytes: int = 0
    """Host memory, beside the pool, for what preempted sequences have computed, where copying it
    out and back is cheaper than computing it again."""
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 8192
    """Query tokens (prompt chunks, drafts and decode rows) in one step."""
    max_encoder_tokens: int = 4096
    """Visual tokens encoded in one step."""
    max_draft_tokens: int = 96
    """Draft tokens verified for one sequence in one step."""
    device: str = "cpu"
    dtype: DtypeName = "auto"
    """Weights, activations and KV; auto is float32 on the CPU, elsewhere the checkpoint's own."""
    kv_dtype: KvDtypeName = "auto"
    """KV blocks; auto is the model's, int8 has a float32 scale per token and head."""
    vision_kv_dtype: KvDtypeName = "auto"
    """KV blocks that hold image tokens alone; auto is `kv_dtype`."""
    quantize: tuple[str, ...] = ()
    """Modes of `--quantize`: matrices that are held in fewer bits than `dtype` has."""
    vision_kv_bytes: int | None = None
    """Share of the KV pool for blocks of image tokens, where these have a format of their own and
    so a pool of their own; None for half."""
    seed: int = 0
    enable_encoder_cache: bool = True
    """Whether embeddings stay when nobody needs them any more."""
    enable_prefix_caching: bool = True
    enable_drafts: bool = True
    """Whether drafts are verified at all: those of requests, and these two kinds."""
    draft_head: bool = True
    draft_own_output: bool = True
    enable_graphs: bool | None = None
    """Decode batches go through padded buckets, captured on CUDA and run eagerly on the CPU. None:
    on CUDA alone, since on the CPU the padding costs time and nothing is won but the tests."""
    decode_buckets: tuple[int, ...] = DECODE_BUCKETS
    """Numbers of sequences."""
    verify_widths: tuple[int, ...] = VERIFY_WIDTHS
    """Query rows of a sequence, beside one, that drafts are padded to; longer ones run eagerly."""
    encoder_graph_tokens: int = ENCODER_TOKENS
    """Visual tokens of the largest batch of tiles or small pictures that goes through buckets as
    well; 0 for none. Larger batches run eagerly."""
    encoder_graph_step: int | None = None
    """Visual tokens from one such bucket to the next, as 256; None to double them."""
    grey_pictures: bool = False
    """Whether these are in grey, as text lines are, and not in colour."""
    graph_bytes: int | None = None
    """Of all captured graphs; those that do not fit are dropped. None for as many as they take."""
    num_threads: int | None = None
    """Threads of torch; None leaves them as they are."""

    def __post_init__(self) -> None:
        for name in ("block_size", "max_num_seqs", "max_num_batched_tokens", "max_encoder_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("kv_cache_bytes", "encoder_cache_bytes", "vision_cache_bytes", "swap_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if not 0 <= (self.vision_kv_bytes or 0) <= self.kv_cache_bytes:
            raise ValueError("vision_kv_bytes must be a part of kv_cache_bytes")
        for name in ("decode_buckets", "verify_widths"):
            if sorted(set(getattr(self, name))) != list(getattr(self, name)):
                raise ValueError(f"{name} must ascend")
        step = 1 if self.encoder_graph_step is None else self.encoder_graph_step
        if self.encoder_graph_tokens < 0 or step < 1:
            raise ValueError("encoder_graph_tokens or encoder_graph_step is too small")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary positions: `sections` count the frequencies of time, row and column (M-RoPE)."""

    theta: float
    sections: tuple[int, ...] | None = None
    """None for plain 1-D positions."""
    is_interleaved: bool = False
    """Whether time, row and column take turns along the frequencies, instead of following."""
    dim: int | None = None
    """Elements of a head that turn, its first ones; None for all."""
    has_adjacent_pairs: bool = False
    """Whether a pair lies side by side in the checkpoint, instead of half of `dim` apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig:
    """A pre-norm decoder with grouped-query attention and a gated MLP."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope: RopeConfig
    qkv_bias: bool
    tie_word_embeddings: bool
    qk_norm: bool = False
    """Whether each head of queries and keys is normalised before it is rotated."""
    has_sandwich_norm: bool = False
    """Whether what attention and MLP give is normalised before it is added as well."""
    has_fused_gate_up: bool = False
    """Whether the checkpoint has the gate and the up projection as one tensor."""
    weights: WeightFormat | None = None
    """Of the matrices in the layers; None for the model's dtype."""

    @property
    def rotary_dim(self) -> int:
        """Elements of a head that turn."""
        return self.head_dim if self.rope.dim is None else self.rope.dim

    def kv_bytes_per_token(self, itemsize: int) -> int:
        """Key and value of one token over all layers, for elements of `itemsize` bytes."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class ResamplerConfig:
    """Sizes of a resampler; its width is the decoder's."""

    hidden_size: int
    num_latents: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig:
    """A pre-norm vision transformer over square patches, and the merger behind it."""

    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    out_hidden_size: int
    in_channels: int
    patch_size: int
    temporal_patch_size: int
    """Frames of a patch; 0 for a tower whose kernel knows pictures alone."""
    merge_size: int
    activation: Activation
    norm_eps: float
    rope_theta: float
    """0 for a tower without rotary positions."""
    norm: Literal["layer", "rms"] = "layer"
    has_block_bias: bool = True
    """Whether the products in the blocks have biases."""
    has_qkv_bias: bool = True
    """Whether queries, keys and values have them too, where the other products do."""
    has_split_qkv: bool = False
    """Whether the checkpoint names queries, keys and values separately."""
    has_axis_frequencies: bool = False
    """Whether rows and columns turn with frequencies of their own, taken in turns."""
    qk_norm: bool = False
    """Whether each head of queries and keys is normalised before it is rotated."""
    is_gated: bool = False
    """Whether the MLP is gated, as in the decoder; its activation is silu then."""
    weights: WeightFormat | None = None
    """Of the matrices in the blocks; None for the model's dtype."""
    window_cells: int = 0
    """Side of the windows within which patches attend, in merged cells; 0 for none."""
    full_attention_layers: tuple[int, ...] = ()
    """Layers that see the whole image in a tower with windows."""
    patch_bias: bool = False
    has_patch_norm: bool = False
    """Whether a norm stands between the patches' projection and the first block."""
    position_side: int = 0
    """Side of the square of learned positions, resampled to each image; 0 for none."""
    has_centred_positions: bool = False
    """Whether those stand for the centres of patches; else corners fall on corners."""
    has_post_norm: bool = False
    """Whether a norm stands between the last block and the merger."""
    merger_norm_eps: float | None = None
    """Of the merger's norm, where it is not `norm_eps`."""
    tile_side: int = 0
    """Patches along the side of a tile, where every image is a square of one size; 0 where not."""
    has_wide_qk_norm: bool = False
    """Whether queries and keys are normalised, each over all of their heads together."""
    has_merger_bias: bool = True
    """Whether the products behind a tower of tiles have biases."""
    deepstack_layers: tuple[int, ...] = ()
    """Layers whose output also reaches the decoder, added after its first layers in turn."""
    resampler: ResamplerConfig | None = None
    """What leaves the same number of tokens of every picture, instead of merging cells."""

    @property
    def embedding_size(self) -> int:
        """Numbers of a visual token on its way to the decoder."""
        return self.out_hidden_size * (1 + len(self.deepstack_layers))

    def token_grid(self, patches: tuple[int, int, int]) -> tuple[int, int, int]:
        """(frames, rows, columns) of an image's tokens, by those of its patches."""
        if self.resampler is not None:
            return 1, 1, self.resampler.num_latents
        frames, rows, columns = patches
        return frames, rows // self.merge_size, columns // self.merge_size

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorConfig:
    """How pixels become patches: `preprocessor_config.json`. Mean and std are per channel."""

    geometry: Geometry
    rescale_factor: float
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    resample: int
    """Pillow's number of the resampling filter; 3 is bicubic."""
    tile_cell_size: int = 1
    """Of a tiled family: patches along the side of what becomes one token."""

    @property
    def cell_size(self) -> int:
        """Patches along the side of the cells in whose order patches are sent; 1 for rows."""
        if isinstance(self.geometry, SmartResizeConfig):
            return self.geometry.merge_size
        return self.tile_cell_size


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHeadConfig:
    """A CTC draft head: every visual token is `steps` steps of `width` channels.

    A head of the older kind, a plain projection to slots, has no entry in config.json.
    """

    steps: int
    width: int
    reach: int
    """Steps to either side that a step's convolution sees."""
    prompt_length: int
    """Places that the draft has in the prompt, cut or padded; 0 where it is no part of it."""
    pad_token_id: int
    draft_end_token_id: int
    """Stands behind those places."""

    def in_prompt(self, draft: Sequence[int]) -> list[int]:
        """A draft as the prompt holds it: `prompt_length` tokens and the end."""
        kept = draft[: self.prompt_length]
        padding = [self.pad_token_id] * (self.prompt_length - len(kept))
        return [*kept, *padding, self.draft_end_token_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One checkpoint, parsed: what the runner, the scheduler and the reader need to know."""

    model_type: str
    """Family name in transformers."""
    text: TextConfig
    vision: VisionConfig
    processor: ProcessorConfig
    image_token_id: int
    vision_start_token_id: int = -1
    vision_end_token_id: int = -1
    """Of the marks around the picture of a line; −1 in families that read no lines."""
    eos_token_ids: tuple[int, ...] = ()
    """Stand in files beside config.json as well: the loader finds them."""
    dtype: str
    """The weights' own dtype, for `EngineConfig.dtype = "auto"` off the CPU."""
    draft_head: DraftHeadConfig | None = None
    """None where there is no draft head, or one of slots."""
    unread_weights: tuple[str, ...] = ()
    """Beginnings of the names of tensors that a checkpoint may hold beyond those of the model."""

    def quantised(self, modes: Sequence[str]) -> "ModelConfig":
        """The same model with matrices in the formats that these modes of `--quantize` stand for.

        Raises:
            ModelError: the checkpoint is quantised already.
        """
        vision = replace(self.vision, weights=tower_format(modes))
        stored = decoder_format(modes)
        if stored is None:
            return replace(self, vision=vision)
        if self.text.weights is not None:
            raise ModelError(
                f"the checkpoint is quantised already ({self.text.weights.kind})",
                remedy=f"leave out --quantize {stored.kind}",
            )
        return replace(self, text=replace(self.text, weights=stored), vision=vision)

    @property
    def uses_mrope(self) -> bool:
        """Whether image tokens have (time, row, column) positions."""
        return self.text.rope.sections is not None

    @property
    def num_draft_tokens(self) -> int:
        """Tokens by which the draft of its images lengthens a prompt; 0 where it does not."""
        head = self.draft_head
        return head.prompt_length + 1 if head is not None and head.prompt_length else 0


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from a file of a checkpoint.

    Raises:
        ModelError: the file is missing, unreadable, or holds no object.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"not a complete checkpoint: {file} is missing",
            remedy="give a directory in Hugging Face format",
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}: {error}") from error
    if not isinstance(data, dict):
        raise ModelError(f"cannot read {file}: not a JSON object")
    return data
