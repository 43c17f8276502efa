"""The memory gate of a running job: how much may be in work, and which pages are too large.

Takes the measured pages of documents as they are opened. The first documents are planned together,
before anything is drawn or loaded; a later one is planned again when it has a page that asks for
more than all before it. Decides from integers alone; counting what is in work is `admission`'s.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Literal

from vlmcli.errors import PageError, WillNotFitError
from vlmcli.memory import address_space
from vlmcli.memory.demand import (
    Demand,
    Job,
    in_order,
    is_grey,
    measure_pages,
    usual_page,
    writing_bytes,
)
from vlmcli.memory.devices import VIRTUAL_OVERHEAD, host_cap
from vlmcli.memory.plan import plan_drawing, plan_measured
from vlmcli.memory.remedies import pixel_caps
from vlmcli.memory.request import Planner
from vlmcli.memory.settings import Budgets, PageShape, Plan
from vlmcli.memory.spread import Spread
from vlmcli.memory.terms import floor_bytes, largest_that_fits, least_bytes, peak
from vlmcli.options import format_size

MIB = 1 << 20

NeedsModel = Literal["never", "perhaps", "always"]

_MEASURING_JOBS = 8
_USUAL_PAGES = 500
_MOST_SIZES = 4096
"""Sizes of pages whose demands are remembered: scans by the million may all differ by a pixel."""
_measures = attrgetter(
    "worker_bytes",
    "picture_bytes",
    "staging_bytes",
    "writing_bytes",
    "patches",
    "visual_tokens",
    "positions",
)

_NOTHING = Demand("", 0, 0)

Size = tuple[int, int, int, int]


class MemoryGate:
    """Plans a job's memory and says what follows from it.

    Args:
        planner: model, settings, cap and command line.
        needs_model: whether pages of the job are for the model; a job in which they only may be is
            refused when the first one is, one in which they all are before anything is drawn.
        spread: the workers, where pages are read by processes elsewhere; the plan is then that of
            one worker.
    """

    def __init__(
        self, planner: Planner, needs_model: NeedsModel, spread: Spread | None = None
    ) -> None:
        self._planner = planner
        self._spread = spread
        self._needs_model = needs_model
        self._settings = planner.settings
        self._is_grey = is_grey(planner.facts, planner.settings)
        self._pages: list[PageShape] = []
        self._job = Job(planner.facts, planner.settings, (), ())
        self._most = (0,) * len(_measures(_NOTHING))
        self._known: dict[Size, Demand] = {}
        """By width and height in pixels, bytes that decoders hold, and those of a PDF's writer."""
        self._too_large: set[Size] = set()
        self._plan: Plan | None = None

    @property
    def cap_bytes(self) -> int:
        """Most memory that the job may take, on the device that it is planned for."""
        return self._planner.target.cap_bytes

    @property
    def device_cap_bytes(self) -> int | None:
        """Most memory that the job may take of a device of its own; None on a CPU."""
        return None if self._settings.device == "cpu" else self.cap_bytes

    @property
    def host_cap_bytes(self) -> int:
        """Most main memory that this process may take with its page workers."""
        if self._spread is not None:
            return self._spread.driver_cap_bytes
        return self.cap_bytes if self._settings.device == "cpu" else host_cap()

    @property
    def plan(self) -> Plan | None:
        """The plan that holds now; None before `open`, and for a job without a model."""
        return self._plan

    @property
    def spare_bytes(self) -> int:
        """Main memory that the plan leaves, for what only saves time; 0 before there is a plan, and
        for a job that reads nothing."""
        if self._plan is not None:
            planned = self._plan.host_bytes - self._plan.terms.get("reuse", 0)
        elif self._settings.remote_pages:
            planned = self._remote_peak()
        else:
            return 0
        return self.host_cap_bytes - planned

    def stats(self) -> dict[str, float]:
        """The planned peak in bytes, if there is a plan."""
        if self._plan is not None:
            return {"memory_planned_bytes": self._plan.peak_bytes}
        remote = self._settings.remote_pages
        return {"memory_planned_bytes": self._remote_peak()} if remote else {}

    def measuring_jobs(self) -> int:
        """Workers that may open documents before there is a plan.

        Raises:
            WillNotFitError: the cap does not even hold one.
        """
        if self._settings.device != "cpu":
            return min(self._settings.jobs, _MEASURING_JOBS)
        self._require_floor()
        room = self.cap_bytes - floor_bytes(self._job)
        more = room // self._job.weigh.worker_bytes
        return min(self._settings.jobs, _MEASURING_JOBS, 1 + more)

    def add(self, pages: Iterable[PageShape]) -> None:
        """More pages to be planned by `open`."""
        self._pages += pages

    def open(self) -> Budgets:
        """Plan everything that was added; called once.

        Raises:
            WillNotFitError: the job cannot be done under the cap.
        """
        self._take(measure_pages(self._pages, self._planner.facts, self._settings))
        if self._settings.device == "cpu":
            self._require_floor()
        if self._planner.facts is not None:
            self._plan = self._planner.plan(self._pages)
            if self._needs_model == "always":
                self.require_fit()
        self._pages = []
        return self._budgets()

    def require_fit(self) -> Budgets:
        """The bounds of the engine, now that a page is for the model.

        Raises:
            WillNotFitError: the plan exceeds the cap.
        """
        if self._settings.remote_pages:
            return self._budgets()
        assert self._plan is not None, "a page asked for a model in a job without one"
        if not self._plan.fits:
            raise _will_not_fit(self._plan, self._cap())
        return self._plan.budgets

    def covers(self, pages: Iterable[PageShape]) -> bool:
        """Whether the plan holds for these pages too."""
        return all(self._is_covered(page) for page in pages)

    def extend(self, pages: Iterable[PageShape]) -> Budgets:
        """Plan again, with pages that `covers` has found to ask for more than all before.

        Pages that cannot fit even alone are remembered as too large and left out. A model that is
        loaded must be loaded again, with the bounds that come back.
        """
        for page in pages:
            if self._is_covered(page):
                continue
            trial = self._with([self.demand(page)])
            if self._least(trial) <= self.cap_bytes:
                self._take(trial)
            else:
                self._too_large.add(self._size(page))
        if self._plan is not None:
            plan = plan_measured(self._job, len(self._job.demands), self.cap_bytes)
            self._plan = replace(plan, remedies=self._plan.remedies)
        return self._budgets()

    def require_page(self, page: PageShape) -> None:
        """Check a page before it is handed to a worker.

        Raises:
            PageError: it cannot fit under the cap, even alone.
        """
        if self._size(page) in self._too_large:
            width, height, *_ = self._size(page)
            raise PageError(
                f"a page of {width} × {height} pixels does not fit into "
                f"{format_size(self.cap_bytes)}",
                remedy="lower --dpi or --max-pixels, or raise --max-memory",
                code="too-large",
            )

    def demand(self, page: PageShape) -> Demand:
        """What a page asks for; nothing of the model where that cannot take it."""
        size = self._size(page)
        if len(self._known) > _MOST_SIZES:
            self._known.clear()
        if size not in self._known:
            facts, settings = self._planner.facts, self._settings
            found = measure_pages([page], facts, settings).demands
            drawn = found or measure_pages([page], None, settings).demands or (_NOTHING,)
            self._known[size] = drawn[0]
        return self._known[size]

    def _size(self, page: PageShape) -> Size:
        size = page.pixel_size(self._settings.dpi, self._settings.max_pixels)
        if page.is_refused(self._settings.max_pixels):
            return size.width, size.height, 0, 0
        drawing = page.drawing_bytes(size, grey=self._is_grey)
        return size.width, size.height, drawing, writing_bytes(page, self._settings)

    def _is_covered(self, page: PageShape) -> bool:
        if self._size(page) in self._too_large:
            return True
        pairs = zip(_measures(self.demand(page)), self._most, strict=True)
        return all(asked <= most for asked, most in pairs)

    def _with(self, demands: Sequence[Demand]) -> Job:
        return replace(self._job, demands=in_order([*self._job.demands, *demands]))

    def _take(self, job: Job) -> None:
        self._job = job
        rows = [_measures(demand) for demand in (*job.demands, _NOTHING)]
        self._most = tuple(map(max, zip(*rows, strict=True)))

    def _least(self, job: Job) -> int:
        if self._planner.facts is None:
            return floor_bytes(job)
        return least_bytes(job)

    def _require_floor(self) -> None:
        least = floor_bytes(self._job)
        if least <= self.cap_bytes:
            return
        # Where no page could be looked at, what is asked for must do for a book of usual ones.
        job = self._measured(self._pages or [usual_page()] * _USUAL_PAGES)
        shown = job if self._pages else self._measured([usual_page()])
        pixels = self._fewer_pixels(job)
        fewer = "" if pixels is None else f"give --max-pixels {pixels}, or "
        raise WillNotFitError(
            f"drawing the pages takes {format_size(floor_bytes(shown))}, {self._cap()}",
            remedy=f"{fewer}{self._more(job)}",
        )

    def _measured(self, pages: Sequence[PageShape]) -> Job:
        return measure_pages(pages, self._planner.facts, self._settings)

    def _fewer_pixels(self, job: Job) -> int | None:
        """The highest cap on a page's pixels with which all of them fit; None if none does."""

        def fits(pixels: int) -> bool:
            settings = replace(self._settings, max_pixels=pixels)
            smaller = measure_pages(self._pages, self._planner.facts, settings)
            # A page that is too large to be decoded under that cap would only be missing.
            is_whole = len(smaller.demands) == len(job.demands)
            return is_whole and max(self._needed(smaller)) <= self.cap_bytes

        caps = list(pixel_caps(self._pages, self._settings))
        if not caps or not fits(caps[-1]):
            return None
        return caps[bisect_left(caps, True, key=fits)]

    def _needed(self, job: Job) -> tuple[int, int]:
        """What drawing the pages takes, and the job where each of them is for the model."""
        least = floor_bytes(job)
        if self._planner.facts is None or self._needs_model == "never":
            return least, least
        return least, max(least, least_bytes(job))

    def _more(self, job: Job) -> str:
        """The remedy that gives the job what it needs."""
        if self._planner.target.is_address_space:
            return address_space.raise_to(max(self._needed(job)) + VIRTUAL_OVERHEAD)
        return f"give --max-memory {self._enough(job)}"

    def _enough(self, job: Job) -> str:
        """What would do: with a model as much as that takes too, or the next refusal follows."""
        spread = self._spread
        asked = (size if spread is None else spread.max_memory(size) for size in self._needed(job))
        drawing, reading = (f"{-(-size // MIB)}MiB" for size in asked)
        if drawing == reading or self._needs_model == "always":
            return reading
        return f"{reading} ({drawing} if no page needs the model)"

    def _budgets(self) -> Budgets:
        """The bounds of the plan; without a model, those of the page workers."""
        if self._plan is not None:
            budgets = self._plan.budgets
            return budgets if self._spread is None else self._spread.widen(budgets)
        return plan_drawing(self._job, self.cap_bytes)

    def _remote_peak(self) -> int:
        """What a job takes whose pages a server reads."""
        return peak(self._job, largest_that_fits(self._job, self.cap_bytes))

    def _cap(self) -> str:
        return f"{format_size(self.cap_bytes)} are there ({self._planner.target.source})"


def _will_not_fit(plan: Plan, cap: str) -> WillNotFitError:
    """The refusal of a job, with every remedy as a line to paste."""
    error = WillNotFitError(f"does not fit: {format_size(plan.minimum_bytes)} are needed, {cap}")
    error.add_note("what would fit:" if plan.remedies else "no setting would make it fit")
    for remedy in plan.remedies:
        error.add_note(f"  {remedy.description} ({format_size(remedy.peak_bytes)}):")
        error.add_note(f"    {remedy.command}")
    return error
