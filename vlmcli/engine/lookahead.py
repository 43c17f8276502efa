"""The encoder batch that is on its way while the decoder goes on: one at a time.

How far the encoder runs ahead is bounded by the encoder cache, in which room for the batch is kept
from the moment that it is planned. Where a batch is there at once, as on a CPU, so is its result.
"""

from time import perf_counter

from vlmcli.engine.images import ImageStore
from vlmcli.engine.interfaces import Pending
from vlmcli.engine.scheduler import Scheduler
from vlmcli.engine.step import EncodeJob

Jobs = tuple[EncodeJob, ...]


class Lookahead:
    """Starts encoder batches, and files them when they are there.

    Args:
        images: encodes.
        scheduler: gets the results.
    """

    def __init__(self, images: ImageStore, scheduler: Scheduler) -> None:
        self._images, self._scheduler = images, scheduler
        self._batch: tuple[Jobs, Pending] | None = None
        self._seconds = 0.0

    def start(self, jobs: Jobs) -> None:
        """Begin with a batch of the scheduler's; none is on its way.

        Raises:
            Exception: whatever the model runner raised; the images are wanted as before.
        """
        assert self._batch is None, "one batch at a time"
        started = perf_counter()
        pending: Pending | None = None
        try:
            pending = self._images.start(jobs)
        finally:
            if pending is None:
                self._give_up(jobs)
        self._batch, self._seconds = (jobs, pending), perf_counter() - started

    def collect(self, *, wait: bool) -> tuple[Jobs, float] | None:
        """File the batch if it is there, or in any case if `wait`; None where there is none.

        Returns:
            The batch, and the seconds that were spent on it and on waiting for it.

        Raises:
            Exception: whatever the model runner raised; the images are wanted as before.
        """
        if self._batch is None or not (wait or self._batch[1].is_done()):
            return None
        jobs, pending = self._batch
        started = perf_counter()
        self._batch = None
        is_there = False
        try:
            values = self._images.finish(jobs, pending)
            is_there = True
        finally:
            if not is_there:
                self._give_up(jobs)
        self._scheduler.encoded(jobs, values)
        return jobs, self._seconds + perf_counter() - started

    def _give_up(self, jobs: Jobs) -> None:
        for job in jobs:
            self._images.embeddings.give_up(job.image.mm_hash)
