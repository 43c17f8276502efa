"""The workers of a cluster as Ray's actors: started, called one call at a time, noticed when lost.

With `session` the only file that imports Ray. Decides nothing: that a worker is lost is an answer
like any other. Workers are not restarted by Ray and calls not repeated by it, since who must read
which page again is known to the driver alone.
"""

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from vlmcli.cluster.layout import Layout
from vlmcli.cluster.reader import Answer, Lost
from vlmcli.cluster.worker import Worker


class RayFleet:
    """A `reader.Fleet` on the cluster that this process is connected to.

    Args:
        layout: how many workers are started, and what each has to itself.
        environment: variables for the libraries that come with the model.
    """

    def __init__(self, layout: Layout, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._kind = ray.remote(
            num_cpus=layout.cpus, num_gpus=layout.gpus, max_restarts=0, max_task_retries=0
        )(Worker)
        self._workers: dict[int, Any] = {}
        self._calls: dict[int, tuple[str, Any]] = {}
        self._num_started = 0
        for _ in range(layout.num_workers):
            self.start()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The workers that were started and not lost or ended since."""
        return tuple(self._workers)

    def is_free(self, number: int) -> bool:
        """Whether a worker has no call to answer."""
        return number not in self._calls

    def start(self) -> int:
        """Another worker; its calls wait until the cluster has room for it."""
        self._num_started += 1
        self._workers[self._num_started] = self._kind.remote(self._environment)
        return self._num_started

    def call(self, number: int, name: str, *arguments: Any) -> None:
        """Call a method of a worker that has no call to answer."""
        assert self.is_free(number), f"worker {number} is busy"
        method = getattr(self._workers[number], name)
        self._calls[number] = (name, method.remote(*arguments))

    def collect(self, seconds: float) -> list[Answer]:
        """The answers that are there, waiting up to `seconds` for the first one."""
        numbers = {reference: number for number, (_, reference) in self._calls.items()}
        if not numbers:
            return []
        references = list(numbers)
        if not ray.wait(references, num_returns=1, timeout=seconds, fetch_local=False)[0]:
            return []
        ready, _ = ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)
        return [self._answer(numbers[reference], reference) for reference in ready]

    def end(self, number: int) -> None:
        """End a worker at once; what it was called for has no answer."""
        self._calls.pop(number, None)
        ray.kill(self._workers.pop(number))

    def _answer(self, number: int, reference: Any) -> Answer:
        name, _ = self._calls.pop(number)
        try:
            return Answer(number=number, name=name, value=ray.get(reference))
        except RayTaskError:
            # Raised by our own code over there: a bug, as it would be here.
            raise
        except RayError as error:
            self.end(number)
            return Answer(number=number, name=name, value=Lost(cause=_cause(error)))


def _cause(error: RayError) -> str:
    """Why a worker was lost, in one line: its own last words where it could not be made."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "creation task" in lines[0]:
        return lines[-1]
    return "its process or its node has ended"
