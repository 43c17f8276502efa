"""The memory model: one pure function per term, in bytes.

Each docstring says where its coefficients come from: shapes of the model, the engine's code, or a
measurement. What shapes do not give stands in `Coefficients`, which a calibration may replace.
Knows no documents and no devices; `plan` puts the terms together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vlmcli.memory.facts import DTYPE_BYTES, DecoderFacts, ModelFacts, TowerFacts

MIB = 1 << 20
KV_SCALE_BYTES = 4
"""A float32 scale per token, head, and key or value, where KV is stored in int8."""
CPU_ENCODE_PATCHES = 1536
"""Patches that the engine encodes at a time on a CPU, unless one picture has more."""
LOAD_BATCH_BYTES = 64 * MIB
"""Tensors that are read from a weight file before it is closed and opened again."""
LOGIT_COPIES = 2
"""Logits in float32, and one working copy for the probabilities."""


PRINT_DPI = 130
"""Resolution at which the line finder looks at usual print; its letters are 10 to 14 pixels."""
_LEAST_WORK, _MOST_WORK = 2_600_000, 9_000_000
"""Pixels of the copy in which lines are looked for: `documents.lines.finder`."""
CROP_KNOWN_BYTES = 1200
"""Of a line whose answer is remembered, for lines that are equal to it: 1.0 KiB measured."""
MOST_CROPS_KNOWN = 16_384
DRAFT_KNOWN_BYTES = 3600
"""Of what the draft head says of a line of 896 pixels: 3.4 KiB measured, with the steps by which
the decoder's changes are weighed. A quarter of the lines is drawn twice, most are shorter."""
MOST_DRAFTS_KNOWN = 4096
"""Bounds of `readers.lines` and `engine.images`."""
SKETCH_BYTES_PER_PIXEL = 0.5
"""Of the small picture of a recent page: 0.48 measured on grey scans with noise."""
MOST_SKETCHES, COMPARE_BYTES, STORE_ROOM = 32 * MIB, 24 * MIB, 32 * MIB
"""Bounds of `reuse.recent`, `reuse.difference` and `repeats`."""
STORE_BYTES = 16 * MIB
"""Of the store of results in use: 12 measured."""
PDF_WRITER_BYTES = 64 * MIB
"""PyMuPDF in the main process while it writes a document again; 600 pages took 30 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Numbers that shapes do not give. Defaults were measured on x86-64 Linux, torch 2.13 (CPU)."""

    light_bytes: int = 40 * MIB
    """RSS of the main process before it needs a model."""
    main_bytes: int = 290 * MIB
    """RSS of the main process with torch and a model in use, less the model and its pools: 274 to
    281 measured on AMD's processors, up to 283 on Intel's with AMX, and 2 more
    for the list of words."""
    first_use_bytes: int = 39 * MIB
    """Part of `main_bytes` that only the first step brings: code of torch and its libraries, and
    oneDNN's kernels, made for every shape and kept in caches that `__main__` bounds."""
    heap_bytes: int = 16 * MIB
    """Most that the heap keeps of activations whose memory the next ones, of other sizes, cannot
    use: only blocks above `allocator` 's threshold are given back at once."""
    worker_bytes: int = 98 * MIB
    """RSS of a page worker with PyMuPDF and OpenCV imported, between two pages."""
    line_page_bytes: int = 3 * MIB
    """In a page worker, for any page in which lines are looked for."""
    finder_bytes_per_pixel: float = 14.0
    """In a page worker, of the copy in which lines are looked for: 11 to 14 measured."""
    page_bytes: int = 8 * MIB
    """In a page worker, for any page that is drawn for a page reader."""
    device_context_bytes: int = 512 * MIB
    """CUDA context with cuBLAS and its workspaces: 0.35 to 0.6 GiB on H100 to L4."""
    graph_layer_bytes: int = 150 * 1024
    """Of a captured decode graph, per bucket and layer: vLLM logs 0.23 GiB for 67 buckets of 24
    layers."""
    encoder_factor: float = 1.0
    """Measured over computed activations of the vision tower."""
    prefill_factor: float = 1.0
    """Measured over computed activations of a decoder step."""
    margin_fraction: float = 0.02
    """Of everything but the weights and pools: allocator fragmentation."""
    margin_bytes: int = 8 * MIB
    """Whatever the job: records that wait, journal, buffers of the outputs."""


_HALF_ENCODER, _HALF_PREFILL = 1.2, 1.1
"""On a CPU norms and rotations are computed in float32, so that some half-sized numbers have copies
of full size: 1.19 and 1.01 measured with the built-in model."""


def usual_coefficients(device: str, dtype: str) -> Coefficients:
    """Coefficients for a machine on which nothing was measured."""
    usual = Coefficients()
    if device != "cpu" or dtype == "float32":
        return usual
    return replace(usual, encoder_factor=_HALF_ENCODER, prefill_factor=_HALF_PREFILL)


def dtype_bytes(name: str) -> int:
    """Bytes of one number."""
    return DTYPE_BYTES[name]


def weights(num_parameters: int, dtype: str) -> int:
    """Bytes of the parameters, all resident, in the dtype that the engine computes in."""
    return num_parameters * dtype_bytes(dtype)


def runtime_context(device: str, coefficients: Coefficients) -> int:
    """Bytes that are gone before a model is loaded: the main process's RSS, or a CUDA context."""
    return coefficients.main_bytes if device == "cpu" else coefficients.device_context_bytes


def draw_lines(
    pixels: int, decoded: int, printed: int, crops: int, coefficients: Coefficients
) -> int:
    """Bytes in a page worker while a page is drawn in grey and its lines are found and cut out.

    First the picture and what is decoded for it, and one copy where it comes from Pillow. Then the
    picture, and the copy in which the line finder works: 2.2 million pixels, more where letters
    would be too small in that, up to 9 and to twice the picture's width.

    Args:
        pixels: width x height of the picture.
        decoded: bytes that decoders hold while it is drawn.
        printed: pixels that it would have at `PRINT_DPI`.
        crops: bytes of the lines that are cut out.
        coefficients: `line_page_bytes`, `finder_bytes_per_pixel`.
    """
    work = min(4 * pixels, max(_LEAST_WORK, min(_MOST_WORK, printed)))
    searched = pixels + round(work * coefficients.finder_bytes_per_pixel) + crops
    return coefficients.line_page_bytes + max(2 * pixels + decoded, searched)


def draw_page(pixels: int, decoded: int, coefficients: Coefficients) -> int:
    """Bytes in a page worker while a page is drawn in colour, looked at for blankness, and sent.

    Args:
        pixels: width x height of the picture.
        decoded: bytes that decoders hold while it is drawn.
        coefficients: `page_bytes`.
    """
    return coefficients.page_bytes + 3 * pixels + max(2 * pixels, decoded)


def encoder_peak(
    towers: Sequence[TowerFacts], num_patches: int, dtype: str, coefficients: Coefficients
) -> int:
    """Bytes of activations while one batch of patches passes the vision towers.

    Live at once per patch, as the engine's blocks are written: residual, norm, packed qkv (3),
    attention output, its contiguous copy and the copy that joins images of unequal size: 8 hidden
    sizes; or residual, norm and 2 (gated: 3) intermediate sizes; whichever is more. Before the
    first block: the patch as uint8 and as float32. Attention itself works in blocks that are small
    beside this (flash attention on GPUs, torch's blocked kernel on CPUs). Measured on a CPU for
    widths of 512 and 1,280 and 1,600 to 6,400 patches: 0.75 to 1.0 of this.

    Args:
        towers: in order; each counts for all patches, which is exact for one tower.
        num_patches: rows of the largest encode batch.
        dtype: of the activations.
        coefficients: `encoder_factor`.
    """
    size = dtype_bytes(dtype)
    peak = 0
    for tower in towers:
        attention = 8 * tower.hidden_size
        mlp = 2 * tower.hidden_size + (3 if tower.is_gated else 2) * tower.intermediate_size
        rotary = 2 * (tower.hidden_size // tower.num_heads)
        block = (max(attention, mlp) + rotary) * size + tower.patch_values
        embed = 5 * tower.patch_values + tower.hidden_size * size
        peak = max(peak, max(block, embed) * num_patches)
    return round(peak * coefficients.encoder_factor)


def prefill_peak(
    decoder: DecoderFacts,
    *,
    chunk_tokens: int,
    context_tokens: int,
    longest_context: int,
    logit_rows: int,
    dtype: str,
    device: str,
    coefficients: Coefficients,
) -> int:
    """Bytes of activations of the largest decoder step.

    Live at once per token of the chunk: embedding, residual and norm, and 3 intermediate sizes in
    the MLP, or the packed qkv and 3 copies of the heads in attention. On a CPU the keys and values
    of one layer are gathered from the pool (`context_tokens`, with up to 1.3 for padding) and
    repeated to all heads, and a chunk that is not the first of its prompt has a float32 mask over
    its context. Measured on a CPU for widths of 192 to 1,024 and 256 to 4,096 tokens: 0.83 to 1.01
    of this, least with oneDNN.

    Args:
        decoder: shapes.
        chunk_tokens: most query tokens of a step.
        context_tokens: KV positions of all sequences of a step together.
        longest_context: KV positions of the longest sequence.
        logit_rows: rows whose logits are wanted.
        dtype: of the activations.
        device: `cpu` gathers keys and values, other devices read them in place.
        coefficients: `prefill_factor`.
    """
    size = dtype_bytes(dtype)
    heads = decoder.num_heads * decoder.head_dim
    peak = chunk_tokens * step_numbers(decoder) * size
    if device == "cpu":
        kv_heads = decoder.num_kv_heads * decoder.head_dim
        repeated = heads if heads > kv_heads else 0
        peak += round(1.3 * context_tokens * 2 * kv_heads * size)
        peak += longest_context * 2 * repeated * size
        if longest_context > chunk_tokens:
            peak += chunk_tokens * longest_context * 4
    peak += logit_rows * decoder.vocab_size * 4 * LOGIT_COPIES
    return round(peak * coefficients.prefill_factor)


def step_numbers(decoder: DecoderFacts) -> int:
    """Numbers that live at once per token of a decoder step, as `prefill_peak` explains them."""
    heads = decoder.num_heads * decoder.head_dim
    attention = decoder.qkv_size + 3 * heads
    return 3 * decoder.hidden_size + max(3 * mlp_width(decoder), attention)


def heap_slack(device: str, activations: int, coefficients: Coefficients) -> int:
    """Bytes of the heap that are resident and free when activations are at their peak.

    Of blocks below the allocator's threshold; a free one is of use only to a smaller one. Such
    blocks are no more than the activations, and few at a time. A GPU's allocator works otherwise.
    """
    return min(activations, coefficients.heap_bytes) if device == "cpu" else 0


def mlp_width(decoder: DecoderFacts) -> int:
    """Intermediate numbers that one token passes through: of the active experts, where sparse."""
    mix = decoder.mixture
    if mix is None:
        return decoder.intermediate_size
    sparse = (mix.num_active_experts + mix.num_shared_experts) * mix.intermediate_size
    return max(decoder.intermediate_size, sparse)


def embeddings_in_flight(num_tokens: int, width: int, dtype: str) -> int:
    """Bytes of visual tokens between encoder and decoder; DeepStack models send several rows."""
    return num_tokens * width * dtype_bytes(dtype)


def kv_bytes_per_token(decoder: DecoderFacts, kv_dtype: str) -> int:
    """Bytes of one token's keys and values over all layers.

    2 x layers x kv heads x head size x bytes; GQA models have fewer kv heads than heads. int8 adds
    a scale per token and head.
    """
    values = decoder.kv_values_per_token
    if kv_dtype == "int8":
        return values + 2 * decoder.num_layers * decoder.num_kv_heads * KV_SCALE_BYTES
    return values * dtype_bytes(kv_dtype)


def kv_bytes(
    decoder: DecoderFacts,
    *,
    vision_tokens: int,
    text_tokens: int,
    kv_dtype: str,
    vision_kv_dtype: str,
    block_size: int,
) -> int:
    """Bytes of the KV blocks of one sequence.

    Args:
        decoder: shapes.
        vision_tokens: visual tokens, as they enter the decoder (after merging).
        text_tokens: prompt and output tokens.
        kv_dtype: of text blocks.
        vision_kv_dtype: of blocks that hold visual tokens alone.
        block_size: tokens per block; blocks are given out whole.
    """
    if kv_dtype == vision_kv_dtype:
        blocks = -(-(vision_tokens + text_tokens) // block_size)
        return blocks * block_size * kv_bytes_per_token(decoder, kv_dtype)
    # Blocks at the borders hold text too, so they are text blocks. Where the image begins decides
    # how much of it they hold and whether it fills one block more or less; there must be room for
    # either: text, one token less than a block of image at each border, and the last block's rest.
    vision_blocks = vision_tokens // block_size
    text_blocks = min(
        -(-(vision_tokens + text_tokens) // block_size),
        (text_tokens + 3 * (block_size - 1)) // block_size,
    )
    return block_size * (
        vision_blocks * kv_bytes_per_token(decoder, vision_kv_dtype)
        + text_blocks * kv_bytes_per_token(decoder, kv_dtype)
    )


def reuse_room(pages: Sequence[int], spare: int, *, compares: bool, keeps: bool) -> int:
    """Bytes that recognising repeated pages will take of what a plan leaves below its cap.

    Small pictures of recent pages take a quarter of it and 32 MiB at the most; the libraries that
    compare two of them are loaded where there is room for that; the store of results has caches of
    its own. The moment in which two pages that look alike are compared in full is left out.

    Args:
        pages: pixels of each page.
        spare: bytes between everything else and the cap.
        compares: whether look-alikes are compared.
        keeps: whether results are kept from run to run.
    """
    room = 0
    if compares and pages:
        pictures = round(SKETCH_BYTES_PER_PIXEL * sum(pages))
        room += min(pictures, MOST_SKETCHES, max(MIB, spare // 4))
        if len(pages) > 1 and spare // 2 > COMPARE_BYTES:
            room += COMPARE_BYTES
    if keeps and spare >= STORE_ROOM:
        room += STORE_BYTES
    return max(0, min(room, spare))


def margin(moving: int, coefficients: Coefficients) -> int:
    """Bytes kept free: a fraction of everything but the weights, and a constant."""
    return round(moving * coefficients.margin_fraction) + coefficients.margin_bytes


def loading_peak(facts: ModelFacts) -> int:
    """Bytes beyond the weights while they are loaded: a batch of tensors, mapped from their file.

    The loader copies tensors out of a mapped file, whose pages count as resident until it is
    closed; it opens the file anew for every `LOAD_BATCH_BYTES`, or for one tensor that is larger.
    """
    stored = facts.num_parameters * dtype_bytes(facts.dtype)
    largest = facts.largest_tensor_bytes
    if largest is None:
        decoder = facts.decoder
        largest = decoder.vocab_size * decoder.hidden_size * dtype_bytes(facts.dtype)
    return min(stored, max(LOAD_BATCH_BYTES, largest))


def fit_two_points(first: tuple[int, int], second: tuple[int, int]) -> tuple[float, int]:
    """(slope, offset) of the line through two probes (x, measured bytes); offset not below 0.

    Raises:
        ValueError: both probes have the same x.
    """
    (x1, y1), (x2, y2) = sorted((first, second))
    if x1 == x2:
        raise ValueError("two probes of different size are needed")
    slope = max(0.0, (y2 - y1) / (x2 - x1))
    return slope, max(0, round(y1 - slope * x1))


def calibrated(
    coefficients: Coefficients,
    *,
    encoder: tuple[tuple[int, int], tuple[int, int]] | None = None,
    prefill: tuple[tuple[int, int], tuple[int, int]] | None = None,
    main_bytes: int | None = None,
) -> Coefficients:
    """Coefficients with what two-point probes say put in.

    Args:
        coefficients: to start from.
        encoder: two pairs (computed bytes, measured growth in bytes) of the encoder.
        prefill: the same for a decoder step.
        main_bytes: measured RSS after imports.
    """
    changes: dict[str, float | int] = {}
    if encoder is not None:
        changes["encoder_factor"] = max(0.1, fit_two_points(*encoder)[0])
    if prefill is not None:
        changes["prefill_factor"] = max(0.1, fit_two_points(*prefill)[0])
    if main_bytes is not None:
        changes["main_bytes"] = main_bytes
    return replace(coefficients, **changes)  # type: ignore[arg-type]
