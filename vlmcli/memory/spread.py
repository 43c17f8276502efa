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
    """So many workers, and the most that each of them and the driver may take.

    `num_sharing` processes share what `--max-memory` says, less `apart_bytes`: all of them where
    the cluster is a part of the job; else each has as much.
    """

    num_workers: int
    worker_cap_bytes: int
    driver_cap_bytes: int
    num_sharing: int = 1
    apart_bytes: int = 0

    @property
    def plan_cap_bytes(self) -> int:
        """What a worker on a CPU may take for what a plan knows of."""
        return max(0, self.worker_cap_bytes - RAY_PROCESS_BYTES)

    def max_memory(self, plan_cap_bytes: int) -> int:
        """The value of `--max-memory` that gives a worker on a CPU so much."""
        return (plan_cap_bytes + RAY_PROCESS_BYTES) * self.num_sharing + self.apart_bytes

    def widen(self, budgets: Budgets) -> Budgets:
        """The driver's bounds, from those of one worker.

        Pictures for all of them, and drawn while others are read, however little room a worker has.
        """
        wanted = self.num_workers * budgets.reader_bytes
        room = max(budgets.reader_bytes, self.driver_cap_bytes // _PICTURES_SHARE)
        return replace(budgets, reader_bytes=min(wanted, room), overlap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNeeds:
    """What so many workers take, each, on the device that the model is on; and the driver."""

    num_workers: int
    worker_bytes: int
    driver_bytes: int


def cluster_needs(
    plan: Plan, pages: Sequence[PageShape], settings: PlanSettings, num_workers: int | None
) -> ClusterNeeds | None:
    """What a job takes whose pages are read by so many workers; None without any.

    Args:
        plan: of the job in one process.
        pages: its pages, measured.
        settings: its options.
        num_workers: of the cluster.
    """
    if num_workers is None:
        return None
    return ClusterNeeds(
        num_workers=num_workers,
        worker_bytes=_worker_bytes(plan),
        driver_bytes=_driver_bytes(plan, pages, settings, num_workers),
    )


def _worker_bytes(plan: Plan) -> int:
    if plan.device != "cpu":
        return plan.peak_bytes
    others = sum(plan.terms.get(name, 0) for name in _NOT_OF_WORKERS)
    return plan.peak_bytes - others + RAY_PROCESS_BYTES


def _driver_bytes(
    plan: Plan, pages: Sequence[PageShape], settings: PlanSettings, num_workers: int
) -> int:
    """The process that draws the pages, with its page workers and with pictures for all."""
    own = replace(settings, device="cpu", jobs=plan.budgets.jobs)
    job = measure_pages(pages, None, own)
    drawing = peak(job, largest_that_fits(job, plan.cap_bytes))
    pictures = num_workers * plan.budgets.reader_bytes
    return drawing + plan.terms.get("reuse", 0) + pictures + RAY_PROCESS_BYTES
