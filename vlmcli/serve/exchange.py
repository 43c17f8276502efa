"""One request and its answer, between the event loop and the engine's thread.

Holds what a request takes (a seat, a folder for its pictures, its place with the backend) and gives
all of it back in `close`, however the request ends.
"""

import asyncio
import contextlib
import math
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from starlette.requests import ClientDisconnect, Request

from vlmcli.chat import Progress
from vlmcli.serve.backend import Backend
from vlmcli.serve.faults import ApiError, as_api_error
from vlmcli.serve.metrics import Metrics
from vlmcli.serve.protocol import ChatRequest

_MOST_WAIT = 60
_BODY_SECONDS = 300.0
_USUAL_SECONDS = 2.0
_PATIENCE = 4
"""Bodies are read up to so many times the size that is taken."""


class Seats:
    """Counts the requests that are taken and not yet answered; used by the event loop alone.

    Args:
        most: requests at a time.
        metrics: is told how many there are.
    """

    def __init__(self, most: int, metrics: Metrics) -> None:
        self._most = most
        self._metrics = metrics
        self._taken = 0
        self._seconds = _USUAL_SECONDS
        """Of a request between two answers, as a running mean."""
        self._last_end = 0.0

    def take(self) -> None:
        """Take a seat.

        Raises:
            ApiError: 429, with the time in which a seat should come free.
        """
        if self._taken >= self._most:
            wait = min(_MOST_WAIT, max(1, math.ceil(self._seconds)))
            message = f"{self._taken} requests are waiting; try again in {wait} s"
            raise ApiError(429, message, code="queue_full", retry_after=wait)
        self._taken += 1
        self._metrics.unfinished.set(self._taken)

    def release(self) -> None:
        """Give the seat back."""
        now = time.monotonic()
        if self._last_end:
            self._seconds += (min(now - self._last_end, _MOST_WAIT) - self._seconds) / 8
        self._last_end = now
        self._taken -= 1
        self._metrics.unfinished.set(self._taken)


class Exchange:
    """A request from its first byte to its answer's last.

    Args:
        request: as it came in.
        key: its name with the backend.
        folder: is made for its body and pictures.
        backend: answers it.
        seats: a seat is taken at once.
        metrics: is told times and tokens.

    Raises:
        ApiError: 429, there is no seat.
    """

    def __init__(
        self,
        request: Request,
        key: int,
        *,
        folder: Path,
        backend: Backend,
        seats: Seats,
        metrics: Metrics,
    ) -> None:
        seats.take()
        self._request = request
        self._key = key
        self.folder = folder
        self._backend = backend
        self._seats = seats
        self._metrics = metrics
        self._started = time.monotonic()
        self._has_text = False
        self._is_submitted = False
        self._is_closed = False
        self._mail: asyncio.Queue[Progress] = asyncio.Queue()
        folder.mkdir()

    async def receive_body(self, max_bytes: int) -> Path:
        """The body, in a file.

        Raises:
            ApiError: 413, it is too long; 408, it took too long.
            ClientDisconnect: the client has gone.
        """
        path = self.folder / "body"
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                with path.open("wb") as file:
                    size = await self._copy_body(file, max_bytes)
        except TimeoutError as error:
            raise ApiError(408, "the body did not come in time", code="timeout") from error
        if size > max_bytes:
            raise ApiError(413, f"the body is larger than {max_bytes} bytes", code="too_large")
        return path

    async def _copy_body(self, file: BinaryIO, max_bytes: int) -> int:
        """Write the body to a file, no more of it than is taken; its size as far as it was read.

        A body that is too long is read for a while all the same: a client that is cut off while it
        sends sees a broken connection and no answer.
        """
        size = 0
        async for piece in self._request.stream():
            size += len(piece)
            if size <= max_bytes:
                file.write(piece)
            elif size > _PATIENCE * max_bytes:
                break
        return size

    def submit(self, asked: ChatRequest, pictures: tuple[Path, ...]) -> None:
        """Hand the request to the backend."""
        loop = asyncio.get_running_loop()

        def tell(progress: Progress) -> None:
            # At the end the loop may be gone before the engine's thread.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._mail.put_nowait, progress)

        self._is_submitted = True
        self._backend.submit(self._key, asked.chat, pictures, tell)

    async def next(self) -> Progress:
        """What comes next of the answer.

        Raises:
            ApiError: there is no answer, or no more of it.
        """
        progress = await self._mail.get()
        if progress.error is not None:
            raise as_api_error(progress.error)
        if progress.text and not self._has_text:
            self._has_text = True
            self._metrics.first_text_seconds.observe(time.monotonic() - self._started)
        if progress.is_over:
            self._metrics.prompt_tokens.inc(progress.usage.prompt)
            self._metrics.completion_tokens.inc(progress.usage.completion)
        return progress

    async def next_while_there(self) -> Progress:
        """As `next`, for a client that is watched: to be used before the answer begins.

        Raises:
            ApiError: there is no answer.
            ClientDisconnect: the client has gone.
        """
        coming = asyncio.ensure_future(self.next())
        leaving = asyncio.ensure_future(_gone(self._request))
        try:
            done, _ = await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if coming not in done:
                raise ClientDisconnect
            return await coming
        finally:
            for task in (coming, leaving):
                task.cancel()
            await asyncio.gather(coming, leaving, return_exceptions=True)

    def close(self, status: int) -> None:
        """Give everything back; further calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_submitted:
            self._backend.cancel(self._key)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._seats.release()
        self._metrics.requests.labels(str(status)).inc()
        self._metrics.seconds.observe(time.monotonic() - self._started)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def rest_of(exchange: Exchange, first: Progress) -> AsyncIterator[Progress]:
    """The whole answer, whose first piece is known.

    Raises:
        ApiError: it breaks off.
    """
    progress = first
    yield progress
    while not progress.is_over:
        progress = await exchange.next()
        yield progress
