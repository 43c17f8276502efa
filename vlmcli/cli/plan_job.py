"""What `vlmcli plan` finds out by itself: the sizes of the pages; if asked, who would answer them.

Opens documents to measure their pages; with `--look` workers draw some, else nothing is drawn.
Loads no weights, imports no torch. Memory is planned as if every page were for the model: one that
turns out to be costs no job.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vlmcli.documents.prepared import PrepareSpec
from vlmcli.documents.selection import parse_pages
from vlmcli.documents.source import RenderSpec, Source, iter_sources, open_document
from vlmcli.errors import VlmcliError
from vlmcli.memory.demand import usual_page
from vlmcli.memory.request import Planner, PlanRequest, make_planner
from vlmcli.memory.settings import PageShape, Plan
from vlmcli.memory.spread import ClusterNeeds, cluster_needs

if TYPE_CHECKING:
    # The workers that it brings are for those who ask for a look.
    from vlmcli.cli.plan_look import Looking, PagesAhead, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The plan, who set its cap, and documents that are not in it."""

    plan: Plan
    cap_source: str
    warnings: tuple[str, ...]
    cluster: ClusterNeeds | None
    """What workers of a cluster would take, where the plan was asked for that."""
    ahead: "PagesAhead | None"
    """Who would answer the pages; None without inputs, or if nobody asked."""


def make_plan(
    request: PlanRequest, *, password: str | None, strict: bool, look: bool
) -> PlanResult:
    """Measure the pages and plan the job.

    Args:
        request: what is to be planned.
        password: of encrypted documents.
        strict: refuse damaged ones.
        look: draw pages to say who would answer them.

    Raises:
        VlmcliError: the model is unknown, no document can be read, or an option makes no sense.
    """
    planner = make_planner(request)
    looking = _looking(planner, request, password) if look else None
    shapes, warnings, ahead = _collect(request, password, strict, looking)
    plan = planner.plan(shapes)
    return PlanResult(
        plan=plan,
        cap_source=planner.target.source,
        warnings=tuple(warnings),
        cluster=cluster_needs(plan, shapes, planner.settings, request.ray_workers),
        ahead=ahead,
    )


def _looking(planner: Planner, request: PlanRequest, password: str | None) -> "Looking":
    from vlmcli.cli.plan_look import Looking

    assert planner.facts is not None
    return Looking(
        spec=PrepareSpec(
            render=RenderSpec(dpi=request.dpi, max_pixels=request.max_pixels),
            text_layer=request.text_layer,
            reads=planner.facts.reads,
            line_height=1,
            max_line_width=1,
            hands_over=False,
        ),
        password=password,
        frame_interval=request.frame_interval,
        jobs=planner.settings.jobs,
    )


def collect_pages(
    request: PlanRequest, *, password: str | None, strict: bool
) -> tuple[list[PageShape], list[str]]:
    """Measured pages of all documents, and what could not be read; an A4 page without inputs.

    Raises:
        VlmcliError: none of the documents could be read: the first one's error.
    """
    shapes, warnings, _ = _collect(request, password, strict, None)
    return shapes, warnings


def _collect(
    request: PlanRequest, password: str | None, strict: bool, looking: "Looking | None"
) -> "tuple[list[PageShape], list[str], PagesAhead | None]":
    """As `collect_pages`, and who would answer the pages, where that is asked for."""
    if not request.inputs:
        return [usual_page()], [], None
    shapes: list[PageShape] = []
    places: list[Place] = []
    ahead = None
    errors: list[VlmcliError] = []
    left_out: list[str] = []
    with closing(iter_sources(request.inputs, on_left_out=left_out.append)) as sources:
        for source in sources:
            try:
                found = _measure(source, request, password=password, strict=strict)
            except VlmcliError as error:
                errors.append(error)
                continue
            shapes += found
            places += [(source, page.number - 1) for page in found]
        if looking is not None and places:
            from vlmcli.cli.plan_look import look_ahead

            # Standard input is a file as long as sources are asked for.
            ahead = look_ahead(places, looking)
    if errors and not shapes:
        for text in left_out:
            errors[0].add_note(f"vlmcli: warning: {text}")
        raise errors[0]
    return shapes, [*map(str, errors), *left_out], ahead


def _measure(
    source: Source, request: PlanRequest, *, password: str | None, strict: bool
) -> list[PageShape]:
    interval = request.frame_interval
    with open_document(
        source, password=password, strict=strict, frame_interval=interval
    ) as document:
        count = document.num_pages
        numbers = parse_pages(request.pages, count) if request.pages else range(1, count + 1)
        return [document.page(number - 1) for number in numbers]
