"""A `reading.Reader` that has its pages read by a server.

An event loop in a thread of its own keeps up to so many pages with the server at a time; `step`
hands out what has come back. A page's time runs from its first request, so that pages which wait
for their turn do not run out of it. Refuses drafts: a server has no use for them.
"""

import asyncio
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from vlmcli.answering import page_reading
from vlmcli.engine.models.prompts import prompt_for
from vlmcli.options import OcrOptions
from vlmcli.reading import DEFAULT_MAX_TOKENS, PageJob, PageReading
from vlmcli.remote.client import Client, RefusedError
from vlmcli.remote.server import Server
from vlmcli.remote.wire import picture_url

_WAIT_SECONDS = 0.05
"""How long a step waits where nothing has come back: the job has other things to do, too."""


class RemoteReader:
    """Reads pages on a server.

    Args:
        server: where and which model.
        options: the job's: retries, limits, questions, how pictures are sent.
        num_pages: with the server at a time.
    """

    def __init__(self, server: Server, options: OcrOptions, *, num_pages: int) -> None:
        self._options = options
        # Families have prompts of their own; which one answers there is not known here.
        instruction = options.server_prompt or prompt_for("", options.task)
        self._prompts = options.question or (instruction,)
        self._pages: dict[int, Future[PageReading]] = {}
        self._finished: queue.SimpleQueue[Future[PageReading]] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="vlmcli-server", daemon=True
        )
        self._seats = asyncio.Semaphore(num_pages)
        self._client = Client(
            server,
            retries=options.retries,
            max_tokens=options.max_tokens or DEFAULT_MAX_TOKENS,
            connections=num_pages,
        )
        self._thread.start()

    def submit(self, job: PageJob) -> None:
        """Take a page."""
        assert job.picture is not None, "a server needs the page's picture"
        page = asyncio.run_coroutine_threadsafe(self._read(job), self._loop)
        self._pages[job.key] = page
        page.add_done_callback(self._finished.put)

    def step(self) -> Sequence[PageReading]:
        """The pages that have come back, waiting a little for the first one.

        Raises:
            Exception: a fault of ours in the other thread.
        """
        found: list[PageReading] = []
        try:
            while True:
                wait = 0.0 if found else _WAIT_SECONDS
                page = self._finished.get(timeout=wait) if wait else self._finished.get_nowait()
                if page.cancelled():
                    continue
                reading = page.result()
                if self._pages.pop(reading.key, None) is not None:
                    found.append(reading)
        except queue.Empty:
            return found

    def abort(self, key: int) -> None:
        """Forget a page; its connection is closed, which ends it on the server as well."""
        page = self._pages.pop(key, None)
        if page is not None:
            page.cancel()

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""
        return bool(self._pages)

    def drop_caches(self) -> None:
        """There are none."""

    def device_bytes(self) -> int:
        """Nothing is kept on a device."""
        return 0

    def stats(self) -> dict[str, float]:
        """Requests, loops, and tries that were repeated, by cause."""
        return dict(self._client.counts)

    def close(self) -> None:
        """Give up all pages and connections."""
        for key in list(self._pages):
            self.abort(key)
        asyncio.run_coroutine_threadsafe(_close(self._client), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _read(self, job: PageJob) -> PageReading:
        async with self._seats:
            return await self._read_in_time(job)

    async def _read_in_time(self, job: PageJob) -> PageReading:
        try:
            async with asyncio.timeout(self._options.page_timeout):
                return await self._ask(job)
        except TimeoutError:
            message = f"not read within {self._options.page_timeout:g} s"
            return PageReading(key=job.key, status="timeout", message=message)
        except RefusedError as error:
            return PageReading(key=job.key, status="error", code=error.code, message=str(error))

    async def _ask(self, job: PageJob) -> PageReading:
        assert job.picture is not None
        picture = await asyncio.to_thread(picture_url, job.picture, self._options.server_image)
        answers = [await self._client.ask(picture, prompt) for prompt in self._prompts]
        options = self._options
        return page_reading(job.key, options.question, answers, task=options.task)


async def _close(client: Client) -> None:
    """Wait for what was cancelled, then close."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await client.close()
