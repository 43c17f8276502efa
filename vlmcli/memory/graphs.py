"""The memory of captured graphs: a function of shapes, and of how many sequences run together.

Integers alone. Nothing of it is measured yet on a GPU of our own: the constant per kernel is from
others' logs. What graphs really take is bounded by it all the same: those beyond are dropped.
"""

from vlmcli.engine.buckets import DECODE_BUCKETS, VERIFY_WIDTHS, make_buckets
from vlmcli.memory.demand import Job
from vlmcli.memory.estimate import dtype_bytes, step_numbers

_SHARE_ROWS = 256 * 128
"""Programs that share contexts, and query rows of one, at the most: `kernels.paged_attention`."""


def graph_pool(job: Job, num_seqs: int) -> int:
    """Bytes of the captured graphs of decode and verify steps; a CPU captures none.

    What the driver keeps of every kernel of every graph, and one pool for all of them: activations
    of the largest bucket, and what programs find that share a context. The product with the
    vocabulary is in no graph.

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
    return kept + num_rows * step_numbers(decoder) * dtype_bytes(dtype) + shares
