"""From a job's options and its memory plan to the engine's configuration."""

from typing import Literal, cast

from vlmcli.engine.config import DtypeName, EngineConfig, KvDtypeName
from vlmcli.memory.settings import Budgets
from vlmcli.options import OcrOptions, draft_sources, parse_quantisations
from vlmcli.processors import default_threads


def engine_config(
    options: OcrOptions, budgets: Budgets, *, reads: Literal["lines", "page"]
) -> EngineConfig:
    """The configuration for a job: every pool and batch as the plan says.

    The questions about a page run together where its blocks allow: they share the page's part, and
    one that grows too long waits for the others. So they take seats and no memory.
    """
    drafts = draft_sources(options.drafts)
    num_questions = max(1, len(options.question)) if reads == "page" else 1
    return EngineConfig(
        kv_cache_bytes=budgets.kv_cache_bytes,
        swap_bytes=budgets.swap_bytes,
        graph_bytes=budgets.graph_bytes,
        encoder_graph_tokens=budgets.encoder_graph_tokens,
        grey_pictures=reads == "lines",
        encoder_cache_bytes=budgets.encoder_cache_bytes,
        vision_kv_bytes=budgets.vision_kv_bytes or None,
        vision_cache_bytes=budgets.vision_cache_bytes,
        max_num_seqs=min(budgets.max_num_seqs * num_questions, budgets.max_num_batched_tokens),
        max_num_batched_tokens=budgets.max_num_batched_tokens,
        max_encoder_tokens=budgets.max_encoder_tokens,
        device="cpu" if options.device == "auto" else options.device,
        dtype=cast(DtypeName, options.dtype),
        kv_dtype=cast(KvDtypeName, options.kv_dtype),
        vision_kv_dtype=cast(KvDtypeName, options.vision_kv_dtype),
        quantize=parse_quantisations(options.quantize),
        # Without reuse everything is computed anew: what a run with it is compared with.
        enable_encoder_cache=options.reuse != "off",
        # Prefixes of lines are equal where lines are, and those are read once as it is.
        enable_prefix_caching=options.reuse != "off"
        and (reads == "page" or budgets.vision_cache_bytes > 0),
        enable_drafts=bool(drafts),
        draft_head="draft-head" in drafts,
        draft_own_output="ngram" in drafts,
        num_threads=options.threads or default_threads(),
    )
