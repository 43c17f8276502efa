"""The largest settings under which a job fits after all, each as a command line to paste.

Tries the settings in the order in which users give them up most easily: fewer pages in flight
(which a plan does by itself), fewer pixels, a smaller vision cache, int8 KV, a smaller number
format. Where none is enough alone it combines them, and where all together are not enough it says
how much memory it takes.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from vlmcli.memory.demand import Job, measure_pages
from vlmcli.memory.facts import DTYPE_BYTES, ModelFacts
from vlmcli.memory.plan import plan_job
from vlmcli.memory.settings import PageShape, Plan, PlanSettings, Remedy
from vlmcli.memory.terms import least_bytes, vision_cache_bytes
from vlmcli.options import format_size

MIB = 1 << 20
MIN_PIXELS = 400_000
"""Below that (A4 at 64 dpi) no page of text can be read, so that it is no remedy."""
_STEP = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """The command that the user would run: its words, and its options by name.

    Only options that it `accepts` are offered as a remedy; None stands for all.
    """

    words: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    accepts: frozenset[str] | None = None

    def takes(self, options: Iterable[str]) -> bool:
        """Whether the command has all these options."""
        return self.accepts is None or self.accepts.issuperset(options)

    def changed(self, options: Mapping[str, str]) -> str:
        """The line to paste, with some options replaced or added."""
        merged = {**self.options, **options}
        return shlex.join([*self.words, *chain.from_iterable(merged.items())])


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Changed settings, what they are called, and the options that make them."""

    settings: PlanSettings
    words: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Of the options that it changes."""
        return frozenset(name for name, _ in self.options)

    def adding(self, word: str, option: str, value: str, **changes: object) -> "_Attempt":
        return _Attempt(
            replace(self.settings, **changes),  # type: ignore[arg-type]
            (*self.words, word),
            (*self.options, (option, value)),
        )


def plan_with_remedies(
    pages: Sequence[PageShape],
    facts: ModelFacts,
    settings: PlanSettings,
    cap_bytes: int,
    command: CommandLine,
) -> Plan:
    """As `plan_job`, with remedies where the job does not fit.

    Args:
        pages: the job's pages, measured.
        facts: the model.
        settings: the options.
        cap_bytes: most memory that the job may take.
        command: the command line whose options a remedy changes.
    """
    plan = plan_job(pages, facts, settings, cap_bytes)
    if plan.fits:
        return plan
    return replace(plan, remedies=tuple(_remedies(pages, facts, settings, cap_bytes, command)))


def _remedies(
    pages: Sequence[PageShape],
    facts: ModelFacts,
    settings: PlanSettings,
    cap_bytes: int,
    command: CommandLine,
) -> Iterator[Remedy]:
    def least(attempt: _Attempt) -> int:
        return least_bytes(measure_pages(pages, facts, attempt.settings))

    def remedy(attempt: _Attempt) -> Remedy:
        plan = plan_job(pages, facts, attempt.settings, cap_bytes)
        return Remedy(
            description=", ".join(attempt.words),
            command=command.changed(dict(attempt.options)),
            peak_bytes=plan.peak_bytes,
        )

    def fits(attempt: _Attempt) -> bool:
        return command.takes(dict(attempt.options)) and least(attempt) <= cap_bytes

    start, measured = _Attempt(settings), measure_pages(pages, facts, settings)
    singles = [_most_pixels(start, pages, fits)]
    for choices in (
        _smaller_cache(start, measured, least_bytes(measured) - cap_bytes),
        _int8(start, facts),
        _smaller_dtypes(start, facts),
    ):
        singles.append(next(filter(fits, choices), None))
    enough = [attempt for attempt in singles if attempt is not None]
    yield from map(remedy, enough)
    for smaller in _ever_smaller(start, facts):
        if any(attempt.names <= smaller.names for attempt in enough):
            return
        found = smaller if fits(smaller) else None
        if found is None and not enough:
            found = _most_pixels(smaller, pages, fits)
        if found is not None:
            yield remedy(found)
            return
    if enough:
        return
    yield _more_memory(least(start), command)


def _most_pixels(
    attempt: _Attempt, pages: Sequence[PageShape], fits: Callable[[_Attempt], bool]
) -> _Attempt | None:
    """The highest cap on a page's pixels that fits, found by halving; None if none does."""
    attempts = list(_fewer_pixels(attempt, pages))
    if not attempts or not fits(attempts[-1]):
        return None
    low, high = 0, len(attempts) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(attempts[middle]):
            high = middle
        else:
            low = middle + 1
    return attempts[high]


def pixel_caps(pages: Sequence[PageShape], settings: PlanSettings) -> Iterator[int]:
    """Lower caps on a page's pixels, from just below the largest page down to what is legible."""
    shown = [page for page in pages if not page.is_refused(settings.max_pixels)]
    sizes = [page.pixel_size(settings.dpi, settings.max_pixels) for page in shown]
    pixels = max((size.width * size.height for size in sizes), default=0) * _STEP
    while pixels >= MIN_PIXELS:
        yield int(pixels) // 10_000 * 10_000
        pixels *= _STEP


def _fewer_pixels(attempt: _Attempt, pages: Sequence[PageShape]) -> Iterator[_Attempt]:
    """Lower caps on a page's pixels, from just below the largest page down."""
    for cap in pixel_caps(pages, attempt.settings):
        yield attempt.adding(
            f"at most {cap:,} pixels a page", "--max-pixels", str(cap), max_pixels=cap
        )


def _smaller_cache(attempt: _Attempt, job: Job, excess: int) -> Iterator[_Attempt]:
    """The vision cache smaller by what is too much, in whole MiB."""
    cache = vision_cache_bytes(job)
    size = (cache - excess) // MIB
    if size >= 0 and size * MIB < cache:
        yield _with_cache(attempt, size)


def _ever_smaller(start: _Attempt, facts: ModelFacts) -> Iterator[_Attempt]:
    """Everything but the pixels, given up one after the other."""
    current = start
    if start.settings.resolve_vision_cache(facts):
        current = _with_cache(start, 0)
        yield current
    for shrink in (_int8, _smaller_dtypes):
        for smaller in shrink(current, facts):
            yield smaller
            current = smaller


def _with_cache(attempt: _Attempt, mebibytes: int) -> _Attempt:
    word = f"vision cache of {mebibytes} MiB" if mebibytes else "no vision cache"
    return attempt.adding(word, "--vision-cache", f"{mebibytes}MiB", vision_cache=mebibytes * MIB)


def _int8(attempt: _Attempt, facts: ModelFacts) -> Iterator[_Attempt]:
    """KV in int8, pictures first: text KV keeps its precision as long as it may."""
    settings = attempt.settings
    if settings.resolve_vision_kv_dtype(facts) != "int8":
        yield attempt.adding(
            "vision KV in int8", "--vision-kv-dtype", "int8", vision_kv_dtype="int8"
        )
    if settings.resolve_kv_dtype(facts) != "int8":
        yield attempt.adding(
            "all KV in int8", "--kv-dtype", "int8", kv_dtype="int8", vision_kv_dtype="auto"
        )


def _smaller_dtypes(attempt: _Attempt, facts: ModelFacts) -> Iterator[_Attempt]:
    if DTYPE_BYTES[attempt.settings.resolve_dtype(facts)] > DTYPE_BYTES["bfloat16"]:
        yield attempt.adding("bfloat16", "--dtype", "bfloat16", dtype="bfloat16")


def _more_memory(least: int, command: CommandLine) -> Remedy:
    mebibytes = -(-least // MIB)
    return Remedy(
        description=f"more memory: {format_size(least)} with one page in flight",
        command=command.changed({"--max-memory": f"{mebibytes}MiB"}),
        peak_bytes=least,
    )
