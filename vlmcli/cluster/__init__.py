"""Pages read by a Ray cluster: `vlmcli ocr --ray ADDRESS`.

A worker on the cluster holds the model and reads; everything else stays with the process that was
started, the driver: opening and drawing documents, finding lines, reuse, the journal, order and
outputs. Records are those of a job without a cluster, since a page is read by the same code with
the same seed whoever has it.

Pages are drawn by the driver for three reasons. A node need not have the documents: a folder here,
standard input and a password do not travel, pictures do. Whether a page is read at all is decided
by its pixels, in page order, next to the results of all the others. And a page that kills whoever
draws it costs a page worker of 100 MiB there, not a node its model. What that gives up: the driver
has to draw as fast as all workers read. `docs/scale.md` has the figures, and what to do beyond
them: one job for every part of the documents, each with a driver of its own.

Refuses a node with another model or other code than the driver's. Importing this package does no
work and imports no Ray.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from vlmcli.checkpoint import Checkpoint
from vlmcli.cluster.address import parse_address, require_answer
from vlmcli.cluster.quiet import prepare_environment
from vlmcli.errors import MissingExtraError
from vlmcli.options import OcrOptions

if TYPE_CHECKING:
    from vlmcli.cluster.session import Cluster


def open_cluster(
    options: OcrOptions, checkpoint: Checkpoint, on_warning: Callable[[str], None]
) -> "Cluster":
    """Connect to the cluster that `options.ray` names, or start it, and start workers there.

    Args:
        options: of the job.
        checkpoint: the model that the workers are to load.
        on_warning: is told about workers that are lost.

    Raises:
        UsageError: the address is none.
        MissingExtraError: Ray is not installed.
        UnreachableError: nobody answers there, or there is no room for a worker.
    """
    assert options.ray is not None, "no cluster was asked for"
    address = parse_address(options.ray)
    if find_spec("ray") is None:
        raise MissingExtraError("--ray needs the package ray, which is not installed", "ray")
    require_answer(address)
    prepare_environment(is_local=address.is_local)
    from vlmcli.cluster.session import Cluster

    return Cluster(address, options, checkpoint, on_warning)
