"""`vlmcli bench probe`: what this machine adds to the shapes of a model, measured and stored.

Two points each for the vision encoder and for a decoder step, the main process once a model is in
use, and a page worker between two pages. Plans for the same model, device, number format and
version use the result from then on. Linux, and the libraries that `ocr` would load.
"""

import gc
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from vlmcli.bench.pages import Paper, write_print
from vlmcli.bench.rss import peak_during
from vlmcli.checkpoint import find_checkpoint
from vlmcli.documents.prepared import PrepareSpec
from vlmcli.documents.source import RenderSpec, Source
from vlmcli.engine.batch import BatchInput
from vlmcli.engine.config import DtypeName, EngineConfig
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.request import ImageInput
from vlmcli.memory import estimate
from vlmcli.memory.allocator import give_back, keep_heap_small
from vlmcli.memory.calibration import calibration_key, store_calibration
from vlmcli.memory.devices import resident_bytes
from vlmcli.memory.estimate import Coefficients
from vlmcli.memory.facts import ModelFacts
from vlmcli.memory.request import find_facts
from vlmcli.memory.settings import DeviceKind, PlanSettings
from vlmcli.options import format_size
from vlmcli.processors import default_threads
from vlmcli.workers import OpenTask, PageTask, WorkerPool

_PATCHES = (400, 1600)
_TOKENS = (256, 1024)
_SHAPES = 6

Points = tuple[tuple[int, int], tuple[int, int]]
"""Two pairs of computed and measured bytes."""


def run(model: str, device: str, dtype: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure and store; `say` gets the figures line by line.

    Returns:
        The coefficients by name, and `file`, where they are stored.
    """
    facts = find_facts(model)
    kind: DeviceKind = "cuda" if device.startswith("cuda") else "cpu"
    resolved = PlanSettings(device=kind, dtype=dtype).resolve_dtype(facts)
    keep_heap_small()
    probe = _Probe(find_checkpoint(model).path, device, dtype)
    fixed = probe.fixed_bytes()
    known = estimate.weights(facts.num_parameters, resolved) + probe.kv_bytes
    coefficients = estimate.calibrated(
        Coefficients(),
        encoder=_points(_PATCHES, lambda n: _encoder_bytes(facts, n, resolved), probe.encode),
        prefill=_points(_TOKENS, lambda n: _step_bytes(facts, n, resolved, kind), probe.step),
        main_bytes=max(0, fixed - known) if kind == "cpu" else None,
    )
    if kind == "cpu":
        coefficients = replace(coefficients, worker_bytes=_worker_bytes())
    file = store_calibration(calibration_key(facts, kind, resolved), coefficients)
    say(f"{facts.name} in {resolved} on {kind}")
    say(f"  main process without the model  {format_size(coefficients.main_bytes)}")
    say(f"  page worker between two pages   {format_size(coefficients.worker_bytes)}")
    say(f"  encoder, measured over computed {coefficients.encoder_factor:.3f}")
    say(f"  decoder, measured over computed {coefficients.prefill_factor:.3f}")
    return {
        "model": facts.name,
        "dtype": resolved,
        "main_bytes": coefficients.main_bytes,
        "worker_bytes": coefficients.worker_bytes,
        "encoder_factor": round(coefficients.encoder_factor, 4),
        "prefill_factor": round(coefficients.prefill_factor, 4),
        "file": str(file),
    }


def _points(
    sizes: tuple[int, int], compute: Callable[[int], int], measure: Callable[[int], int]
) -> Points:
    first, second = sizes
    return (compute(first), measure(first)), (compute(second), measure(second))


def _encoder_bytes(facts: ModelFacts, num_patches: int, dtype: str) -> int:
    return estimate.encoder_peak(facts.towers, num_patches, dtype, Coefficients())


def _step_bytes(facts: ModelFacts, num_tokens: int, dtype: str, device: str) -> int:
    return estimate.prefill_peak(
        facts.decoder,
        chunk_tokens=num_tokens,
        context_tokens=num_tokens,
        longest_context=num_tokens,
        logit_rows=1,
        dtype=dtype,
        device=device,
        coefficients=Coefficients(),
    )


class _Probe:
    """A loaded model and the peaks of its parts."""

    def __init__(self, path: Path, device: str, dtype: str) -> None:
        config = EngineConfig(
            device=device, dtype=cast(DtypeName, dtype), num_threads=default_threads()
        )
        self._is_cuda = device.startswith("cuda")
        self._runner = ModelRunner.from_checkpoint(path, config)
        self._size = config.block_size
        num_blocks = 2 + max(_TOKENS) // self._size
        self._runner.allocate_kv(num_blocks)
        self.kv_bytes = num_blocks * self._runner.bytes_per_block()

    def fixed_bytes(self) -> int:
        """Resident memory with the model loaded and everything used, in so many shapes that the
        caches of kernels are full."""
        for number in range(_SHAPES):
            self.encode(64 + 8 * number)
            self.step(32 + number)
        return _settled()

    def encode(self, num_patches: int) -> int:
        """Growth at the peak of encoding one picture of so many patches."""
        vision = self._runner.model_config.vision
        side = vision.patch_size * vision.merge_size
        columns = max(1, num_patches // vision.merge_size**2)
        height = max(1, round(columns**0.5))
        shape = (side * height, side * max(1, columns // height), 3)
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        image = ImageInput(pixels=pixels, mm_hash=bytes(32))
        return self._growth(lambda: self._runner.encode([image]))

    def step(self, num_tokens: int) -> int:
        """Growth at the peak of a step over so many tokens of one sequence."""
        blocks = np.arange(1, 1 + -(-num_tokens // self._size), dtype=np.int32)
        tokens = np.arange(num_tokens, dtype=np.int64)
        batch = BatchInput(
            input_ids=tokens % 64,
            positions=np.tile(tokens, (3, 1)),
            slot_mapping=tokens + self._size,
            block_tables=blocks[None],
            context_lens=np.array([num_tokens], dtype=np.int32),
            cu_seqlens_q=np.array([0, num_tokens], dtype=np.int32),
            logit_rows=np.array([num_tokens - 1], dtype=np.int64),
            embed_rows=np.array([], dtype=np.int64),
        )
        return self._growth(lambda: self._runner.execute(batch))

    def _growth(self, work: Callable[[], object]) -> int:
        work()
        if self._is_cuda:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            work()
            return int(torch.cuda.max_memory_allocated()) - before
        before = _settled()
        return max(0, peak_during(work) - before)


def _settled() -> int:
    """Resident memory of this process with all free memory given back."""
    gc.collect()
    give_back()
    return resident_bytes(os.getpid())


def _worker_bytes() -> int:
    """Resident memory of a page worker that has prepared some pages and waits."""
    spec = PrepareSpec(
        render=RenderSpec(dpi=150, max_pixels=1_000_000),
        text_layer="ignore",
        reads="lines",
        line_height=28,
        max_line_width=1120,
    )
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as folder:
        file = Path(folder) / "pages.pdf"
        write_print(file, [Paper(width=298, height=420, lines=20)] * 3)
        source = Source(path=file, name=file.name)
        pool = WorkerPool(1)
        try:
            pool.submit(OpenTask(number=0, source=source, password=None, strict=False))
            for index in range(3):
                _wait(pool)
                pool.submit(
                    PageTask(serial=index, source=source, password=None, index=index, spec=spec)
                )
            _wait(pool)
            return resident_bytes(pool.pids[0])
        finally:
            pool.close()


def _wait(pool: WorkerPool) -> None:
    while pool.num_pending:
        pool.collect(1.0)
