"""One job's cluster: Ray connected or started, workers laid out on it, their memory asked for.

A cluster that was started here ends with the job and leaves no files; of one that was joined only
the workers are ended. Reads no page, and decides nothing about memory but how it is shared out.
"""

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from vlmcli.checkpoint import Checkpoint
from vlmcli.cluster.address import Address, no_cluster
from vlmcli.cluster.fleet import RayFleet
from vlmcli.cluster.layout import RAY_BYTES, Layout, Node, lay_out, lay_out_here, share
from vlmcli.cluster.quiet import own_signals, quiet
from vlmcli.cluster.reader import ClusterReader, Lost
from vlmcli.cluster.worker import Room, order_for
from vlmcli.errors import MissingExtraError, UnreachableError, VlmcliError, first_line
from vlmcli.memory.devices import MIB, host_cap
from vlmcli.memory.settings import Budgets
from vlmcli.memory.spread import Spread
from vlmcli.options import OcrOptions
from vlmcli.processors import num_cpus
from vlmcli.reading import Reader

FIRST_SECONDS = 120.0
"""Patience for the first worker to start; a cluster that grows by need takes a minute or two."""
OTHERS_SECONDS = 10.0
"""Patience for the others, once the first is there; later ones join as they come."""
_OBJECT_STORE = 256 * MIB
"""Of a cluster that is started here: pages on their way, a few MiB each. Files in shared memory
that take what is in them."""
_LIBRARY_SETTINGS = ("OMP_WAIT_POLICY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
_LONGEST_TEMP = 24
"""Characters of the folder for temporary files, below which Ray makes sockets: their names may have
107."""


class Cluster:
    """A connection to a Ray cluster and the job's workers on it.

    Args:
        address: answers, or is `local`.
        options: of the job.
        checkpoint: the model.
        on_warning: is told about workers that are lost.

    Raises:
        UnreachableError: there is no cluster, or it has no room for a worker.
        MissingExtraError: what the address takes is not installed.
    """

    def __init__(
        self,
        address: Address,
        options: OcrOptions,
        checkpoint: Checkpoint,
        on_warning: Callable[[str], None],
    ) -> None:
        self._options = options
        self._checkpoint = checkpoint
        self._on_warning = on_warning
        self._is_gpu = options.device.startswith("cuda")
        with ExitStack() as stack:
            stack.enter_context(quiet(options.verbose))
            if address.is_local:
                self._layout = self._start(stack)
            else:
                self._layout = self._join(stack, address)
            environment = {
                name: os.environ[name] for name in _LIBRARY_SETTINGS if name in os.environ
            }
            self._fleet = RayFleet(self._layout, environment)
            self.spread = self._share_out(address)
            self._stack = stack.pop_all()

    def load_reader(self, checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> Reader:
        """A reader whose pages the workers read, each within the budgets."""
        order = order_for(
            options,
            budgets,
            model=checkpoint.label,
            threads=self._layout.cpus,
            max_bytes=self.spread.worker_cap_bytes,
        )
        return ClusterReader(
            self._fleet, order, max_bytes=budgets.reader_bytes, on_warning=self._on_warning
        )

    def close(self) -> None:
        """End the workers, and the cluster where it was started here."""
        for number in self._fleet.numbers:
            with suppress(RayError):
                self._fleet.end(number)
        self._stack.close()

    def _start(self, stack: ExitStack) -> Layout:
        """A cluster on this machine; what it has in GPUs is counted by Ray."""
        options = self._options
        here = {
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE,
            "_temp_dir": stack.enter_context(_folder()),
        }
        if self._is_gpu:
            stack.enter_context(_connected("local", options.verbose, **here))
            return self._lay_out()
        layout = lay_out_here(num_cpus(), workers=options.ray_workers, threads=options.threads)
        cpus = layout.num_workers * layout.cpus
        stack.enter_context(_connected("local", options.verbose, num_cpus=cpus, **here))
        return layout

    def _join(self, stack: ExitStack, address: Address) -> Layout:
        """A cluster that is there.

        Raises:
            UnreachableError: it refuses us, or has no room.
            MissingExtraError: the address takes a package that is not installed.
        """
        try:
            stack.enter_context(_connected(address.text, self._options.verbose))
            return self._lay_out()
        except ImportError as error:
            raise MissingExtraError(f"{address.text} needs {error.name or error}", "ray") from error
        except (OSError, RuntimeError, RayError) as error:
            raise no_cluster(address, first_line(error)) from error

    def _lay_out(self) -> Layout:
        """Workers on the nodes that there are.

        Raises:
            UnreachableError: none has room for one.
        """
        resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return lay_out(
            [Node(cpus=int(one.get("CPU", 0)), gpus=int(one.get("GPU", 0))) for one in resources],
            workers=self._options.ray_workers,
            threads=self._options.threads,
            on_gpus=self._is_gpu,
        )

    def _share_out(self, address: Address) -> Spread:
        """What every worker may take, and this process."""
        given, count = self._options.max_memory, self._layout.num_workers
        here = given or host_cap()
        if address.is_local and not self._is_gpu:
            each = max(0, here - RAY_BYTES) // (count + 1)
            return Spread(
                num_workers=count,
                worker_cap_bytes=each,
                driver_cap_bytes=each,
                num_sharing=count + 1,
                apart_bytes=RAY_BYTES,
            )
        rooms = self._rooms()
        each = share([(room.place, room.num_bytes) for room in rooms], platform.node())
        return Spread(
            num_workers=count,
            worker_cap_bytes=each if given is None else min(each, given),
            driver_cap_bytes=here,
        )

    def _rooms(self) -> list[Room]:
        """What the workers have found, those that have started soon.

        Raises:
            VlmcliError: none has.
        """
        fleet, rooms = self._fleet, list[Room]()
        error: VlmcliError = UnreachableError(
            f"no worker started within {FIRST_SECONDS:g} s",
            remedy="look at `ray status`: the cluster may be busy",
        )
        for number in fleet.numbers:
            fleet.call(number, "room", self._is_gpu)
        deadline = time.monotonic() + FIRST_SECONDS
        while len(rooms) < len(fleet.numbers) and time.monotonic() < deadline:
            for answer in fleet.collect(0.5):
                if isinstance(answer.value, Room):
                    rooms.append(answer.value)
                    deadline = min(deadline, time.monotonic() + OTHERS_SECONDS)
                elif isinstance(answer.value, Lost):
                    error = UnreachableError(f"workers do not start: {answer.value.cause}")
                else:
                    error = answer.value
                    fleet.end(answer.number)
        if not rooms:
            raise error
        return rooms


@contextmanager
def _connected(address: str, verbose: int, **settings: Any) -> Iterator[None]:
    """Connected to Ray, and disconnected whatever happens, also half-way through connecting."""
    try:
        with own_signals():
            ray.init(
                address=address,
                configure_logging=False,
                log_to_driver=verbose > 0,
                **settings,
            )
        yield
    finally:
        ray.shutdown()


@contextmanager
def _folder() -> Iterator[str]:
    """A folder for Ray's logs and sockets, removed afterwards."""
    base = tempfile.gettempdir()
    if len(base) > _LONGEST_TEMP and Path("/tmp").is_dir():
        base = "/tmp"
    folder = tempfile.mkdtemp(prefix="vlmcli-ray-", dir=base)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
