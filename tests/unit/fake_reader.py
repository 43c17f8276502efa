"""A reader without a model: says which page it was given, late, early, badly or never."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vlmcli.reading import CropText, PageJob, PageReading, ReadStatus


@dataclass
class FakeReader:
    """Finishes pages in random order after a random number of steps.

    Text of every crop of the k-th submitted page is `serial k`. Pages in `statuses` end with that
    status; pages in `never` do not end.
    """

    seed: int = 0
    max_delay: int = 5
    statuses: dict[int, ReadStatus] = field(default_factory=dict)
    never: frozenset[int] = frozenset()
    on_submit: Callable[[int], None] | None = None
    jobs: dict[int, tuple[PageJob, int]] = field(default_factory=dict)
    num_submitted: int = 0
    aborted: list[int] = field(default_factory=list)
    max_bytes: int = 0
    is_closed: bool = False
    num_drops: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def submit(self, job: PageJob) -> None:
        assert job.key not in self.jobs
        self.num_submitted += 1
        self.jobs[job.key] = (job, self._random.randint(0, self.max_delay))
        self.max_bytes = max(self.max_bytes, sum(_pixel_bytes(j) for j, _ in self.jobs.values()))
        if self.on_submit is not None:
            self.on_submit(job.key)

    def step(self) -> Sequence[PageReading]:
        finished = []
        keys = list(self.jobs)
        self._random.shuffle(keys)
        for key in keys:
            job, delay = self.jobs[key]
            if delay > 0 or key in self.never:
                self.jobs[key] = (job, delay - 1)
                continue
            del self.jobs[key]
            status = self.statuses.get(key, "ok")
            finished.append(
                PageReading(
                    key=key,
                    status=status,
                    crops=tuple(CropText(text=f"serial {key}", confidence=0.9) for _ in job.crops),
                    message="" if status == "ok" else f"injected {status}",
                )
            )
        return finished

    def abort(self, key: int) -> None:
        del self.jobs[key]
        self.aborted.append(key)

    def has_work(self) -> bool:
        return bool(self.jobs)

    def drop_caches(self) -> None:
        self.num_drops += 1

    def device_bytes(self) -> int:
        return 0

    def stats(self) -> dict[str, float]:
        return {"fake_pages": self.num_submitted}

    def close(self) -> None:
        self.is_closed = True


def _pixel_bytes(job: PageJob) -> int:
    """What the job's pictures keep alive."""
    pixels = sum(crop.pixels.nbytes for crop in job.crops)
    return pixels + (0 if job.picture is None else job.picture.nbytes)
