"""Does a job fit, with how many pages in flight, and if not, which largest settings would.

Pure: page sizes, model shapes and settings in, a `Plan` out. Renders nothing, loads nothing, and
asks no machine. Pages are taken at their worst: the n largest ones are in flight together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vlmcli.errors import PageError
from vlmcli.memory import estimate
from vlmcli.memory.facts import ModelFacts
from vlmcli.memory.settings import (
    IMAGE_DPI,
    LINE_PITCH_POINTS,
    LINE_READER_BYTES,
    LINE_TOKENS_PER_COLUMN,
    LINES_TOGETHER,
    PAGE_MAX_TOKENS,
    PAGE_OUTPUT_TOKENS,
    PROMPT_TOKENS,
    TOKENS_PER_LINE,
    Budgets,
    PageShape,
    Plan,
    PlanSettings,
    TokenSummary,
    nearest_rank,
)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one page asks for. `output` is what room is kept for, `max_output` the most of it."""

    label: str
    page_pixels: int
    picture_bytes: int
    transit_bytes: int
    patches: int
    visual_tokens: int
    vision_positions: int
    text_positions: int
    output: int
    max_output: int

    @property
    def positions(self) -> int:
        """KV positions that room is kept for."""
        return self.vision_positions + self.text_positions + self.output


@dataclass(frozen=True, slots=True)
class Job:
    """All pages' demands, largest first, with the model and the settings."""

    facts: ModelFacts
    settings: PlanSettings
    demands: tuple[Demand, ...]
    unreadable: tuple[str, ...]


def measure_pages(pages: Sequence[PageShape], facts: ModelFacts, settings: PlanSettings) -> Job:
    """The demands of the pages under the settings; equal sizes are measured once."""
    known: dict[tuple[int, int], Demand | None] = {}
    demands: list[Demand] = []
    unreadable: list[str] = []
    for page in pages:
        size = page.pixel_size(settings.dpi, settings.max_pixels)
        key = (size.width, size.height)
        if key not in known:
            known[key] = _demand(size.width, size.height, facts, settings)
        demand = known[key]
        label = f"{page.document}, page {page.number}"
        if demand is None:
            unreadable.append(label)
        else:
            demands.append(replace(demand, label=label))
    demands.sort(key=lambda demand: (-demand.positions, -demand.page_pixels))
    return Job(facts, settings, tuple(demands), tuple(unreadable))


def _demand(width: int, height: int, facts: ModelFacts, settings: PlanSettings) -> Demand | None:
    """What a picture of this size asks for; None where it has no size or the model refuses it."""
    if not (width and height):
        return None
    if facts.reads == "lines":
        return _line_demand(width, height, facts, settings)
    try:
        geometry = facts.measure(width, height)
    except PageError:
        return None
    most = settings.max_tokens or PAGE_MAX_TOKENS
    rendered, resized = width * height * 3, geometry.width * geometry.height * 3
    return Demand(
        label="",
        page_pixels=width * height,
        picture_bytes=rendered + resized,
        transit_bytes=rendered,
        patches=geometry.num_patches,
        visual_tokens=geometry.num_tokens,
        vision_positions=geometry.num_tokens,
        text_positions=geometry.num_markers + PROMPT_TOKENS,
        output=min(most, PAGE_OUTPUT_TOKENS),
        max_output=most,
    )


def _line_demand(width: int, height: int, facts: ModelFacts, settings: PlanSettings) -> Demand:
    """A page for a line reader: KV of its widest line; tokens as if it were full of print."""
    pitch = max(1.0, LINE_PITCH_POINTS / 72 * min(settings.dpi, IMAGE_DPI))
    scale = facts.line_height / pitch
    row = min(max(1, round(width * scale)), 4 * facts.max_line_width)
    rows = max(1, round(height / pitch))
    widest = facts.measure(facts.max_line_width, facts.line_height)
    columns = widest.num_tokens
    tokens = rows * max(1, round(row / facts.max_line_width * columns))
    crops = rows * row * facts.line_height
    most = settings.max_tokens or 8 * columns + 16
    return Demand(
        label="",
        page_pixels=width * height,
        picture_bytes=crops,
        transit_bytes=crops,
        patches=widest.num_patches,
        visual_tokens=tokens,
        vision_positions=columns,
        text_positions=2,
        output=min(most, LINE_TOKENS_PER_COLUMN * columns + 16),
        max_output=most,
    )


def terms_for(job: Job, pages_in_flight: int) -> dict[str, int]:
    """Every term of the memory model in bytes, with the `pages_in_flight` largest pages at once.

    They add up to the peak. Encoder and decoder never run at the same time, so the larger counts.
    """
    facts, settings = job.facts, job.settings
    weigh = settings.coefficients
    dtype = settings.resolve_dtype(facts)
    encoder, decoder = _activations(job, pages_in_flight, dtype)
    terms = {
        "weights": estimate.weights(facts.num_parameters, dtype),
        "runtime_context": estimate.runtime_context(settings.device, weigh),
        "graph_pool": estimate.graph_pool(
            settings.device, facts.decoder.num_layers, settings.num_graph_buckets, weigh
        ),
        "activations": max(encoder, decoder),
        "embeddings": _embeddings(job, pages_in_flight, dtype),
        "kv": _kv(job, pages_in_flight),
        "vision_cache": settings.resolve_vision_cache(facts),
    }
    if settings.device == "cpu":
        terms |= _host_terms(job, pages_in_flight)
    loading = estimate.loading_peak(facts, dtype)
    terms["loading"] = 0
    if settings.device == "cpu":
        # While weights are read there are no activations, embeddings, KV or caches yet.
        later = ("activations", "embeddings", "kv", "vision_cache")
        terms["loading"] = max(0, loading - sum(terms[name] for name in later))
    terms["margin"] = estimate.margin(sum(terms.values()) - terms["weights"], weigh)
    return terms


def _host_terms(job: Job, pages_in_flight: int) -> dict[str, int]:
    settings, demands = job.settings, job.demands
    largest = max((demand.page_pixels for demand in demands), default=0)
    pictures = sorted((demand.picture_bytes for demand in demands), reverse=True)
    transit = max((demand.transit_bytes for demand in demands), default=0)
    staged = pictures[:pages_in_flight]
    if job.facts.reads == "lines" and sum(staged) > LINE_READER_BYTES:
        staged = [LINE_READER_BYTES + pictures[0]]
    return {
        "pixels": estimate.pixel_staging(staged, transit),
        "page_workers": estimate.page_workers(settings.jobs, largest, settings.coefficients),
    }


def _activations(job: Job, pages_in_flight: int, dtype: str) -> tuple[int, int]:
    """Peaks of the encoder and of a decoder step."""
    facts, settings = job.facts, job.settings
    encoder = estimate.encoder_peak(
        facts.towers, _encode_patches(job, pages_in_flight), dtype, settings.coefficients
    )
    num_seqs = _num_seqs(job, pages_in_flight)
    longest = max((d.positions - d.output + d.max_output for d in job.demands), default=0)
    context = _context_tokens(job, pages_in_flight)
    chunk = min(_batched_tokens(job, pages_in_flight), context)
    # A line reader drafts whole lines, so that nearly every row of a step wants logits.
    rows = chunk if facts.reads == "lines" else num_seqs
    decoder = estimate.prefill_peak(
        facts.decoder,
        chunk_tokens=chunk,
        context_tokens=context,
        longest_context=longest,
        logit_rows=rows,
        dtype=dtype,
        device=settings.device,
        coefficients=settings.coefficients,
    )
    return encoder, decoder


def _encode_patches(job: Job, pages_in_flight: int) -> int:
    """Rows of the largest encode batch: a picture is never split, small ones are taken together."""
    largest = max((demand.patches for demand in job.demands), default=0)
    num_pictures = _num_seqs(job, pages_in_flight)
    if job.settings.device == "cpu":
        return max(largest, min(estimate.CPU_ENCODE_PATCHES, num_pictures * largest))
    return largest * num_pictures if job.facts.reads == "lines" else largest


def _num_seqs(job: Job, pages_in_flight: int) -> int:
    """Sequences that run together: lines of the pages in flight, or the pages themselves."""
    wanted = min(pages_in_flight, len(job.demands))
    if job.facts.reads == "lines":
        wanted *= LINES_TOGETHER
    return max(1, min(wanted, job.settings.max_num_seqs))


def _batched_tokens(job: Job, pages_in_flight: int) -> int:
    """Most query tokens of a step; lines have no use for more than their own."""
    limit = job.settings.resolve_batched_tokens(job.facts)
    if job.facts.reads == "lines":
        return min(limit, TOKENS_PER_LINE * _num_seqs(job, pages_in_flight))
    return limit


def _context_tokens(job: Job, pages_in_flight: int) -> int:
    """KV positions of all sequences that run together."""
    if not job.demands:
        return 0
    if job.facts.reads == "lines":
        return _num_seqs(job, pages_in_flight) * job.demands[0].positions
    return sum(demand.positions for demand in job.demands[:pages_in_flight])


def _embeddings(job: Job, pages_in_flight: int, dtype: str) -> int:
    """Two pages' (or one batch of lines') visual tokens: one decoded from, one encoded ahead."""
    if not job.demands:
        return 0
    if job.facts.reads == "lines":
        tokens = 2 * _num_seqs(job, pages_in_flight) * job.demands[0].vision_positions
    else:
        counts = sorted((demand.visual_tokens for demand in job.demands), reverse=True)
        tokens = sum(counts[:2])
    return estimate.embeddings_in_flight(tokens, job.facts.embedding_width, dtype)


def _kv(job: Job, pages_in_flight: int) -> int:
    """KV of the sequences that run together; the largest may grow to its last token."""
    if not job.demands:
        return 0
    sizes = [_page_kv(job, demand, demand.output) for demand in job.demands[:pages_in_flight]]
    largest = job.demands[0]
    growth = _page_kv(job, largest, largest.max_output) - sizes[0]
    if job.facts.reads == "lines":
        return _num_seqs(job, pages_in_flight) * sizes[0] + growth
    return sum(sizes) + growth


def _page_kv(job: Job, demand: Demand, output: int) -> int:
    settings, facts = job.settings, job.facts
    return estimate.kv_bytes(
        facts.decoder,
        vision_tokens=demand.vision_positions,
        text_tokens=demand.text_positions + output,
        kv_dtype=settings.resolve_kv_dtype(facts),
        vision_kv_dtype=settings.resolve_vision_kv_dtype(facts),
        block_size=settings.block_size,
    )


def plan_job(
    pages: Sequence[PageShape], facts: ModelFacts, settings: PlanSettings, cap_bytes: int
) -> Plan:
    """Plan a job, without remedies: `remedies.find_remedies` adds them where it does not fit.

    Args:
        pages: the job's pages, measured.
        facts: the model.
        settings: the options.
        cap_bytes: most memory that the job may take, on the device (a CPU's is main memory).
    """
    job = measure_pages(pages, facts, settings)
    most = max(1, min(settings.max_pages_in_flight, len(job.demands)))
    in_flight = largest_that_fits(job, cap_bytes, most)
    terms = terms_for(job, in_flight)
    host = replace(job, settings=replace(settings, device="cpu"))
    return Plan(
        model=facts.name,
        num_parameters=facts.num_parameters,
        device=settings.device,
        dtype=settings.resolve_dtype(facts),
        kv_dtype=settings.resolve_kv_dtype(facts),
        vision_kv_dtype=settings.resolve_vision_kv_dtype(facts),
        num_pages=len(pages),
        unreadable_pages=job.unreadable,
        peak_bytes=sum(terms.values()),
        cap_bytes=cap_bytes,
        terms=terms,
        pages_in_flight=in_flight,
        max_pages_in_flight=most,
        visual_tokens=_summary(job),
        budgets=_budgets(job, in_flight, terms),
        host_bytes=sum(terms.values())
        if settings.device == "cpu"
        else settings.coefficients.main_bytes + sum(_host_terms(host, in_flight).values()),
        minimum_bytes=sum(terms_for(job, 1).values()),
        remedies=(),
        unverified=facts.unverified,
        calibrated=settings.is_calibrated,
    )


def largest_that_fits(job: Job, cap_bytes: int, most: int) -> int:
    """The largest number of pages in flight, up to `most`, that stays under the cap; at least 1."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        if sum(terms_for(job, middle).values()) <= cap_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def _budgets(job: Job, in_flight: int, terms: dict[str, int]) -> Budgets:
    facts = job.facts
    num_seqs = _num_seqs(job, in_flight)
    tokens = max((demand.vision_positions for demand in job.demands), default=1)
    return Budgets(
        kv_cache_bytes=terms["kv"] + terms["vision_cache"],
        vision_cache_bytes=terms["vision_cache"],
        encoder_cache_bytes=terms["embeddings"],
        pixel_bytes=_host_terms(job, in_flight)["pixels"],
        max_num_seqs=num_seqs,
        max_num_batched_tokens=max(num_seqs, _batched_tokens(job, in_flight)),
        max_encoder_tokens=tokens * (num_seqs if facts.reads == "lines" else 1),
        pages_in_flight=in_flight,
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
        estimated=job.facts.reads == "lines",
    )
