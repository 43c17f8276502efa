"""Does a job fit, with how many pages in flight, and what bounds keep it there.

Pure: page sizes, model shapes and settings in, a `Plan` out. Renders nothing, loads nothing, and
asks no machine.
"""

from collections.abc import Sequence
from heapq import nlargest

from vlmcli.memory import estimate
from vlmcli.memory.demand import Job, measure_pages
from vlmcli.memory.facts import ModelFacts
from vlmcli.memory.graphs import encoder_graph_tokens, graph_pool
from vlmcli.memory.loads import Load, loads
from vlmcli.memory.settings import (
    Budgets,
    PageShape,
    Plan,
    PlanSettings,
    Pools,
    TokenSummary,
    nearest_rank,
)
from vlmcli.memory.terms import (
    batched_tokens,
    host_bytes,
    largest_that_fits,
    least_bytes,
    pools_for,
    reader_bytes,
    swap_bytes,
    terms_for,
    vision_kv_bytes,
)


def plan_job(
    pages: Sequence[PageShape], facts: ModelFacts, settings: PlanSettings, cap_bytes: int
) -> Plan:
    """Plan a job, without remedies: `remedies.plan_with_remedies` adds them where it does not fit.

    Args:
        pages: the job's pages, measured.
        facts: the model.
        settings: the options.
        cap_bytes: most memory that the job may take, on the device (a CPU's is main memory).
    """
    return plan_measured(measure_pages(pages, facts, settings), len(pages), cap_bytes)


def plan_measured(job: Job, num_pages: int, cap_bytes: int) -> Plan:
    """As `plan_job`, for a job that is measured already."""
    facts, settings = job.model, job.settings
    load = largest_that_fits(job, cap_bytes)
    terms = terms_for(job, load)
    is_host = settings.device == "cpu"
    if is_host:
        terms["reuse"] = _reuse(job, cap_bytes - sum(terms.values()))
    return Plan(
        model=facts.name,
        num_parameters=facts.num_parameters,
        device=settings.device,
        dtype=settings.resolve_dtype(facts),
        kv_dtype=settings.resolve_kv_dtype(facts),
        vision_kv_dtype=settings.resolve_vision_kv_dtype(facts),
        num_pages=num_pages,
        unreadable_pages=job.unreadable,
        peak_bytes=sum(terms.values()),
        cap_bytes=cap_bytes,
        terms=terms,
        pages_in_flight=load.pages,
        max_pages_in_flight=max(choice.pages for choice in loads(job)),
        visual_tokens=_summary(job),
        budgets=budgets_for(job, load),
        host_bytes=sum(terms.values()) if is_host else host_bytes(job, load),
        minimum_bytes=least_bytes(job),
        remedies=(),
        unverified=facts.unverified,
        calibrated=settings.resolve_dtype(facts) in settings.measured,
        foreign="" if facts.foreign is None else facts.foreign.statement,
    )


def _reuse(job: Job, spare: int) -> int:
    return estimate.reuse_room(
        [demand.page_pixels for demand in job.demands],
        spare,
        compares=job.settings.compares_pages,
        keeps=job.settings.keeps_results,
    )


def plan_drawing(job: Job, cap_bytes: int) -> Budgets:
    """The bounds of a job in which no page is for a model."""
    return budgets_for(job, largest_that_fits(job, cap_bytes))


def budgets_for(job: Job, load: Load) -> Budgets:
    """The bounds that keep an engine, and the pages in work, to a load."""
    facts = job.facts
    pools = Pools(kv=0, vision_cache=0, embeddings=0) if facts is None else pools_for(job, load)
    step = 0 if facts is None else batched_tokens(job, load)
    vision = 0 if facts is None else vision_kv_bytes(job, load)
    tokens = max((demand.vision_positions for demand in job.demands), default=1)
    by_lines = facts is not None and facts.reads == "lines"
    drawn = (demand.worker_bytes for demand in job.demands)
    return Budgets(
        kv_cache_bytes=pools.kv + pools.vision_cache,
        vision_kv_bytes=vision + pools.vision_cache if vision else 0,
        vision_cache_bytes=pools.vision_cache,
        encoder_cache_bytes=pools.embeddings,
        swap_bytes=0 if facts is None else swap_bytes(job, pools.kv),
        graph_bytes=0 if facts is None else graph_pool(job, load.sequences),
        encoder_graph_tokens=0 if facts is None else encoder_graph_tokens(job),
        max_num_seqs=load.sequences,
        max_num_batched_tokens=max(load.sequences, step),
        max_encoder_tokens=tokens * (load.sequences if by_lines else 1),
        pages_in_flight=load.pages,
        jobs=load.jobs,
        overlap=load.overlap,
        worker_bytes=sum(nlargest(load.jobs, drawn)),
        reader_bytes=reader_bytes(job, load, job.demands),
        drafting=None if job.settings.drafting is None else job.settings.drafting.budgets,
    )


def _summary(job: Job) -> TokenSummary:
    counts = sorted(demand.visual_tokens for demand in job.demands)
    if not counts:
        return TokenSummary(min=0, median=0, p95=0, max=0, max_page="", total=0, estimated=False)
    largest = max(job.demands, key=lambda demand: demand.visual_tokens)
    return TokenSummary(
        min=counts[0],
        median=nearest_rank(counts, 0.5),
        p95=nearest_rank(counts, 0.95),
        max=counts[-1],
        max_page=largest.label,
        total=sum(counts),
        estimated=job.model.reads == "lines",
    )
