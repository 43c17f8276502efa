"""The web application: routes, and what each answers. FastAPI over `Exchange`."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from vlmcli.chat import Progress
from vlmcli.serve.access import Access, require_json
from vlmcli.serve.answers import DONE, Answer, error_event, model_object
from vlmcli.serve.backend import Backend
from vlmcli.serve.exchange import Exchange, Seats, rest_of
from vlmcli.serve.faults import ApiError
from vlmcli.serve.metrics import Metrics
from vlmcli.serve.pictures import store_pictures
from vlmcli.serve.protocol import ChatRequest, Limits, parse_body
from vlmcli.serve.settings import ServeOptions

_CLIENT_GONE = 499
"""Status in the figures of requests whose client did not wait; nobody receives it."""
_NO_STORE = {"Cache-Control": "no-store"}


class _Stream(StreamingResponse):
    """A streamed answer that gives everything back at its end, also where it never began."""

    def __init__(self, pieces: AsyncIterator[str], exchange: Exchange) -> None:
        super().__init__(
            pieces,
            media_type="text/event-stream",
            headers={**_NO_STORE, "X-Accel-Buffering": "no"},
        )
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces until they end or the client goes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._exchange.close(200)


class _Routes:
    """What the routes share.

    Args:
        options: limits and the allowed root.
        name: of the model.
        label: its name and revision.
        backend: answers.
        spool: folder for bodies and pictures.
    """

    def __init__(
        self, options: ServeOptions, *, name: str, label: str, backend: Backend, spool: Path
    ) -> None:
        self._options = options
        self._name = name
        self._label = label
        self._backend = backend
        self._spool = spool
        self._started = int(time.time())
        self._access = Access(options)
        self._metrics = Metrics(lambda: backend.stats)
        self._seats = Seats(options.max_queue, self._metrics)
        self._numbers = itertools.count(1)
        # Bodies are parsed one at a time: the plan has room for the copies of one.
        self._parsing = asyncio.Lock()

    async def health(self) -> Response:
        """Whether requests can be answered."""
        is_alive = self._backend.is_alive
        data = {"status": "ok" if is_alive else "failed", "model": self._label}
        return JSONResponse(data, 200 if is_alive else 503, _NO_STORE)

    async def models(self, request: Request) -> Response:
        """The one model."""
        self._access.check(request.headers)
        model = model_object(self._name, self._label, self._started)
        return JSONResponse({"object": "list", "data": [model]})

    async def metrics(self, request: Request) -> Response:
        """The figures."""
        self._access.check(request.headers)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(self._metrics.render(), media_type=kind, headers=_NO_STORE)

    async def complete(self, request: Request) -> Response:
        """Answer a chat."""
        exchange: Exchange | None = None
        try:
            self._access.check(request.headers)
            require_json(request.headers)
            exchange = self._open(request)
            return await self._answer(request, exchange)
        except ApiError as error:
            self._close(exchange, error.status)
            raise
        except ClientDisconnect:
            self._close(exchange, _CLIENT_GONE)
            return Response(status_code=_CLIENT_GONE)
        except BaseException:
            self._close(exchange, 500)
            raise

    def _open(self, request: Request) -> Exchange:
        key = next(self._numbers)
        return Exchange(
            request,
            key,
            folder=self._spool / str(key),
            backend=self._backend,
            seats=self._seats,
            metrics=self._metrics,
        )

    async def _answer(self, request: Request, exchange: Exchange) -> Response:
        body = await exchange.receive_body(self._options.max_body)
        async with self._parsing:
            asked, pictures = await asyncio.to_thread(self._understand, body, exchange.folder)
        exchange.submit(asked, pictures)
        answer = Answer(model=self._name, label=self._label)
        first = await exchange.next_while_there()
        if asked.stream:
            return _Stream(self._pieces(asked, answer, exchange, first), exchange)
        progress, text = first, first.text
        while not progress.is_over:
            progress = await exchange.next_while_there()
            text += progress.text
        assert progress.finish is not None
        exchange.close(200)
        return JSONResponse(answer.whole(text, progress.finish, progress.usage), headers=_NO_STORE)

    def _understand(self, body: Path, folder: Path) -> tuple[ChatRequest, tuple[Path, ...]]:
        """Parse a body and lay out its pictures; in a helper thread.

        Raises:
            ApiError: there is something wrong with it.
        """
        options = self._options
        limits = Limits(max_images=options.max_images, max_tokens=options.max_tokens)
        asked = parse_body(body.read_bytes(), limits)
        body.unlink()
        if asked.model not in (self._name, self._label):
            message = f"there is no model {asked.model!r} here, only {self._name!r}"
            raise ApiError(404, message, code="model_not_found", param="model")
        pictures = store_pictures(
            asked.pictures, folder, root=options.allowed_root, max_bytes=options.max_body
        )
        return asked, pictures

    async def _pieces(
        self, asked: ChatRequest, answer: Answer, exchange: Exchange, first: Progress
    ) -> AsyncIterator[str]:
        """The events of a streamed answer."""
        yield answer.first_piece()
        try:
            async for progress in rest_of(exchange, first):
                if progress.text:
                    yield answer.piece(progress.text)
                if progress.finish is not None:
                    yield answer.last_piece(progress.finish)
                    if asked.include_usage:
                        yield answer.usage_piece(progress.usage)
                    yield DONE
        except ApiError as error:
            yield error_event(error)

    def _close(self, exchange: Exchange | None, status: int) -> None:
        """Count a request without an answer, and give back what it took."""
        if exchange is None:
            self._metrics.requests.labels(str(status)).inc()
        else:
            exchange.close(status)


def make_app(
    options: ServeOptions, *, name: str, label: str, backend: Backend, spool: Path
) -> FastAPI:
    """The application; see `_Routes`."""
    app = FastAPI(title="vlmcli", docs_url=None, redoc_url=None, openapi_url=None)
    routes = _Routes(options, name=name, label=label, backend=backend, spool=spool)
    app.post("/v1/chat/completions", response_model=None)(routes.complete)
    app.get("/v1/models", response_model=None)(routes.models)
    app.get("/metrics", response_model=None)(routes.metrics)
    app.get("/health", response_model=None)(routes.health)
    app.exception_handler(ApiError)(_tell)
    app.exception_handler(HTTPException)(_tell_http)
    return app


async def _tell(request: Request, error: Any) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), error.status, error.headers())


async def _tell_http(request: Request, error: Any) -> Response:
    """Routes and methods that there are not, in the same shape."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    what = ApiError(error.status_code, f"{error.detail}: {path}", code="no_such_route")
    return JSONResponse(what.body(), error.status_code, error.headers)
