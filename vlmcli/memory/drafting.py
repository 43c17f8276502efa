"""What a small reader that drafts for a large one takes beside it, and the bounds that keep it so.

It works on few lines at a time, so that this is the same for every page: room for the widest line
there can be, on a page full of print. Given up: memory that it could have on small pages.
"""

from vlmcli.documents.base import PixelSize
from vlmcli.memory.demand import Job, line_demand
from vlmcli.memory.facts import ModelFacts
from vlmcli.memory.loads import Load
from vlmcli.memory.plan import budgets_for
from vlmcli.memory.settings import Drafting, PlanSettings
from vlmcli.memory.terms import model_terms
from vlmcli.rapidocr import CELL, MAX_SIDE

MIB = 1 << 20
_LINES_TOGETHER = 16
"""Lines that the drafting reader works on at once: more would not make them cheaper, since the
large model's steps come between theirs."""
_PAGE_POINTS = (842.0, 1191.0)
"""A3, whose lines are as wide as lines are read whole."""
_MARGIN = 16 * MIB
"""For a second engine's own caches and fragmentation."""


def plan_drafting(facts: ModelFacts) -> Drafting:
    """The memory of a reader that drafts: a line reader of ours, or RapidOCR."""
    if facts.foreign is not None:
        cells = (MAX_SIDE // CELL + 1) ** 2
        return Drafting(num_bytes=facts.foreign.loaded_bytes + facts.foreign.reading(cells))
    return _of_lines(facts)


def _of_lines(facts: ModelFacts) -> Drafting:
    settings = PlanSettings(device="cpu", max_num_seqs=_LINES_TOGETHER, vision_cache=0)
    width, height = (round(side / 72 * settings.dpi) for side in _PAGE_POINTS)
    size = PixelSize(width=width, height=height, dpi=float(settings.dpi), downscaled=False)
    job = Job(facts, settings, (line_demand(size, 0, facts, settings),), ())
    load = Load(pages=1, sequences=_LINES_TOGETHER, jobs=1)
    terms = model_terms(job, load, job.demands)
    del terms["runtime_context"]
    return Drafting(
        num_bytes=sum(terms.values()) + _MARGIN,
        budgets=budgets_for(job, load),
        line_height=facts.line_height,
        max_line_width=facts.max_line_width,
    )
