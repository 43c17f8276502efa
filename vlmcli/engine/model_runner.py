"""Tensors of one step: images to embeddings, token batches to logits.

The only part of the engine that holds weights and the KV pool. Decides nothing: what runs together
is the scheduler's choice, which token follows the sampler's. On the CPU, large batches are cut
into pieces whose activations stay in the processor's cache.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vlmcli.engine.batch import BatchInput
from vlmcli.engine.buckets import encoder_buckets, make_buckets
from vlmcli.engine.capture import Capturer, CudaCapturer, EagerCapturer
from vlmcli.engine.config import BlockKind, EngineConfig, ModelConfig
from vlmcli.engine.correction import Steps
from vlmcli.engine.encoder_graph import EncoderGraphs
from vlmcli.engine.geometry import Mosaic
from vlmcli.engine.graph import GraphRunner
from vlmcli.engine.kv_cache import KVCache, SavedBlock, bytes_per_block
from vlmcli.engine.loader import (
    load_draft_head,
    load_model,
    read_model_config,
    resolve_dtype,
    resolve_kv_dtype,
)
from vlmcli.engine.models.decoder import StepInputs
from vlmcli.engine.models.draft_head import CtcHead, DraftHead
from vlmcli.engine.models.registry import Assembler, Model
from vlmcli.engine.models.tower_inputs import StaticTower
from vlmcli.engine.preprocess import Grid, Pixels, pack
from vlmcli.engine.request import ImageInput
from vlmcli.engine.side_stream import Ready, SideStream, Started
from vlmcli.engine.transfers import Transfers
from vlmcli.kernels import Ops, load_ops
from vlmcli.kernels.upload import upload

_CPU_ENCODE_PATCHES = 1536
"""Patches per call of encoder or draft head on the CPU: more spill the cache, fewer pay for calls
(measured)."""


class ModelRunner:
    """A loaded checkpoint, ready to run steps. Make one with `from_checkpoint`."""

    def __init__(
        self,
        model: Model,
        model_config: ModelConfig,
        config: EngineConfig,
        ops: Ops,
        draft_head: DraftHead | None,
    ) -> None:
        self.model, self.model_config, self.config = model, model_config, config
        self.ops, self.draft_head = ops, draft_head
        self.device = torch.device(config.device)
        self.dtype = resolve_dtype(config.dtype, model_config, self.device)
        text_dtype = resolve_kv_dtype(config.kv_dtype, self.dtype)
        self.kv_dtypes: dict[BlockKind, torch.dtype] = {
            "text": text_dtype,
            "vision": resolve_kv_dtype(config.vision_kv_dtype, text_dtype),
        }
        self.cache: KVCache | None = None
        self.graphs: GraphRunner | None = None
        self.encoder_graphs: EncoderGraphs | None = None
        self._side = SideStream(self.device) if self.device.type == "cuda" else None
        self._saved: dict[str, list[SavedBlock]] = {}
        """Blocks of preempted sequences, by request id."""

    @classmethod
    def from_checkpoint(cls, path: Path, config: EngineConfig) -> "ModelRunner":
        """Load a checkpoint directory. Sizes no pool: `allocate_kv` does.

        Raises:
            ModelError: the checkpoint is incomplete, unsupported, or contradicts its config.
        """
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        device = torch.device(config.device)
        model_config = read_model_config(path).quantised(config.quantize)
        dtype = resolve_dtype(config.dtype, model_config, device)
        if device.type == "cuda":
            # Triton launches its kernels on the current device, wherever the tensors are.
            torch.cuda.set_device(device.index or 0)
        ops = load_ops(device.type)
        batches = config.max_num_seqs > 1
        model = load_model(path, model_config, ops, dtype, device, for_batches=batches)
        draft_head = load_draft_head(path, model_config, dtype, device)
        return cls(model, model_config, config, ops, draft_head)

    @property
    def hidden_size(self) -> int:
        """Width of a visual embedding."""
        return self.model_config.text.hidden_size

    @property
    def has_drafts(self) -> bool:
        """Whether the checkpoint brings a draft head."""
        return self.draft_head is not None

    @property
    def has_vision_pool(self) -> bool:
        """Whether blocks of image tokens are stored in a format of their own."""
        return self.kv_dtypes["vision"] != self.kv_dtypes["text"]

    def bytes_per_block(self, kind: BlockKind = "text") -> int:
        """Bytes of one KV block over all layers."""
        return bytes_per_block(self.model_config.text, self.config.block_size, self.kv_dtypes[kind])

    def bytes_per_embedding(self) -> int:
        """Bytes of one visual token's embedding."""
        return self.model_config.vision.embedding_size * self.dtype.itemsize

    def allocate_kv(self, num_blocks: int, num_vision_blocks: int = 0) -> None:
        """Make the KV pool and, before it, the graphs of the encoder and of decode steps.

        Args:
            num_blocks: in the pool, the null block 0 counted.
            num_vision_blocks: how many of them, the last ones, are for image tokens alone; 0 unless
                `has_vision_pool`.
        """
        self.cache = None
        self.graphs = self._make_graphs(num_blocks)
        self.encoder_graphs = None
        if self.graphs is not None:
            has_vision = num_vision_blocks > 0
            nothing = self._make_cache(2 + has_vision, int(has_vision))
            with torch.inference_mode():
                self.encoder_graphs = self._capture_encoder(self.graphs.capturer)
                self.graphs.capture(nothing, self.config.graph_bytes)
        self.cache = self._make_cache(num_blocks, num_vision_blocks)
        if self.graphs is not None:
            with torch.inference_mode():
                self.graphs.capture(self.cache, again=True)

    def _make_graphs(self, num_blocks: int) -> GraphRunner | None:
        is_cuda, wanted = self.device.type == "cuda", self.config.enable_graphs
        if not (is_cuda if wanted is None else wanted):
            return None
        config, limit = self.config, self.model_config.text.max_position_embeddings
        return GraphRunner(
            self.model,
            self.ops,
            CudaCapturer(self.device) if is_cuda else EagerCapturer(),
            make_buckets(config.decode_buckets, config.verify_widths, config.max_num_seqs),
            min(num_blocks - 1, -(-limit // config.block_size)),
            self.device,
        )

    def _capture_encoder(self, capturer: Capturer) -> EncoderGraphs | None:
        """Graphs of the vision tower; None where its work is no function of shapes."""
        config, vision = self.config, self.model_config.vision
        tower = getattr(self.model, "visual", None)
        if not isinstance(tower, StaticTower):
            return None
        unit = vision.tile_side**2 // vision.merge_size**2 or 1
        channels = 1 if config.grey_pictures else vision.in_channels
        graphs = EncoderGraphs(
            tower,
            vision,
            self.ops,
            capturer,
            encoder_buckets(config.encoder_graph_tokens, config.encoder_graph_step, unit),
            channels * vision.patch_size**2,
        )
        graphs.capture(config.graph_bytes)
        return graphs

    def _make_cache(self, num_blocks: int, num_vision_blocks: int) -> KVCache:
        return KVCache.allocate(
            self.model_config.text,
            num_blocks,
            self.config.block_size,
            self.dtype,
            self.device,
            stored=self.kv_dtypes["text"],
            num_vision_blocks=num_vision_blocks,
            vision_stored=self.kv_dtypes["vision"],
        )

    @torch.inference_mode()
    def transfer(self, transfers: Transfers) -> None:
        """Copy blocks to host memory and back, in that order."""
        assert self.cache is not None, "allocate_kv comes first"
        for name in transfers.dropped:
            self._saved.pop(name, None)
        for one in transfers.out:
            self._saved[one.request_id] = self.cache.save(one.blocks)
        for one in transfers.back:
            self.cache.load(self._saved.pop(one.request_id)[one.first :], one.blocks)

    @property
    def encodes_beside(self) -> bool:
        """Whether images are encoded on a stream of their own."""
        return self._side is not None

    @torch.inference_mode()
    def encode_ahead(self, images: Sequence[ImageInput]) -> Ready | Started:
        """Begin with `encode`, beside other steps where the device can.

        A batch that may go through graphs does not: they share their memory with those of steps.
        """
        most = 0 if self.encoder_graphs is None else self.encoder_graphs.max_patches
        area = self.model_config.processor.geometry.patch_size**2
        size = sum(math.prod(image.pixels.shape[:2]) for image in images) // area
        if self._side is None or size <= most:
            return Ready(self.encode(images))
        return self._side.start(lambda: self.encode(images, graphs=False))

    @torch.inference_mode()
    def encode(self, images: Sequence[ImageInput], *, graphs: bool = True) -> list[Tensor]:
        """Visual tokens of each image, [num_tokens, hidden], in the order of `images`.

        Images of like size are taken together; what an image yields does not depend on the others.
        `graphs` says whether captured graphs may be used, as they may on the stream of steps alone.
        """
        order = sorted(range(len(images)), key=lambda i: _size_key(images[i].pixels))
        out: list[Tensor | None] = [None] * len(images)
        area = self.model_config.processor.geometry.patch_size**2
        pixels = [images[i].pixels for i in order]
        sizes = [image.shape[0] * image.shape[1] // area for image in pixels]
        for members in self._cut(sizes, [image.ndim for image in pixels]):
            indices = [order[i] for i in members]
            patches, grids = pack([images[i].pixels for i in indices], self.model_config.processor)
            tokens = self._visual_tokens(patches, grids, graphs=graphs)
            token_grid = self.model_config.vision.token_grid
            lengths = [math.prod(token_grid(grid)) for grid in grids]
            for i, piece in zip(indices, torch.split(tokens, lengths), strict=True):
                out[i] = self._assembled(piece, images[i].mosaic)
        return [piece for piece in out if piece is not None]

    @torch.inference_mode()
    def draft(self, embeds: Sequence[Tensor]) -> list[tuple[int, ...]]:
        """The draft head's guesses at the texts of several images; empty ones without a head.

        Args:
            embeds: [num_tokens, hidden] of each image, as `encode` gave them.

        Returns:
            Byte ids in reading order, image by image.
        """
        return [ids for ids, _ in self.read_draft(embeds)]

    @torch.inference_mode()
    def read_draft(self, embeds: Sequence[Tensor]) -> list[tuple[tuple[int, ...], Steps | None]]:
        """The guesses of `draft`, and a CTC head's steps behind them."""
        head = self.draft_head
        if head is None:
            return [((), None)] * len(embeds)
        merge = self.model_config.vision.merge_size**2
        out: list[tuple[tuple[int, ...], Steps | None]] = []
        for members in self._cut([len(piece) * merge for piece in embeds]):
            together = torch.cat([embeds[i] for i in members])
            lengths = [len(embeds[i]) for i in members]
            if isinstance(head, CtcHead):
                out += head.read(together, lengths)
            else:
                out += [(ids, None) for ids in head.guess(together, lengths)]
        return out

    @torch.inference_mode()
    def execute(self, batch: BatchInput) -> Tensor:
        """Run one step: write its keys and values, return float32 logits [R, vocab]."""
        assert self.cache is not None, "allocate_kv comes first"
        assert len(batch.input_ids) > 0, "a step without tokens makes no progress"
        if self.graphs is not None and self.graphs.takes(batch):
            return self.graphs.run(batch)
        embeds = self.model.embed(self._to_device(batch.input_ids))
        deepstack = None
        if len(batch.embed_rows):
            rows, visual = self._to_device(batch.embed_rows), torch.cat(tuple(batch.embeds))
            embeds.index_copy_(0, rows, visual[:, : self.hidden_size])
            if visual.shape[1] > self.hidden_size:
                extra = visual[:, self.hidden_size :]
                deepstack = rows, extra.reshape(len(rows), -1, self.hidden_size)
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
            deepstack=deepstack,
        )
        return self.model.logits(self.model(step, self.cache))

    def _visual_tokens(self, patches: Pixels, grids: Sequence[Grid], *, graphs: bool) -> Tensor:
        if graphs and self.encoder_graphs is not None:
            tokens = self.encoder_graphs.run(patches, grids)
            if tokens is not None:
                return tokens
        return self.model.encode(upload(patches, self.device), grids)

    def _assembled(self, tokens: Tensor, mosaic: Mosaic | None) -> Tensor:
        if mosaic is None:
            return tokens
        assert isinstance(self.model, Assembler), "no mosaic without a model that makes them"
        return self.model.assemble(tokens, mosaic)

    def _cut(self, sizes: Sequence[int], kinds: Sequence[int] = ()) -> list[list[int]]:
        """Neighbours of one kind, cut where a group would outgrow the processor's cache.

        Args:
            sizes: patches of each image.
            kinds: only equal ones go together; empty means that all are.
        """
        limit = _CPU_ENCODE_PATCHES if self.device.type == "cpu" else 1 << 30
        groups: list[list[int]] = []
        total = 0
        for i, size in enumerate(sizes):
            is_other = bool(kinds) and i > 0 and kinds[i] != kinds[i - 1]
            if not groups or is_other or total + size > limit:
                groups.append([])
                total = 0
            groups[-1].append(i)
            total += size
        return groups

    def _to_device(self, array: np.ndarray) -> Tensor:
        return upload(array, self.device)


def _size_key(pixels: np.ndarray) -> tuple[int, ...]:
    """Grey before colour, then by area and shape, so that like sizes become neighbours."""
    return (pixels.ndim, pixels.shape[0] * pixels.shape[1], *pixels.shape[:2])
