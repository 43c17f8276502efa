"""A plan for people, as a table, and for programs, as one JSON object. Formats, decides nothing."""

import io
import json
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vlmcli.memory.settings import Plan
from vlmcli.memory.spread import ClusterNeeds
from vlmcli.options import format_size

if TYPE_CHECKING:
    from vlmcli.cli.plan_look import PagesAhead

TERM_NAMES = {
    "weights": "weights",
    "foreign": "the reader, its libraries and models",
    "runtime_context": "Python, torch and libraries, or the CUDA context",
    "graph_pool": "captured graphs of decoder and encoder",
    "activations": "activations of encoder and decoder steps",
    "embeddings": "visual embeddings in flight",
    "kv": "KV of the pages in flight",
    "vision_cache": "vision cache",
    "pixels": "pictures in flight",
    "page_workers": "page workers",
    "results": "answers to lines, kept for equal ones",
    "outputs": "documents that are written again",
    "loading": "weight files while they are read",
    "drafting": "the reader that drafts, all of it",
    "margin": "margin",
    "reuse": "recent pages and kept results, to recognise repetitions",
}
"""What a plan calls its terms, for people."""
_FOREIGN_NAMES = {
    "runtime_context": "Python and libraries",
    "activations": "a page while it is read",
}
"""Where they are other things, since another program reads."""
_MAX_WIDTH = 100


def plan_json(
    plan: Plan,
    cap_source: str,
    cluster: ClusterNeeds | None = None,
    ahead: "PagesAhead | None" = None,
) -> str:
    """One JSON object and a line break. `remedies` are command lines; sizes are bytes."""
    data = plan.to_dict()
    if ahead is not None:
        data["pages"] = asdict(ahead) | {"is_estimate": ahead.is_estimate}
    if cluster is not None:
        data["cluster"] = asdict(cluster)
    details = data.pop("remedies")
    data["cap_source"] = cap_source
    data["remedies"] = [remedy["command"] for remedy in details]
    data["remedy_details"] = details
    return json.dumps(data, ensure_ascii=False) + "\n"


def plan_table(
    plan: Plan,
    cap_source: str,
    cluster: ClusterNeeds | None = None,
    ahead: "PagesAhead | None" = None,
) -> str:
    """The plan as text: a table of terms, tokens, verdict, and what to do where it does not fit."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=_MAX_WIDTH, highlight=False, no_color=True)
    console.print(_heading(plan))
    console.print(_terms(plan))
    says = (_tokens(plan), _verdict(plan, cap_source), _remedies(plan), _workers(cluster))
    for line in (*_pages(ahead), *chain(*says), *_notes(plan)):
        console.print(Text(line), soft_wrap=True)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def _heading(plan: Plan) -> Text:
    if plan.foreign:
        pages = _counted(plan.num_pages, "page")
        return Text(f"{plan.model}: {plan.foreign}, on {plan.device}; {pages}")
    kv = plan.kv_dtype
    if plan.vision_kv_dtype != kv:
        kv = f"{kv} (images {plan.vision_kv_dtype})"
    return Text(
        f"{plan.model}: {plan.num_parameters:,} parameters in {plan.dtype}, KV in {kv}, "
        f"on {plan.device}; {_counted(plan.num_pages, 'page')}"
    )


def _terms(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right")
    table.add_column()
    names = TERM_NAMES | _FOREIGN_NAMES if plan.foreign else TERM_NAMES
    for name, size in plan.terms.items():
        if size:
            table.add_row(format_size(size), names.get(name, name))
    table.add_row(format_size(plan.peak_bytes), "peak")
    return table


def _pages(ahead: "PagesAhead | None") -> list[str]:
    if ahead is None:
        return []
    counts = f"{ahead.text_layer:,} from text layer, {ahead.blank:,} blank"
    if ahead.no_text_layer:
        counts += f", {ahead.no_text_layer:,} without one"
    counts += f", {ahead.to_read:,} to read"
    if ahead.is_estimate:
        seen = _counted(ahead.looked_at, "page")
        return [f"pages: about {counts}, judged by {seen} of {ahead.total:,}"]
    if ahead.to_read:
        return [f"pages: {counts}"]
    return [f"pages: {counts}; ocr will load no model and take less"]


def _tokens(plan: Plan) -> list[str]:
    tokens = plan.visual_tokens
    if not tokens.total:
        return [] if plan.foreign and tokens.max_page else ["no page can be planned"]
    kind = (
        "visual tokens a page, estimated for full pages"
        if tokens.estimated
        else ("visual tokens a page")
    )
    return [
        f"{kind}: {tokens.min:,} to {tokens.max:,} (median {tokens.median:,}, "
        f"95 % up to {tokens.p95:,}); most: {tokens.max_page}; {tokens.total:,} in all"
    ]


def _verdict(plan: Plan, cap_source: str) -> list[str]:
    cap = f"{format_size(plan.cap_bytes)} ({cap_source})"
    if not plan.fits:
        return [f"does not fit: {format_size(plan.peak_bytes)} of {cap}, one page at a time"]
    at_once = f"{_counted(plan.pages_in_flight, 'page')} in flight"
    if plan.pages_in_flight < plan.max_pages_in_flight:
        at_once += f" instead of {plan.max_pages_in_flight}: more do not fit"
    return [f"fits: {format_size(plan.peak_bytes)} of {cap}, {at_once}"]


def _remedies(plan: Plan) -> list[str]:
    if plan.fits:
        return []
    lines = ["what would fit:"]
    for remedy in plan.remedies:
        lines += [f"  {remedy.description} ({format_size(remedy.peak_bytes)})"]
        lines += [f"    {remedy.command}"]
    return lines


def _workers(cluster: ClusterNeeds | None) -> list[str]:
    if cluster is None:
        return []
    count = _counted(cluster.num_workers, "worker")
    return [
        f"with --ray: {format_size(cluster.worker_bytes)} for each of {count}, "
        f"{format_size(cluster.driver_bytes)} for the process that draws for them"
    ]


def _notes(plan: Plan) -> list[str]:
    lines = []
    if plan.device == "cuda":
        lines.append(f"main memory beside the GPU: {format_size(plan.host_bytes)}")
    if plan.unreadable_pages:
        first = plan.unreadable_pages[0]
        more = len(plan.unreadable_pages) - 1
        rest = f" and {_counted(more, 'more page', 'more pages')}" if more else ""
        lines.append(f"left out, cannot be read: {first}{rest}")
    if plan.unverified:
        lines.append(f"unverified in this model's shapes: {', '.join(plan.unverified)}")
    if plan.foreign:
        return lines
    lines.append(
        "coefficients: measured on this machine"
        if plan.calibrated
        else "coefficients: defaults; vlmcli bench probe measures this machine's"
    )
    return lines


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
