"""Memory of a job whose pages are read by workers elsewhere: who takes what, in bytes.

A plan is that of one process that draws and reads. A worker only reads; the driver only draws, and
holds the pictures for all workers. Pure counting.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vlmcli.memory.demand import measure_pages
from vlmcli.memory.settings import Budgets, PageShape, Plan, PlanSettings
from vlmcli.memory.terms import largest_that_fits, peak

MIB = 1 << 20
RAY_PROCESS_BYTES = 64 * MIB
"""What Ray adds to a Python process that uses it."""
_PICTURES_SHARE = 2
"""At most half of the driver's memory goes into pictures."""
_NOT_OF_WORKERS = ("page_workers", "outputs", "reuse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """So many workers, and the most that each of them and the driver may take."""

    num_workers: int
    worker_cap_bytes: int
    driver_cap_bytes: int

    def widen(self, budgets: Budgets) -> Budgets:
        """The driver's bounds, from those of one worker.

        Pictures for all of them, and drawn while others are read, however little room a worker has.
        """
        wanted = self.num_workers * budgets.reader_bytes
        room = max(budgets.reader_bytes, self.driver_cap_bytes // _PICTURES_SHARE)
        return replace(budgets, reader_bytes=min(wanted, room), overlap=True)


def worker_bytes(plan: Plan) -> int:
    """The peak of one worker, on the device that the model is on."""
    if plan.device != "cpu":
        return plan.peak_bytes
    others = sum(plan.terms.get(name, 0) for name in _NOT_OF_WORKERS)
    return plan.peak_bytes - others + RAY_PROCESS_BYTES


def driver_bytes(
    plan: Plan, pages: Sequence[PageShape], settings: PlanSettings, num_workers: int
) -> int:
    """The peak of the process that draws the pages for so many workers, with its page workers."""
    job = measure_pages(pages, None, replace(settings, jobs=plan.budgets.jobs))
    drawing = peak(job, largest_that_fits(job, plan.cap_bytes))
    pictures = num_workers * plan.budgets.reader_bytes
    return drawing + plan.terms.get("reuse", 0) + pictures + RAY_PROCESS_BYTES
