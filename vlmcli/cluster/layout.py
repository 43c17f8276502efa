"""How many workers, and with how much of a node each: integers only, no Ray.

A worker holds a model. On GPUs that is one for each; on processors one for some cores, since more
threads make the products of one model little faster and a second model reads other pages meanwhile.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vlmcli.errors import UnreachableError
from vlmcli.memory.devices import MIB

CORES = 4
"""Processors of a worker, where neither `--threads` nor `--ray-workers` say otherwise."""
RAY_BYTES = 512 * MIB
"""What Ray's own processes take on a machine on which a cluster is started: seven of them, 508 MiB
resident, 330 where what they share counts once (2.60)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of a cluster: whole processors and GPUs that Ray counts there."""

    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """So many workers, each with so many processors and GPUs to itself."""

    num_workers: int
    cpus: int
    gpus: int


def lay_out(
    nodes: Sequence[Node], *, workers: int | None, threads: int | None, on_gpus: bool
) -> Layout:
    """The workers of a cluster.

    Args:
        nodes: its machines.
        workers: how many are wanted; as many as there is room for if None. Those for which there is
            no room yet wait for it.
        threads: processors of each; `CORES` if None, fewer where that is too many for a node, or
            for all workers that are wanted.
        on_gpus: whether the model is to run on GPUs.

    Raises:
        UnreachableError: no node has room for one.
    """
    if on_gpus:
        cpus, room = threads or 1, sum(node.gpus for node in nodes)
    else:
        sizes = (threads,) if threads else range(CORES, 0, -1)
        rooms = {size: sum(node.cpus // size for node in nodes) for size in sizes}
        cpus = next((size for size in sizes if rooms[size] >= (workers or 1)), sizes[-1])
        room = rooms[cpus]
    if not room:
        wanted = "a GPU" if on_gpus else f"{cpus} processors"
        raise UnreachableError(
            f"no node of the cluster has {wanted} for a worker",
            remedy="look at `ray status`; --threads N sets a worker's processors",
        )
    return Layout(num_workers=workers or room, cpus=cpus, gpus=int(on_gpus))


def lay_out_here(cpus: int, *, workers: int | None, threads: int | None) -> Layout:
    """The workers of a cluster that is started on this machine, which has so many processors.

    `workers` share them evenly, whatever their number.
    """
    count = workers or max(1, cpus // (threads or CORES))
    return Layout(num_workers=count, cpus=threads or max(1, cpus // count), gpus=0)


def share(rooms: Sequence[tuple[str, int]], here: str) -> int:
    """What every worker may take, in bytes: the least of all places' memory, shared out evenly.

    Args:
        rooms: for every worker, where it is and what there is for all processes of the job there.
        here: where this process is, which counts as one more.
    """
    counts = Counter(place for place, _ in rooms)
    counts[here] += 1
    return min(room // counts[place] for place, room in rooms)
