"""What ails a run, from its `--stats` alone: known failure modes, each with evidence and a remedy.

Pure: figures in, findings out. Every threshold stands here with what it is meant for; a figure that
a run does not have gives no finding. Says nothing about texts.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from vlmcli.report import IDLE_SHARE, bottleneck

Stats = Mapping[str, float]

_MANY = 0.2
"""Of the pages that were decided: from here on a cause is worth naming."""
_TIGHT_MEMORY = 0.9
_IMAGE_SHARE = 0.6
"""Of all tokens that the decoder kept, those of images."""
_TRANSFER_SHARE = 0.05
_STAGE_SHARE = 0.5
"""Of the job's time: what a healthy job loses, waits, and spends on any one stage, at most."""
_TAIL_RATIO, _TAIL_SHARE = 8.0, 0.2
"""The slowest page over the median one, and over the whole job."""
_MIN_SECONDS = 5.0
"""Of a job; shorter ones are all start-up, and nothing follows from where their time goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A failure mode that a run shows: its name, the figures that say so, and what to do."""

    name: str
    evidence: str
    remedy: str


def diagnose(stats: Stats) -> list[Finding]:
    """Everything that the figures of a run say, the costliest kind first."""
    checks: tuple[Callable[[Stats], Iterator[Finding]], ...] = (
        _other_recipe,
        _resolutions,
        _earlier_results,
        _image_memory,
        _long_tail,
        _transfer,
        _bottleneck,
    )
    return [finding for check in checks for finding in check(stats)]


def num_decided(stats: Stats) -> float:
    """Pages that were for the model and that the reuse layer looked at."""
    kinds = ("none", "draft", "exact", "verified", "similar")
    return sum(stats.get(f"reuse_{kind}", 0) for kind in kinds)


def _other_recipe(stats: Stats) -> Iterator[Finding]:
    """Pages are known, but by another model, processor, question or version: all are read anew."""
    known, pages = stats.get("reuse_other_recipe", 0), num_decided(stats)
    if pages and known >= _MANY * pages:
        yield Finding(
            name="kept results do not apply",
            evidence=f"{known:.0f} of {pages:.0f} pages are kept, but were read by another model, "
            "processor, question, limit or version",
            remedy="nothing is wrong if that was changed: the next run finds these; if not, "
            "compare `model` in the records, and pin the model's directory",
        )


def _resolutions(stats: Stats) -> Iterator[Finding]:
    """One page, two resolutions, two texts."""
    resized, differ = stats.get("reuse_resized", 0), stats.get("reuse_resized_differ", 0)
    if differ:
        yield Finding(
            name="texts depend on the resolution",
            evidence=f"{resized:.0f} pages were read before at another size, and {differ:.0f} of "
            "them have another text now",
            remedy="keep to one --dpi and --max-pixels, and compare the texts of both",
        )


def _earlier_results(stats: Stats) -> Iterator[Finding]:
    """Most of the output is old: what to know where it seems stale."""
    earlier, pages = stats.get("reuse_earlier", 0), num_decided(stats)
    resumed = stats.get("resumed", 0)
    if earlier + resumed > 0.5 * (pages + resumed):
        yield Finding(
            name="most results are of earlier runs",
            evidence=f"{earlier:.0f} pages were answered by kept results, {resumed:.0f} by the "
            "journal of an interrupted run",
            remedy="they are of the same pixels, model and versions; where they seem stale all the "
            "same, `vlmcli cache verify` checks them and --no-cache reads everything anew",
        )


def _image_memory(stats: Stats) -> Iterator[Finding]:
    """Memory is short, and images take most of what the model keeps."""
    cap, peak = stats.get("memory_cap_bytes", 0), stats.get("memory_peak_bytes", 0)
    cap, peak = (
        stats.get("device_memory_cap_bytes", cap),
        stats.get("device_memory_peak_bytes", peak),
    )
    preempted = stats.get("preemptions", 0)
    image, other = stats.get("encoder_tokens", 0), stats.get("output_tokens", 0)
    prompt = stats.get("prompt_tokens", 0)
    share = image / max(1.0, max(image, prompt) + other)
    is_short = preempted > 0 or (cap > 0 and peak >= _TIGHT_MEMORY * cap)
    if is_short and share >= _IMAGE_SHARE:
        yield Finding(
            name="image tokens take the memory",
            evidence=f"{share:.0%} of the tokens were of images; {preempted:.0f} preemptions, "
            f"memory at {peak / cap if cap else 0:.0%} of its cap",
            remedy="lower --max-pixels or --dpi, give --vision-cache 0 or --vision-kv-dtype int8, "
            "or raise --max-memory",
        )


def _long_tail(stats: Stats) -> Iterator[Finding]:
    """One page takes so long that the others wait for it."""
    slowest, median = stats.get("page_seconds_max", 0), stats.get("page_seconds_median", 0)
    seconds = stats.get("seconds", 0)
    if median > 0 and slowest >= _TAIL_RATIO * median and slowest >= _TAIL_SHARE * seconds:
        yield Finding(
            name="a few pages delay all others",
            evidence=f"the slowest page took {slowest:.1f} s, the median one {median:.2f} s, the "
            f"job {seconds:.1f} s",
            remedy="give --page-timeout and --max-tokens, lower --retries, or read those pages "
            "in a job of their own with --pages",
        )


def _transfer(stats: Stats) -> Iterator[Finding]:
    """Pictures on their way between processes hold the model up."""
    seconds, moved = stats.get("seconds", 0), stats.get("seconds_transfer", 0)
    if seconds >= _MIN_SECONDS and moved >= _TRANSFER_SHARE * seconds:
        yield Finding(
            name="moving pages between processes takes time",
            evidence=f"{moved:.1f} of {seconds:.1f} s went into taking pages over from workers",
            remedy="lower --max-pixels or --dpi; give fewer --jobs than processors",
        )


def _bottleneck(stats: Stats) -> Iterator[Finding]:
    """One stage takes most of the time."""
    seconds, name = stats.get("seconds", 0), bottleneck(stats)
    if seconds < _MIN_SECONDS or name is None:
        return
    idle = stats.get("seconds_idle", 0)
    if idle >= IDLE_SHARE * seconds:
        yield Finding(
            name="bottleneck: render",
            evidence=f"the model waited for pages for {idle:.1f} of {seconds:.1f} s; drawing them "
            f"took {stats.get('seconds_render', 0):.1f} s of the workers",
            remedy="give more --jobs, or lower --dpi",
        )
        return
    remedies = {
        "encode": "lower --max-pixels, give more --threads or a --device with more power",
        "prefill": "lower --max-pixels, or raise --max-memory so that more pages run together",
        "decode": "keep --drafts auto, add --text-layer draft where pages have text",
        "write": "write to a local disk, and fewer formats at a time",
    }
    taken = stats.get(f"seconds_{name}", 0)
    if name in remedies and taken >= _STAGE_SHARE * seconds:
        yield Finding(
            name=f"bottleneck: {name}",
            evidence=f"{name} took {taken:.1f} of {seconds:.1f} s",
            remedy=remedies[name],
        )
