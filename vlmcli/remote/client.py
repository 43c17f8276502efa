"""Asks a server about pictures: one request after another until there is an answer or no hope.

Streams every answer, so that a loop is cut off where it begins, and tries again warmer; waits where
the server says that it is busy. A server that is found dead by one page is tried once by each later
one, until it answers again. Knows requests and texts, no jobs.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2

from vlmcli.answering import Answer
from vlmcli.loops import temperature_of
from vlmcli.remote.endpoint import api_key, headers, without_key
from vlmcli.remote.patience import Cause, Patience, seconds_asked
from vlmcli.remote.server import CONNECT_SECONDS, Server
from vlmcli.remote.watch import LoopWatch
from vlmcli.remote.wire import Piece, error_text, parse_piece, request_body
from vlmcli.results import Seconds, TokenCounts, add_seconds, add_tokens

_SILENCE_SECONDS = 600.0
"""Without a byte from the server, a connection is given up: it may be queueing the request."""
_SEND_SECONDS = 120.0
_BUSY = (408, 425, 429, 503)
_MOST_EVENT_BYTES = 64 << 20
_MOST_ERROR_BYTES = 1 << 16


class RefusedError(Exception):
    """There is no answer. `code` is that of the page's record."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _TryAgainError(Exception):
    """This try failed; another one may not."""

    def __init__(self, cause: Cause, message: str, asked: float | None = None) -> None:
        super().__init__(message)
        self.cause: Cause = cause
        self.asked = asked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One streamed answer; `kept` is the text before a loop."""

    text: str
    kept: str | None
    is_truncated: bool
    tokens: TokenCounts
    seconds: Seconds


class Client:
    """Asks one server. To be used within one event loop.

    Args:
        server: where and which model.
        retries: attempts after a loop, and tries after a fault of the server.
        max_tokens: of an answer.
        connections: at a time.
    """

    def __init__(self, server: Server, *, retries: int, max_tokens: int, connections: int) -> None:
        self._server = server
        self._retries = retries
        self._max_tokens = max_tokens
        self._patience = Patience(retries=retries)
        self._key = api_key(server.endpoint)
        self._is_down = False
        """Whether the last page that was given up found nobody there."""
        self.counts: Counter[str] = Counter()
        self._http = httpx2.AsyncClient(
            headers=headers(self._key),
            timeout=httpx2.Timeout(
                _SILENCE_SECONDS, connect=2 * CONNECT_SECONDS, write=_SEND_SECONDS, pool=None
            ),
            limits=httpx2.Limits(max_connections=connections),
            trust_env=not server.endpoint.is_local,
        )

    async def ask(self, picture: str, prompt: str) -> Answer:
        """The answer to a question about a picture, which is a data URL.

        Raises:
            RefusedError: there is none.
        """
        tokens, seconds = TokenCounts(), Seconds()
        attempt = 0
        while True:
            attempt += 1
            body = request_body(
                model=self._server.model,
                picture=picture,
                prompt=prompt,
                max_tokens=self._max_tokens,
                attempt=attempt,
                temperature=temperature_of(attempt),
            )
            found = await self._deliver(body)
            tokens = add_tokens(tokens, found.tokens)
            seconds = add_seconds(seconds, found.seconds)
            if found.kept is None or attempt > self._retries:
                break
            self.counts["server_loops"] += 1
        text = found.text if found.kept is None else found.kept
        return Answer(
            text=text.strip(),
            confidence=None,
            is_looped=found.kept is not None,
            is_truncated=found.is_truncated,
            attempts=attempt,
            tokens=tokens,
            seconds=seconds,
        )

    async def close(self) -> None:
        """Let go of all connections."""
        await self._http.aclose()

    async def _deliver(self, body: bytes) -> _Attempt:
        """Send a request until it is answered."""
        tries = 0
        while True:
            tries += 1
            self.counts["server_requests"] += 1
            try:
                found = await self._stream(body)
            except _TryAgainError as error:
                await self._wait_or_give_up(tries, error)
            else:
                self._is_down = False
                return found

    async def _wait_or_give_up(self, tries: int, error: _TryAgainError) -> None:
        is_nobody = error.cause == "unreachable"
        most = 1 if is_nobody and self._is_down else self._patience.num_tries(error.cause)
        if tries >= most:
            self._is_down = is_nobody
            count = f" ({tries} tries)" if tries > 1 else ""
            raise RefusedError(error.cause, f"{error}{count}") from error
        self.counts[f"server_retries_{error.cause}"] += 1
        await asyncio.sleep(self._patience.pause(tries, error.asked))

    async def _stream(self, body: bytes) -> _Attempt:
        """Send a request once.

        Raises:
            _TryAgainError: there is no whole answer, and may be one later.
            RefusedError: the server does not take such a request.
        """
        url = f"{self._server.endpoint.base}/chat/completions"
        fields = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        started = time.perf_counter()
        try:
            async with self._http.stream("POST", url, content=body, headers=fields) as response:
                if not response.is_success:
                    raise await self._fault(response)
                return await self._collect(response, started)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise _TryAgainError("unreachable", self._words(error)) from error
        except httpx2.HTTPError as error:
            raise _TryAgainError("server", self._words(error)) from error

    async def _collect(self, response: httpx2.Response, started: float) -> _Attempt:
        watch, first, loop, last = LoopWatch(), None, None, Piece()
        num_pieces, finish = 0, None
        async for piece in self._pieces(response):
            if piece.error is not None:
                raise _TryAgainError("server", without_key(piece.error, self._key))
            finish = piece.finish or finish
            if piece.prompt_tokens is not None:
                last = piece
            if piece.text:
                first = first or time.perf_counter()
                num_pieces += 1
                loop = watch.push(piece.text)
                if loop is not None:
                    break
        if loop is None and finish is None:
            raise _TryAgainError("server", "the answer broke off")
        if loop is None and finish == "length":
            loop = watch.end()
        now = time.perf_counter()
        output = num_pieces if last.output_tokens is None else last.output_tokens
        return _Attempt(
            text=watch.text,
            kept=None if loop is None else watch.before(loop),
            is_truncated=finish == "length",
            tokens=TokenCounts(prompt=last.prompt_tokens or 0, output=output),
            seconds=Seconds(prefill=(first or now) - started, decode=now - (first or now)),
        )

    async def _pieces(self, response: httpx2.Response) -> AsyncIterator[Piece]:
        """The events of a stream, or the one piece of an answer that came whole."""
        kind = response.headers.get("content-type", "")
        try:
            if not kind.startswith("text/event-stream"):
                yield parse_piece(await _read(response, _MOST_EVENT_BYTES))
                return
            async for event in httpx2.EventSource(response):
                if event.data == "[DONE]":
                    return
                yield parse_piece(event.data)
        except ValueError as error:
            raise _TryAgainError("server", f"the answer is no JSON: {error}") from error

    async def _fault(self, response: httpx2.Response) -> Exception:
        """What an answer that is an error means."""
        raw = await _read(response, _MOST_ERROR_BYTES)
        try:
            words = parse_piece(raw).error or error_text(raw.decode())
        except ValueError:
            words = error_text(raw.decode(errors="replace"))
        status = response.status_code
        message = f"the server answers {status}: {without_key(words, self._key)}"
        if status in _BUSY:
            asked = seconds_asked(response.headers.get("retry-after"))
            return _TryAgainError("busy", message, asked)
        return (
            _TryAgainError("server", message) if status >= 500 else RefusedError("server", message)
        )

    def _words(self, error: Exception) -> str:
        cause = without_key(str(error) or type(error).__name__, self._key)
        return f"no answer from {self._server.endpoint.base}: {cause}"


async def _read(response: httpx2.Response, most: int) -> bytes:
    """The body of an answer, no more of it than is of use."""
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > most:
            break
    return bytes(data[:most])
