"""The memory of captured graphs: a function of shapes, and of how many sequences run together.

Integers alone. Nothing of it is measured yet on a GPU of our own: the constant per kernel is from
others' logs. What graphs really take is bounded by it all the same: those beyond are dropped.
"""

from vlmcli.engine.buckets import (
    DECODE_BUCKETS,
    ENCODER_TOKENS,
    VERIFY_WIDTHS,
    encoder_buckets,
    make_buckets,
)
from vlmcli.memory.demand import Job
from vlmcli.memory.estimate import dtype_bytes, encoder_peak, step_numbers

_SHARE_ROWS = 256 * 128
"""Programs that share contexts, and query rows of one, at the most: `kernels.paged_attention`."""
_MANY_PIXELS = 1000
"""Sides of a picture that every family with tiles cuts into several."""


def encoder_graph_tokens(job: Job) -> int:
    """Visual tokens of the largest graph of pictures; 0 where there are none.

    Lines and tiles have graphs. Whole pages have none: each is a batch of thousands of tokens, that
    no bucket holds. Nor has a CPU.
    """
    if job.settings.device == "cpu" or job.model.foreign is not None:
        return 0
    facts = job.model
    if facts.reads == "lines" or facts.measure(_MANY_PIXELS, _MANY_PIXELS).grid_thw[0] > 1:
        return ENCODER_TOKENS
    return 0


def graph_pool(job: Job, num_seqs: int) -> int:
    """Bytes of the captured graphs of pictures, decode and verify steps; a CPU captures none.

    What the driver keeps of every kernel of every graph, the static inputs of pictures, and one
    pool for all of them: activations of the largest bucket, and what programs find that share a
    context. The product with the vocabulary is in no graph.

    Args:
        job: its model, device and number format.
        num_seqs: sequences that run together; larger buckets than they need are not captured.
    """
    if job.settings.device == "cpu":
        return 0
    decoder, dtype = job.model.decoder, job.settings.resolve_dtype(job.model)
    buckets = make_buckets(DECODE_BUCKETS, VERIFY_WIDTHS, num_seqs)
    kept = decoder.num_layers * len(buckets) * job.weigh.graph_layer_bytes
    shares = _SHARE_ROWS * decoder.head_dim * 4
    num_rows = max(bucket.num_rows for bucket in buckets)
    pool = num_rows * step_numbers(decoder) * dtype_bytes(dtype) + shares
    pictures, activations = _of_pictures(job, dtype)
    return kept + pictures + max(pool, activations)


def _of_pictures(job: Job, dtype: str) -> tuple[int, int]:
    """Bytes that graphs of pictures keep, and those that they share with the others."""
    tokens, towers = encoder_graph_tokens(job), job.model.towers
    if not tokens:
        return 0, 0
    unit_tokens, unit_patches = _unit(job)
    buckets = encoder_buckets(tokens, None, unit_tokens)
    patches = buckets[-1] * unit_patches // unit_tokens
    first = towers[0]
    angles = 2 * (first.hidden_size // first.num_heads) * dtype_bytes(dtype)
    static = patches * (first.patch_values + len(buckets) * angles)
    layers = sum(tower.num_layers for tower in towers)
    kept = layers * len(buckets) * job.weigh.graph_layer_bytes
    return kept + static, encoder_peak(towers, patches, dtype, job.weigh)


def _unit(job: Job) -> tuple[int, int]:
    """Visual tokens and patches of which a bucket is made: of a tile, or of one token of a line."""
    facts = job.model
    if facts.reads == "lines":
        line = facts.measure(facts.max_line_width, facts.line_height)
        return 1, -(-line.num_patches // line.num_tokens)
    page = facts.measure(_MANY_PIXELS, _MANY_PIXELS)
    num_tiles = page.grid_thw[0]
    num_patches = page.num_patches // num_tiles
    # LLaVA-OneVision drops tokens behind the tower, where it knows where its tiles lie.
    is_whole = facts.model_type == "llava_onevision"
    return num_patches if is_whole else page.num_tokens // num_tiles, num_patches
