"""Every term of the memory model for one load of a job, and the largest load that fits.

A load says how much is worked on at once. Pages are taken at their worst: the largest ones are in
work together, some of them with the workers, the others with the model. What a page takes while it
is drawn and what it takes while it is read never stand together, so a job of one page needs the
larger of the two.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest

from vlmcli.memory import estimate
from vlmcli.memory.demand import Demand, Job
from vlmcli.memory.foreign import foreign_terms
from vlmcli.memory.graphs import graph_pool
from vlmcli.memory.loads import Load, loads
from vlmcli.memory.quantised import held_bytes
from vlmcli.memory.settings import (
    LINE_READER_BYTES,
    SWAP_BYTES,
    TOKENS_PER_LINE,
    Pools,
)

_ALONE_MARGIN = 12 << 20
"""Where pages take turns with the model, nothing else gives way to what the plan does not see:
eight pages took up to 5 MiB more than was planned (measured on an idle machine)."""
_POOLS = ("kv", "vision_cache")


def largest_that_fits(job: Job, cap_bytes: int) -> Load:
    """The most demanding load that stays under the cap; the least one if none does."""
    choices = useful_loads(job)
    low, high = 0, len(choices) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if peak(job, choices[middle]) <= cap_bytes:
            low = middle
        else:
            high = middle - 1
    return choices[low]


def floor_bytes(job: Job) -> int:
    """The least that drawing the job's pages takes, before any is read by a model."""
    costly = sorted(job.demands, key=lambda demand: -demand.worker_bytes)
    load = Load(pages=0, sequences=0, jobs=1)
    return sum(_with_margin(job, _host_terms(job, load, False, costly[:1], ())).values())


def least_bytes(job: Job) -> int:
    """The least that the job takes with its settings."""
    return peak(job, useful_loads(job)[0])


def useful_loads(job: Job) -> list[Load]:
    """The loads in the order of what they take: those that wait in turn have to save something.

    With small pages the margin for taking turns is more than what a page drawn meanwhile takes.
    """
    choices = loads(job)
    alone = [load for load in choices if not load.overlap]
    others = choices[len(alone) :]
    if not alone or not others:
        return choices
    bar = peak(job, others[0])
    if peak(job, alone[-1]) < bar:
        return choices
    return [*(load for load in alone if peak(job, load) < bar), *others]


def peak(job: Job, load: Load) -> int:
    """Sum of all terms."""
    return sum(terms_for(job, load).values())


def terms_for(job: Job, load: Load) -> dict[str, int]:
    """Every term in bytes by name, at the worst moment of the job; they add up to the peak."""
    if job.settings.device != "cpu":
        return _with_margin(job, model_terms(job, load, job.demands))
    moments = (
        _with_margin(job, _host_terms(job, load, is_loaded, drawn, read))
        for is_loaded, drawn, read in _moments(job, load)
    )
    terms = max(moments, key=lambda terms: sum(terms.values()))
    if not load.overlap:
        terms["margin"] += _ALONE_MARGIN
    return terms


def host_bytes(job: Job, load: Load) -> int:
    """Main memory of a job whose model is on another device."""
    weigh = job.weigh
    drawn = nlargest(load.jobs, job.demands, key=lambda demand: demand.worker_bytes)
    loading = estimate.loading_peak(job.model)
    terms = {
        "loading": loading,
        "swap": swap_bytes(job, pools_for(job, load).kv),
        "drafting": _drafting(job),
        "pinned": _pinned(job, load),
        **_page_terms(job, load, drawn, job.demands),
    }
    return weigh.main_bytes + sum(_with_margin(job, terms).values())


def _moments(job: Job, load: Load) -> Iterator[tuple[bool, Sequence[Demand], Sequence[Demand]]]:
    """Ways in which the pages can be with the workers and with the model at the same time.

    Yields:
        Whether the model is loaded, the pages that are drawn, and those that are read.
    """
    count = len(job.demands)
    workers = min(load.jobs, count)
    costly = sorted(job.demands, key=lambda demand: -demand.worker_bytes)
    if job.facts is None or not count:
        yield False, costly[:workers], job.demands if job.settings.remote_pages else ()
        return
    yield True, (), job.demands
    if workers == count:
        yield False, costly, ()
    elif not load.overlap:
        yield True, costly[:1], ()
    else:
        yield True, costly[:workers], _without(job.demands, costly[:workers])
        largest = job.demands[: min(load.pages, count - workers)]
        yield True, _without(costly, largest)[:workers], largest


def _without(demands: Sequence[Demand], taken: Sequence[Demand]) -> list[Demand]:
    marks = {id(demand) for demand in taken}
    return [demand for demand in demands if id(demand) not in marks]


def _host_terms(
    job: Job, load: Load, is_loaded: bool, drawn: Sequence[Demand], read: Sequence[Demand]
) -> dict[str, int]:
    """Terms of a moment on a CPU."""
    pages = _page_terms(job, load, drawn, read)
    if not is_loaded:
        return {"runtime_context": job.weigh.light_bytes, **pages}
    terms = model_terms(job, load, read)
    # While weights are read there are no activations, embeddings or pools yet.
    later = sum(terms[name] for name in ("activations", "embeddings", *_POOLS))
    later += job.weigh.first_use_bytes
    terms["loading"] = max(0, estimate.loading_peak(job.model) - later)
    return {**terms, "drafting": _drafting(job), **pages}


def _drafting(job: Job) -> int:
    return 0 if job.settings.drafting is None else job.settings.drafting.num_bytes


def _page_terms(
    job: Job, load: Load, drawn: Sequence[Demand], read: Sequence[Demand]
) -> dict[str, int]:
    """Pictures in the main process, the page workers, and what is kept of finished pages."""
    weigh = job.weigh
    workers = max(1, min(load.jobs, len(job.demands)))
    return {
        "pixels": reader_bytes(job, load, read) if read else 0,
        "page_workers": workers * weigh.worker_bytes + sum(one.worker_bytes for one in drawn),
        "results": _results(job),
        "outputs": job.settings.writer_bytes
        + max((one.writing_bytes for one in job.demands), default=0),
    }


def reader_bytes(job: Job, load: Load, demands: Sequence[Demand]) -> int:
    """Pixels that wait for the model or are read: of the pages in flight, and some ahead."""
    sizes = [demand.picture_bytes for demand in demands]
    if not load.overlap:
        return max(sizes, default=0)
    if job.facts is not None and job.facts.reads == "lines":
        return min(sum(sizes), LINE_READER_BYTES + sum(nlargest(2 * load.jobs, sizes)))
    return sum(nlargest(load.pages + load.jobs, sizes))


def _results(job: Job) -> int:
    """Answers to lines, kept for lines that are equal, and the drafts that they were made of."""
    if job.facts is None or job.facts.reads == "page":
        return 0
    lines = sum(demand.sequences for demand in job.demands)
    answers = min(estimate.MOST_CROPS_KNOWN, lines) * estimate.CROP_KNOWN_BYTES
    return answers + min(estimate.MOST_DRAFTS_KNOWN, lines) * estimate.DRAFT_KNOWN_BYTES


def model_terms(job: Job, load: Load, read: Sequence[Demand]) -> dict[str, int]:
    """Terms of a loaded model that reads these pages, without those of the pages themselves."""
    facts, settings = job.model, job.settings
    weigh, dtype = job.weigh, settings.resolve_dtype(job.model)
    if facts.foreign is not None:
        patches = [demand.patches for demand in read]
        return foreign_terms(facts, patches, dtype, settings.device, weigh)
    pools = pools_for(job, load)
    return {
        "weights": held_bytes(facts, settings.quantize, dtype),
        "runtime_context": estimate.runtime_context(settings.device, weigh),
        "graph_pool": graph_pool(job, load.sequences),
        "activations": _activations(job, load, read, dtype),
        "embeddings": pools.embeddings,
        "kv": pools.kv,
        "vision_cache": pools.vision_cache,
    }


def pools_for(job: Job, load: Load) -> Pools:
    """The engine's pools: as they are where they exist already, else as large as the job needs."""
    settings = job.settings
    if settings.pools is not None:
        return settings.pools
    dtype = settings.resolve_dtype(job.model)
    return Pools(
        kv=_kv(job, load),
        vision_cache=vision_cache_bytes(job),
        embeddings=_embeddings(job, load, dtype),
    )


def _with_margin(job: Job, terms: dict[str, int]) -> dict[str, int]:
    """The terms and the margin, which weights and pools need none of: their sizes are exact."""
    exact = sum(terms.get(name, 0) for name in ("weights", "loading", *_POOLS))
    moving = sum(terms.values()) - exact
    return {**terms, "margin": estimate.margin(moving, job.weigh)}


def _activations(job: Job, load: Load, read: Sequence[Demand], dtype: str) -> int:
    """The larger of encoder and decoder step, or of the copies made when a page is handed over.

    A GPU encodes a page while it decodes others, so that both steps stand together there.
    """
    if not read:
        return 0
    facts, settings = job.model, job.settings
    encoder = estimate.encoder_peak(
        facts.towers, _encode_patches(job, load, read), dtype, job.weigh
    )
    longest = max(one.most_positions for one in read)
    context = _context_tokens(job, load, read)
    chunk = min(batched_tokens(job, load), context)
    # A line reader drafts whole lines, so that nearly every row of a step wants logits.
    rows = chunk if facts.reads == "lines" else load.sequences
    decoder = estimate.prefill_peak(
        facts.decoder,
        chunk_tokens=chunk,
        context_tokens=context,
        longest_context=longest,
        logit_rows=rows,
        dtype=dtype,
        device=settings.device,
        coefficients=job.weigh,
    )
    is_beside = settings.device != "cpu" and len(job.demands) > 1
    step = encoder + decoder if is_beside else max(encoder, decoder)
    step += estimate.heap_slack(settings.device, step, job.weigh)
    return max(step, _staging(job, read))


def _pinned(job: Job, load: Load) -> int:
    """Pixels of an encoder batch on their way to the device: torch pins powers of two."""
    if not job.demands or job.model.foreign is not None:
        return 0
    patches = _encode_patches(job, load, job.demands)
    return 1 << (patches * job.model.towers[0].patch_values - 1).bit_length()


def _staging(job: Job, read: Sequence[Demand]) -> int:
    """Copies made while a page is handed over. The job's only page is, before the first step."""
    if job.settings.device != "cpu":
        return 0
    staging = max(one.staging_bytes for one in read)
    return staging - job.weigh.first_use_bytes if len(job.demands) == 1 else staging


def _encode_patches(job: Job, load: Load, read: Sequence[Demand]) -> int:
    """Rows of the largest encode batch: a picture is never split, small ones are taken together."""
    largest = max(demand.patches for demand in read)
    if job.settings.device == "cpu":
        return max(largest, min(estimate.CPU_ENCODE_PATCHES, load.sequences * largest))
    return largest * load.sequences if job.model.reads == "lines" else largest


def batched_tokens(job: Job, load: Load) -> int:
    """Most query tokens of a step; lines have no use for more than their own."""
    limit = job.settings.resolve_batched_tokens(job.model)
    if job.model.reads == "lines":
        columns = max((demand.vision_positions for demand in job.demands), default=1)
        return min(limit, min(TOKENS_PER_LINE, 3 * columns + 8) * load.sequences)
    return limit


def _context_tokens(job: Job, load: Load, read: Sequence[Demand]) -> int:
    """KV positions of all sequences that run together."""
    if job.model.reads == "lines":
        return load.sequences * max(demand.positions for demand in read)
    return sum(nlargest(load.pages, (demand.positions for demand in read)))


def _embeddings(job: Job, load: Load, dtype: str) -> int:
    """Two pages' (or one batch of lines') visual tokens: one decoded from, one encoded ahead."""
    if not job.demands:
        return 0
    if job.model.reads == "lines":
        tokens = 2 * load.sequences * job.demands[0].vision_positions
    else:
        tokens = sum(nlargest(2, (demand.visual_tokens for demand in job.demands)))
    return estimate.embeddings_in_flight(tokens, job.model.embedding_width, dtype)


def _kv(job: Job, load: Load) -> int:
    """KV of the sequences that run together; the largest may grow to its last token.

    One block more is the null block, at which padding points.
    """
    settings = job.settings
    null = settings.block_size * estimate.kv_bytes_per_token(
        job.model.decoder, settings.resolve_kv_dtype(job.model)
    )
    vision = vision_kv_bytes(job, load)
    if not job.demands:
        return null + vision
    demands = job.demands[: load.pages]
    if job.model.reads == "lines":
        demands = demands[:1] * load.sequences
    sizes = [_sequence_kv(job, demand, demand.positions) for demand in demands]
    most = max(demand.most_positions for demand in job.demands)
    growth = _sequence_kv(job, demands[0], most) - sizes[0]
    own = sum(_vision_blocks(job, demands)) * _vision_block(job) if vision else 0
    return sum(sizes) - own + vision + growth + null


def vision_kv_bytes(job: Job, load: Load) -> int:
    """The part of it for blocks of image tokens, where these have a format of their own; else 0.

    It has a null block of its own, and room for the widest line that there can be.
    """
    facts, settings = job.model, job.settings
    if settings.resolve_vision_kv_dtype(facts) == settings.resolve_kv_dtype(facts):
        return 0
    demands = job.demands[: load.pages]
    blocks = sum(_vision_blocks(job, demands))
    if facts.reads == "lines":
        widest = facts.measure(facts.max_line_width, facts.line_height).num_tokens
        together = load.sequences * max(_vision_blocks(job, demands), default=0)
        blocks = max(together, widest // settings.block_size)
    return (max(1, blocks) + 1) * _vision_block(job)


def swap_bytes(job: Job, kv_bytes: int) -> int:
    """Main memory for preempted sequences, never more than the pool that they are from."""
    return min(SWAP_BYTES[job.settings.device], kv_bytes)


def _vision_blocks(job: Job, demands: Iterable[Demand]) -> list[int]:
    """Blocks that the image of one sequence can fill, of each."""
    return [demand.vision_positions // job.settings.block_size for demand in demands]


def _vision_block(job: Job) -> int:
    settings = job.settings
    dtype = settings.resolve_vision_kv_dtype(job.model)
    return settings.block_size * estimate.kv_bytes_per_token(job.model.decoder, dtype)


def _sequence_kv(job: Job, demand: Demand, positions: int) -> int:
    settings, facts = job.settings, job.model
    return estimate.kv_bytes(
        facts.decoder,
        vision_tokens=demand.vision_positions,
        text_tokens=positions - demand.vision_positions,
        kv_dtype=settings.resolve_kv_dtype(facts),
        vision_kv_dtype=settings.resolve_vision_kv_dtype(facts),
        block_size=settings.block_size,
    )


def vision_cache_bytes(job: Job) -> int:
    """What finished pages may keep, and no more than they have."""
    settings, facts = job.settings, job.model
    tokens = sum(demand.visual_tokens for demand in job.demands)
    width = estimate.kv_bytes_per_token(facts.decoder, settings.resolve_vision_kv_dtype(facts))
    return min(settings.resolve_vision_cache(facts), tokens * width)
