"""What readers that are not our engine take: RapidOCR as it was measured.

A plan for them is a bound, not an account: their code is not ours, and what it holds at once was
found out by running it.
"""

from collections.abc import Sequence

from vlmcli.engine.geometry import ImageGeometry
from vlmcli.memory.estimate import Coefficients
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


def foreign_terms(
    foreign: ForeignFacts, patches: Sequence[int], weigh: Coefficients
) -> dict[str, int]:
    """Terms in bytes, by name, of a reader that has no pools and one page at a time in work.

    Args:
        foreign: the reader.
        patches: of each page that is read; none while no page is.
        weigh: what the main process takes before it has a reader.
    """
    return {
        "foreign": foreign.loaded_bytes,
        "runtime_context": weigh.light_bytes,
        "activations": foreign.reading(max(patches)) if patches else 0,
        **dict.fromkeys(("embeddings", "kv", "vision_cache"), 0),
    }


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
