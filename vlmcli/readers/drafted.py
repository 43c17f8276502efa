"""A large reader behind a small one: the small one reads each page first, the large one checks it.

What the small one read goes to the large one as a draft, which can save time and never changes a
text. Where the small one fails or memory is short, or the page has a draft already, the large one
reads without. Knows neither of the two.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from vlmcli.joining import join_crops
from vlmcli.reading import Draft, OutOfMemoryError, PageJob, PageReading, Reader


class DraftedReader:
    """A `reading.Reader` made of two.

    Args:
        main: reads whole pages and takes drafts.
        drafter: reads the crops of a page in `PageJob.draft_crops`, or its picture.
        name: of the drafts' source, in records and statistics.
        reads_crops: whether the drafter wants crops.
    """

    def __init__(self, main: Reader, drafter: Reader, *, name: str, reads_crops: bool) -> None:
        self._main, self._drafter = main, drafter
        self._name = name
        self._reads_crops = reads_crops
        self._drafted: dict[int, PageJob] = {}
        """Pages with the drafter."""
        self._ready: deque[PageJob] = deque()
        """Pages that the main reader has not taken yet."""
        self._num_drafts = 0
        self._seconds = 0.0

    def submit(self, job: PageJob) -> None:
        """Queue a page, first with the drafter.

        Raises:
            OutOfMemoryError: there is no room for it; the page has not been taken.
        """
        if job.drafts or (self._reads_crops and not job.draft_crops):
            self._main.submit(replace(job, draft_crops=()))
            return
        picture = None if self._reads_crops else job.picture
        try:
            self._drafter.submit(PageJob(key=job.key, crops=job.draft_crops, picture=picture))
        except OutOfMemoryError:
            self._main.submit(replace(job, draft_crops=()))
            return
        self._drafted[job.key] = job

    def step(self) -> Sequence[PageReading]:
        """Advance both; the pages that the main reader has finished.

        Raises:
            OutOfMemoryError: the main reader has not been advanced.
        """
        if self._drafter.has_work():
            try:
                readings = self._drafter.step()
            except OutOfMemoryError:
                self._give_up_drafting()
                raise
            for reading in readings:
                self._take(reading)
        while self._ready:
            self._main.submit(self._ready[0])
            self._ready.popleft()
        return self._main.step() if self._main.has_work() else ()

    def abort(self, key: int) -> None:
        """Forget a page, wherever it is."""
        if key in self._drafted:
            self._drafter.abort(key)
            del self._drafted[key]
        elif any(job.key == key for job in self._ready):
            self._ready = deque(job for job in self._ready if job.key != key)
        else:
            self._main.abort(key)

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""
        return bool(self._drafted or self._ready) or self._main.has_work()

    def drop_caches(self) -> None:
        """Give up what only saves time."""
        self._drafter.drop_caches()
        self._main.drop_caches()

    def device_bytes(self) -> int:
        """What both take on a device of their own."""
        return self._main.device_bytes() + self._drafter.device_bytes()

    def stats(self) -> dict[str, float]:
        """The main reader's counters, and what drafting took."""
        own = {"drafting_pages": self._num_drafts, "drafting_seconds": round(self._seconds, 3)}
        return {**self._main.stats(), **own}

    def close(self) -> None:
        """Release both."""
        self._ready.clear()
        self._drafted.clear()
        self._drafter.close()
        self._main.close()

    def _take(self, reading: PageReading) -> None:
        job = self._drafted.pop(reading.key)
        self._num_drafts += 1
        seconds = reading.seconds
        self._seconds += seconds.encode + seconds.prefill + seconds.decode
        lines, text = reading.lines, reading.text
        if reading.crops:
            lines, text = join_crops(job.draft_crops, reading.crops)
        if text:
            draft = Draft(name=self._name, text=text, lines=lines)
            job = replace(job, drafts=(draft,))
        self._ready.append(replace(job, draft_crops=()))

    def _give_up_drafting(self) -> None:
        """Memory is short: what has no draft yet is read without."""
        for key, job in self._drafted.items():
            self._drafter.abort(key)
            self._ready.append(replace(job, draft_crops=()))
        self._drafted.clear()
        self._drafter.drop_caches()
