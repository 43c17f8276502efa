"""What readers that are not our engine take: RapidOCR as it was measured, transformers as a guess.

A plan for them is no account: their code is not ours, and what it holds at once was found out by
running it, or is unknown and taken to be much.
"""

from collections.abc import Sequence
from pathlib import Path

from vlmcli.checkpoint import model_type_of, shown_name
from vlmcli.engine.geometry import ImageGeometry
from vlmcli.errors import ModelError
from vlmcli.memory.checkpoint_facts import stored_weights
from vlmcli.memory.estimate import Coefficients, weights
from vlmcli.memory.facts import DecoderFacts, ForeignFacts, ModelFacts
from vlmcli.rapidocr import CELL, RAPIDOCR, detector_size

MIB = 1 << 20
RAPIDOCR_BYTES = 130 * MIB
"""RSS of the main process with RapidOCR 3.10, onnxruntime 1.32 and both models loaded, beyond what
it has before: 124 to 130 measured on x86-64 Linux, with one thread and with two."""
RAPIDOCR_PAGE_BYTES = 40 * MIB
RAPIDOCR_BYTES_PER_PIXEL = 150
"""While a page is read, of the picture that the detector sees. Measured on nine pages from
736 × 736 to 2000 × 2000 pixels: 105 to 545 MiB, that is 35 MiB and 135 bytes a pixel. Most is the
detector's; the recogniser takes one line at a time and stays below that."""

TRANSFORMERS_BYTES = 480 * MIB
"""RSS of the main process with torch, transformers and one of its families loaded, beyond what it
has before: 450 measured with a tiny LLaVA on x86-64 Linux."""
TRANSFORMERS_LEAST = 1 << 30
"""Kept for a page in work, however small the weights are; half of them where that is more."""

_NO_DECODER = DecoderFacts(
    num_layers=0,
    hidden_size=0,
    intermediate_size=0,
    num_heads=1,
    num_kv_heads=1,
    head_dim=0,
    vocab_size=0,
    tie_word_embeddings=True,
)


def rapidocr_facts() -> ModelFacts:
    """What a plan needs of RapidOCR; it need not be installed for that."""
    return ModelFacts(
        name=RAPIDOCR,
        model_type=RAPIDOCR,
        decoder=_NO_DECODER,
        towers=(),
        connector_parameters=0,
        measure=_detector_geometry,
        embedding_width=0,
        dtype="float32",
        foreign=ForeignFacts(
            loaded_bytes=RAPIDOCR_BYTES,
            page_bytes=RAPIDOCR_PAGE_BYTES,
            bytes_per_patch=RAPIDOCR_BYTES_PER_PIXEL * CELL * CELL,
            statement="RapidOCR, bounded by measurement",
        ),
    )


def transformers_facts(model: str, path: Path | None) -> ModelFacts:
    """What a plan can say of a checkpoint that transformers runs: its weights, and a guess.

    Raises:
        ModelError: the checkpoint is not there, or has no safetensors weights.
    """
    stored = None if path is None else stored_weights(path)
    if path is None or stored is None:
        raise ModelError(
            f"no weights of {model} here to plan with",
            remedy="fetch it, or give its directory: the weights themselves say how large it is",
        )
    return ModelFacts(
        name=shown_name(model, path),
        model_type=model_type_of(path),
        decoder=_NO_DECODER,
        towers=(),
        connector_parameters=0,
        measure=_as_it_is,
        embedding_width=0,
        dtype=stored.dtype or "float32",
        stored_parameters=stored.num_parameters,
        # A file stays mapped as long as it is read.
        largest_tensor_bytes=stored.num_bytes,
        foreign=ForeignFacts(
            loaded_bytes=TRANSFORMERS_BYTES,
            page_bytes=max(TRANSFORMERS_LEAST, stored.num_bytes // 2),
            bytes_per_patch=0,
            statement="run by transformers; its weights are counted, a page in work is a guess "
            "(half of the weights, at least 1 GiB)",
        ),
    )


def foreign_terms(
    facts: ModelFacts, patches: Sequence[int], dtype: str, device: str, weigh: Coefficients
) -> dict[str, int]:
    """Terms in bytes, by name, of a reader that has no pools and one page at a time in work.

    Args:
        facts: of the reader, which is foreign.
        patches: of each page that is read; none while no page is.
        dtype: of its weights.
        device: where it runs.
        weigh: what the main process takes before it has a reader, and a CUDA context.
    """
    foreign = facts.foreign
    assert foreign is not None, "our own engine's terms are others"
    is_host = device == "cpu"
    return {
        "weights": weights(facts.stored_parameters or 0, dtype),
        "foreign": foreign.loaded_bytes if is_host else 0,
        "runtime_context": weigh.light_bytes if is_host else weigh.device_context_bytes,
        "activations": foreign.reading(max(patches)) if patches else 0,
        **dict.fromkeys(("embeddings", "kv", "vision_cache"), 0),
    }


def _as_it_is(width: int, height: int) -> ImageGeometry:
    """A picture of which nothing is known but its size."""
    return ImageGeometry(
        width=width, height=height, grid_thw=(1, 1, 1), num_patches=1, num_tokens=0
    )


def _detector_geometry(width: int, height: int) -> ImageGeometry:
    """The detector's picture, in cells of 32 × 32 pixels; there are no tokens."""
    across, down = detector_size(width, height)
    rows, columns = down // CELL, across // CELL
    return ImageGeometry(
        width=across,
        height=down,
        grid_thw=(1, rows, columns),
        num_patches=rows * columns,
        num_tokens=0,
    )
