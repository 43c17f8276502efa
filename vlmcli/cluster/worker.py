"""The inside of a cluster's worker: a reader on a node, and the pages that it was given.

A plain class that Ray makes an actor of; imports no Ray, and torch when the model is loaded. Opens
no document, knows no password and keeps nothing: whatever it has not answered is lost with it, and
the driver has it still. What a user can cause comes back as a value; what we cause is raised.
"""

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vlmcli.checkpoint import find_checkpoint
from vlmcli.desk import TOO_LARGE, Desk
from vlmcli.errors import ModelError, VlmcliError
from vlmcli.memory.allocator import give_back
from vlmcli.memory.devices import cuda_free, default_cap, host_cap, resident_bytes
from vlmcli.memory.guard import MemoryGuard, Watched
from vlmcli.memory.settings import Budgets
from vlmcli.options import OcrOptions
from vlmcli.reading import PageJob, PageReading, Reader
from vlmcli.recipe import code_digest
from vlmcli.version import __version__

SLICE_SECONDS = 0.25
"""After so long a worker answers, finished pages or not, and may be given more or be told to stop
one. A step of the model is never cut short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a worker finds: a machine's memory for all processes there, or that of its own GPU."""

    place: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """Which model to load, and who must agree that it is the same. `options` has no password."""

    options: OcrOptions
    budgets: Budgets
    model: str
    """Name and revision."""
    code: str
    """Digest of the code that makes texts out of pixels."""
    max_bytes: int | None
    """Main memory at which caches are given up; None for no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Pages that are finished, and the counters of the worker so far."""

    readings: tuple[PageReading, ...]
    stats: Mapping[str, float]


class Worker:
    """Holds a reader. One call at a time; after `load`, calls of `advance`.

    Args:
        environment: variables for the libraries that come with the model, where the node has none.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        self._reader: Reader | None = None
        self._desk = Desk(self._loaded, timeout=None)
        self._guard = MemoryGuard()
        self._most: int | None = None
        self._stats: dict[str, float] = {}

    def room(self, on_gpu: bool) -> Room | VlmcliError:
        """The memory that there is. Ray shows a worker its own GPU alone, by this variable."""
        machine = platform.node()
        if not on_gpu:
            return Room(place=machine, num_bytes=host_cap())
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
        try:
            free = cuda_free(int(gpu) if gpu.isdecimal() else 0)
        except VlmcliError as error:
            return error
        return Room(place=f"{machine} GPU {gpu}", num_bytes=default_cap(free[0]))

    def load(self, order: LoadOrder) -> VlmcliError | None:
        """Load the model, or say why not: it is not there, is another one, or does not fit."""
        self._unload()
        try:
            self._reader = _open(order)
        except VlmcliError as error:
            return error
        self._desk = Desk(self._loaded, timeout=None)
        bound = Watched(name="memory", cap_bytes=order.max_bytes, read=_resident)
        self._guard = MemoryGuard(bound)
        self._most = None if order.budgets.overlap else 1
        return None

    def advance(self, jobs: list[PageJob], stopped: list[int]) -> Progress:
        """Take these pages, forget those, and read until some page is finished or time is up."""
        desk = self._desk
        for key in stopped:
            desk.abort(key)
            desk.done(key)
        for job in jobs:
            desk.put(job)
        deadline = time.monotonic() + SLICE_SECONDS
        readings = self._step(desk)
        while not readings and desk.has_work and time.monotonic() < deadline:
            readings = self._step(desk)
        return Progress(readings=tuple(readings), stats=self._counted())

    def _step(self, desk: Desk) -> list[PageReading]:
        progress = desk.step(self._most)
        readings = list(progress.readings)
        if progress.too_large is not None:
            failed = PageReading(
                key=progress.too_large, status="error", code="too-large", message=TOO_LARGE
            )
            readings.append(failed)
        for reading in readings:
            desk.done(reading.key)
        if progress.num_pages is not None:
            self._most = min(progress.num_pages, self._most or progress.num_pages)
        if self._guard.look() == "tight":
            give_back()
            if self._guard.is_tight:
                desk.drop_caches()
                give_back()
        return readings

    def _loaded(self) -> Reader:
        assert self._reader is not None, "pages came before the model"
        return self._reader

    def _counted(self) -> dict[str, float]:
        """Counters of this reader and of those before it, added up."""
        counts = dict(self._stats)
        for name, count in ({} if self._reader is None else self._reader.stats()).items():
            counts[name] = counts.get(name, 0) + count
        return counts

    def _unload(self) -> None:
        if self._reader is not None:
            self._stats = self._counted()
            self._reader.close()
            self._reader = None


def _open(order: LoadOrder) -> Reader:
    """The model, loaded.

    Raises:
        VlmcliError: it is missing, does not fit, or reads otherwise than the driver's would.
    """
    checkpoint = find_checkpoint(order.options.model)
    _require_same("the model", checkpoint.label, order.model)
    _require_same(f"the code of vlmcli {__version__}", code_digest()[:12], order.code[:12])
    from vlmcli.readers import load_reader

    return load_reader(checkpoint, order.options, order.budgets)


def order_for(
    options: OcrOptions, budgets: Budgets, *, model: str, threads: int, max_bytes: int
) -> LoadOrder:
    """What the driver tells its workers. On a GPU each sees its own alone, as the first one."""
    is_cuda = options.device.startswith("cuda")
    own = replace(
        options,
        inputs=(),
        password=None,
        output=None,
        device="cuda" if is_cuda else options.device,
        threads=threads,
    )
    return LoadOrder(
        options=own,
        budgets=budgets,
        model=model,
        code=code_digest(),
        max_bytes=None if is_cuda else max_bytes,
    )


def _require_same(what: str, here: str, there: str) -> None:
    if here != there:
        raise ModelError(
            f"{what} is {here} on a node of the cluster, {there} where the job was started",
            remedy="install the same vlmcli and the same model everywhere",
        )


def _resident() -> int:
    return resident_bytes(os.getpid())
