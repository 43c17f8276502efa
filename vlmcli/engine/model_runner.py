"""Tensors of one step: images to embeddings, token batches to logits.

The only part of the engine that holds weights and the KV pool. Decides nothing: what runs together
is the scheduler's choice, which token follows the sampler's. On the CPU, large batches are cut
into pieces whose activations stay in the processor's cache.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vlmcli.engine.batch import BatchInput
from vlmcli.engine.config import BlockKind, EngineConfig, ModelConfig
from vlmcli.engine.graph import DecodeInputs, GraphRunner
from vlmcli.engine.kv_cache import KVCache, bytes_per_block
from vlmcli.engine.layers import Linear
from vlmcli.engine.loader import load_draft_head, load_model, read_model_config, resolve_dtype
from vlmcli.engine.models.decoder import StepInputs
from vlmcli.engine.models.registry import Model
from vlmcli.engine.preprocess import pack
from vlmcli.engine.request import ImageInput
from vlmcli.kernels import Ops, load_ops

_CPU_ENCODE_PATCHES = 1536
"""Patches per encoder call on the CPU: more spill the cache, fewer pay for calls (measured)."""
_NO_GUESS = 256
"""Guesses of the draft head from this id up are no bytes: "nothing here" and special tokens."""


class ModelRunner:
    """A loaded checkpoint, ready to run steps. Make one with `from_checkpoint`."""

    def __init__(
        self,
        model: Model,
        model_config: ModelConfig,
        config: EngineConfig,
        ops: Ops,
        draft_head: Linear | None,
    ) -> None:
        self.model, self.model_config, self.config = model, model_config, config
        self.ops, self.draft_head = ops, draft_head
        self.device = torch.device(config.device)
        self.dtype = resolve_dtype(config.dtype, model_config, self.device)
        self.cache: KVCache | None = None
        self.graphs: GraphRunner | None = None

    @classmethod
    def from_checkpoint(cls, path: Path, config: EngineConfig) -> "ModelRunner":
        """Load a checkpoint directory. Sizes no pool: `allocate_kv` does.

        Raises:
            ModelError: the checkpoint is incomplete, unsupported, or contradicts its config.
        """
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        device = torch.device(config.device)
        model_config = read_model_config(path)
        dtype = resolve_dtype(config.dtype, model_config, device)
        ops = load_ops()
        model = load_model(path, model_config, ops, dtype, device)
        draft_head = load_draft_head(path, model_config.text.hidden_size, dtype, device)
        return cls(model, model_config, config, ops, draft_head)

    @property
    def hidden_size(self) -> int:
        """Width of a visual embedding."""
        return self.model_config.text.hidden_size

    @property
    def has_drafts(self) -> bool:
        """Whether the checkpoint brings a draft head."""
        return self.draft_head is not None

    def bytes_per_block(self, kind: BlockKind = "text") -> int:
        """Bytes of one KV block over all layers; vision and text blocks hold the same elements."""
        del kind
        return bytes_per_block(self.model_config.text, self.config.block_size, self.dtype)

    def bytes_per_embedding(self) -> int:
        """Bytes of one visual token's embedding."""
        return self.hidden_size * self.dtype.itemsize

    def allocate_kv(self, num_blocks: int) -> None:
        """Make the KV pool, the null block 0 counted in `num_blocks`, and the decode graphs."""
        text = self.model_config.text
        self.cache = KVCache.allocate(
            text, num_blocks, self.config.block_size, self.dtype, self.device
        )
        self.graphs = None
        wanted = self.config.enable_graphs
        if self.device.type == "cuda" if wanted is None else wanted:
            max_blocks = min(
                num_blocks - 1, -(-text.max_position_embeddings // self.config.block_size)
            )
            self.graphs = GraphRunner(
                self.model, self.ops, self.cache, self.config.decode_buckets, max_blocks
            )
            with torch.inference_mode():
                self.graphs.capture()

    @torch.inference_mode()
    def encode(self, images: Sequence[ImageInput]) -> list[Tensor]:
        """Visual tokens of each image, [num_tokens, hidden], in the order of `images`.

        Images of like size are taken together; what an image yields does not depend on the others.
        """
        order = sorted(range(len(images)), key=lambda i: _size_key(images[i].pixels))
        out: list[Tensor | None] = [None] * len(images)
        for members in self._encode_groups([images[i].pixels for i in order]):
            indices = [order[i] for i in members]
            patches, grids = pack([images[i].pixels for i in indices], self.model_config.processor)
            tokens = self.model.encode(torch.from_numpy(patches).to(self.device), grids)
            merge = self.model_config.vision.merge_size**2
            sizes = [int(np.prod(grid)) // merge for grid in grids]
            for i, piece in zip(indices, torch.split(tokens, sizes), strict=True):
                out[i] = piece
        return [piece for piece in out if piece is not None]

    @torch.inference_mode()
    def draft(self, embeds: Tensor) -> list[int] | None:
        """The draft head's guess at the text of one image: byte ids in order; None without a head.

        Args:
            embeds: [num_tokens, hidden], as `encode` gave them.
        """
        if self.draft_head is None:
            return None
        vocab = self.model_config.text.vocab_size
        slots = self.draft_head(embeds).view(-1, vocab).argmax(dim=-1).tolist()
        return [guess for guess in slots if guess < _NO_GUESS]

    @torch.inference_mode()
    def execute(self, batch: BatchInput) -> Tensor:
        """Run one step: write its keys and values, return float32 logits [R, vocab]."""
        assert self.cache is not None, "allocate_kv comes first"
        assert len(batch.input_ids) > 0, "a step without tokens makes no progress"
        if self._is_decode(batch):
            return self._decode(batch)
        embeds = self.model.embed(self._to_device(batch.input_ids))
        if len(batch.embed_rows):
            embeds.index_copy_(0, self._to_device(batch.embed_rows), torch.cat(tuple(batch.embeds)))
        plan = self.ops.plan_paged(
            batch.block_tables,
            batch.context_lens,
            batch.cu_seqlens_q,
            self.config.block_size,
            embeds,
        )
        step = StepInputs(
            embeds=embeds,
            positions=self._to_device(batch.positions),
            slot_mapping=self._to_device(batch.slot_mapping),
            plan=plan,
            rows=self._to_device(batch.logit_rows),
        )
        return self.model.logits(self.model(step, self.cache))

    def _is_decode(self, batch: BatchInput) -> bool:
        """One row per sequence, all logits wanted, no images, and a bucket that holds them."""
        num_seqs = len(batch.context_lens)
        return (
            self.graphs is not None
            and len(batch.input_ids) == len(batch.logit_rows) == num_seqs > 0
            and len(batch.embed_rows) == 0
            and bool((np.diff(batch.cu_seqlens_q) == 1).all())
            and self.graphs.bucket_for(num_seqs) is not None
        )

    def _decode(self, batch: BatchInput) -> Tensor:
        assert self.graphs is not None
        width = -(-int(batch.context_lens.max()) // self.config.block_size)
        inputs = DecodeInputs(
            input_ids=self._to_device(batch.input_ids),
            positions=self._to_device(batch.positions),
            slot_mapping=self._to_device(batch.slot_mapping),
            block_tables=self._to_device(batch.block_tables[:, :width]),
            context_lens=self._to_device(batch.context_lens),
        )
        return self.graphs.run(inputs)

    def _encode_groups(self, pixels: Sequence[np.ndarray]) -> list[list[int]]:
        """Neighbours of one kind, cut where a group would outgrow the processor's cache."""
        limit = _CPU_ENCODE_PATCHES if self.device.type == "cpu" else 1 << 30
        area = self.model_config.processor.geometry.patch_size**2
        groups: list[list[int]] = []
        total, kind = 0, -1
        for i, image in enumerate(pixels):
            patches = image.shape[0] * image.shape[1] // area
            if image.ndim != kind or total + patches > limit:
                groups.append([])
                total, kind = 0, image.ndim
            groups[-1].append(i)
            total += patches
        return groups

    def _to_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)


def _size_key(pixels: np.ndarray) -> tuple[int, ...]:
    """Grey before colour, then by area and shape, so that like sizes become neighbours."""
    return (pixels.ndim, pixels.shape[0] * pixels.shape[1], *pixels.shape[:2])
