"""Small batches of pictures through buckets of fixed size, each captured once and replayed.

For tiles, which are all alike, and for small crops such as text lines, where starting some hundred
kernels takes longer than their work; larger batches run without. A batch is written into static
inputs; rows that are missing to the bucket's size are padding, a sequence of its own in attention,
and its tokens are dropped. What comes out is a copy.

The graphs lie in the memory of those of decode steps, so that the two must never run at the same
time. They hold no addresses of the KV pool, and are captured before it is made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vlmcli.engine.buckets import segments_for
from vlmcli.engine.capture import Capturer, Step, capture_all
from vlmcli.engine.config import VisionConfig
from vlmcli.engine.models.tower_inputs import Grid, StaticTower, TowerInputs
from vlmcli.kernels import Ops
from vlmcli.kernels.segments import Ends, Segments
from vlmcli.kernels.upload import upload


@dataclass(frozen=True, slots=True, order=True)
class EncoderBucket:
    """A batch of pictures with so many visual tokens, out of so many patches."""

    num_tokens: int
    num_patches: int

    def __str__(self) -> str:
        return f"{self.num_tokens} visual tokens"


class EncoderGraphs:
    """Runs a vision tower bucket by bucket.

    Args:
        tower: of the loaded model.
        vision: its sizes.
        ops: its kernels.
        capturer: records steps; the one of the decode graphs, for one pool of memory.
        buckets: numbers of visual tokens, ascending.
        patch_values: numbers of a patch: of one channel, or of all.
    """

    def __init__(
        self,
        tower: StaticTower,
        vision: VisionConfig,
        ops: Ops,
        capturer: Capturer,
        buckets: Sequence[int],
        patch_values: int,
    ) -> None:
        self.tower, self.vision, self.ops, self.capturer = tower, vision, ops, capturer
        cell = vision.merge_size**2
        self.buckets = tuple(EncoderBucket(tokens, tokens * cell) for tokens in buckets)
        self.patch_values = patch_values
        self.inputs: dict[EncoderBucket, TowerInputs] = {}
        self.patches = torch.empty(0, patch_values, dtype=torch.uint8)
        self._replays: dict[EncoderBucket, Step] = {}

    def capture(self, max_bytes: int | None = None) -> None:
        """Capture all buckets, largest first, and forget with a warning those that do not fit.

        Args:
            max_bytes: of all graphs together; None for as many as there are.
        """
        if not self.buckets:
            return
        made = ((bucket, self._make_inputs(bucket)) for bucket in self.buckets)
        self.inputs = {bucket: inputs for bucket, inputs in made if inputs is not None}
        device = self._like().device
        shape = self.buckets[-1].num_patches, self.patch_values
        self.patches = torch.zeros(shape, dtype=torch.uint8, device=device)
        steps = ((bucket, partial(self._forward, bucket)) for bucket in [*self.inputs][::-1])
        self._replays = capture_all(self.capturer, steps, max_bytes, warm_up=True)
        self.buckets = tuple(bucket for bucket in self.buckets if bucket in self._replays)

    @property
    def max_patches(self) -> int:
        """Of the largest batch that a bucket holds; 0 where there is none."""
        return self.buckets[-1].num_patches if self.buckets else 0

    def run(self, patches: npt.NDArray[np.uint8], grids: Sequence[Grid]) -> Tensor | None:
        """Visual tokens of some pictures, a tensor of their own; None where no bucket holds them.

        Args:
            patches: [N, values] of all pictures.
            grids: of each picture, in patches.
        """
        num_patches = len(patches)
        larger = [one for one in self.buckets if one.num_patches >= num_patches]
        if not larger or patches.shape[1] != self.patch_values:
            return None
        bucket = larger[0]
        if not self.vision.tile_side:
            given = self.tower.prepare(grids)
            fitting = [one for one in larger if _fits(given, one)]
            if not fitting:
                return None
            bucket = fitting[0]
            _write(self.inputs[bucket], given, bucket)
        self.patches[:num_patches].copy_(upload(patches, self.patches.device))
        num_tokens = sum(int(np.prod(self.vision.token_grid(grid))) for grid in grids)
        return self._replays[bucket]()[:num_tokens].clone()

    def _forward(self, bucket: EncoderBucket) -> Tensor:
        return self.tower.run(self.patches[: bucket.num_patches], self.inputs[bucket])

    def _make_inputs(self, bucket: EncoderBucket) -> TowerInputs | None:
        """Static inputs of one bucket, as of a picture that fills it; None where ends cannot be."""
        side, merge = self.vision.tile_side, self.vision.merge_size
        if side:
            grid = (bucket.num_patches // side**2, side, side)
        else:
            grid = (1, merge, bucket.num_patches // merge)
        found = self.tower.prepare([grid])
        ends = self._room(bucket, found.ends)
        windows = None if found.windows is None else self._room(bucket, found.windows)
        if ends is None or (windows is None and found.windows is not None):
            return None
        return replace(found, ends=ends, windows=windows)

    def _room(self, bucket: EncoderBucket, ends: Ends) -> Segments | None:
        assert isinstance(ends, np.ndarray), "a tower prepares plain ends"
        most = max(segments_for(bucket.num_tokens), len(ends) - 1)
        room = self.ops.make_segments(int(ends[-1]), most, self.vision.head_dim, self._like())
        if room is not None:
            room.write(ends)
        return room

    def _like(self) -> Tensor:
        """A tensor of the tower's dtype and device."""
        assert isinstance(self.tower, torch.nn.Module)
        return next(self.tower.parameters())


def _tensors(inputs: TowerInputs) -> Iterator[Tensor]:
    """All tensors of some inputs but `cells`, row by row of a patch."""
    for pair in (inputs.rope, inputs.corners):
        yield from pair or ()


def _fits(given: TowerInputs, bucket: EncoderBucket) -> bool:
    """Whether a batch has no more pictures and windows than there is room for beside padding."""
    counts = [len(ends) for ends in (given.ends, given.windows) if isinstance(ends, np.ndarray)]
    return max(counts) <= segments_for(bucket.num_tokens)


def _write(room: TowerInputs, given: TowerInputs, bucket: EncoderBucket) -> None:
    """Take over what a tower knows of a batch; the rows behind it become padding."""
    for static, values in zip(_tensors(room), _tensors(given), strict=True):
        static[: len(values)].copy_(values)
    if room.cells is not None and given.cells is not None:
        flat, order = room.cells.view(-1), given.cells.view(-1)
        flat[: len(order)].copy_(order)
        flat[len(order) :].copy_(torch.arange(len(order), len(flat), device=flat.device))
    for name in ("ends", "windows"):
        segments, ends = getattr(room, name), getattr(given, name)
        if segments is not None:
            padding = [] if ends[-1] == bucket.num_patches else [bucket.num_patches]
            segments.write(np.append(ends, np.array(padding, dtype=np.int32)))
