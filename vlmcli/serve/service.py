"""A server from its options to its end: bind, plan, load, serve, drain.

The port is bound first and listens last: a port that is taken is found out before anything is
loaded, and who can connect will be answered. Knows no terminal; signals are the command line's.
"""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from vlmcli.checkpoint import Checkpoint, find_checkpoint
from vlmcli.documents.prepared import PrepareSpec
from vlmcli.documents.source import RenderSpec
from vlmcli.errors import UsageError
from vlmcli.options import OcrOptions
from vlmcli.rapidocr import RAPIDOCR
from vlmcli.serve.app import make_app
from vlmcli.serve.backend import Backend
from vlmcli.serve.budget import plan_server
from vlmcli.serve.lines import LineAnswerer
from vlmcli.serve.settings import ServeOptions, require_safe

if TYPE_CHECKING:
    from vlmcli.chat import Answerer
    from vlmcli.memory.settings import Budgets

_MORE_CONNECTIONS = 64
"""Beyond the requests in work: of clients that are told to come back, and of who looks."""
_BACKLOG = 128
_AFTER_DRAIN = 5
"""Seconds that uvicorn waits longer than we do: by then every request has its answer."""


class _Uvicorn(uvicorn.Server):
    """Leaves signals to whoever runs the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Service:
    """A server that is loaded. `run` serves, `stop` ends it; both once.

    Args:
        options: what was asked for.

    Raises:
        UsageError: strangers could reach it without a key, the address is taken, or the model
            answers no chats.
        WillNotFitError: the plan exceeds the cap.
        ModelError: the model is missing, unsupported or broken.
    """

    def __init__(self, options: ServeOptions) -> None:
        require_safe(options)
        checkpoint = find_checkpoint(options.job.model)
        if checkpoint.model_type == RAPIDOCR:
            raise UsageError(
                f"{RAPIDOCR} answers no chats", remedy="serve the built-in model or a checkpoint"
            )
        self._drain = options.drain
        self._spool = tempfile.TemporaryDirectory(prefix="vlmcli-", ignore_cleanup_errors=True)
        self._socket = _bind(options.host, options.port)
        self.label = checkpoint.label
        job = _job(options, checkpoint)
        gate = plan_server(replace(options, job=job))
        self._backend = Backend(
            gate,
            _spec(job, checkpoint),
            max_pixels=job.max_pixels,
            load=lambda: _load(checkpoint, job, gate.require_fit()),
            on_crash=self.stop,
        )
        app = make_app(
            options,
            name=checkpoint.name,
            label=checkpoint.label,
            backend=self._backend,
            spool=Path(self._spool.name),
        )
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=options.max_queue + _MORE_CONNECTIONS,
                timeout_graceful_shutdown=int(options.drain) + _AFTER_DRAIN,
            )
        )
        self._backend.start()
        self._socket.listen(_BACKLOG)

    @property
    def url(self) -> str:
        """Where it is; the port is the real one, also where any free one was asked for."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"

    def run(self) -> None:
        """Serve until `stop`.

        Raises:
            BaseException: what ended the engine's thread, if a fault of ours did.
        """
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._backend.close()
            self._spool.cleanup()
        if self._backend.error is not None:
            raise self._backend.error

    def stop(self) -> None:
        """Take no more requests and end when those in work are answered, or after `drain` seconds.

        May be called from any thread and from a signal handler.
        """
        self._backend.drain(self._drain)
        self._uvicorn.should_exit = True


def _bind(host: str, port: int) -> socket.socket:
    """A socket with the address, not listening yet.

    Raises:
        UsageError: it cannot be had.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        found.close()
        raise UsageError(
            f"cannot serve at {host}, port {port}: {error.strerror}",
            remedy="choose another --port; 0 is any free one",
        ) from error
    return found


def _job(options: ServeOptions, checkpoint: Checkpoint) -> OcrOptions:
    """The model's settings: a limit on tokens is one on an answer, not on a line."""
    limit = options.max_tokens if checkpoint.reads == "page" else None
    return replace(options.job, max_tokens=limit)


def _spec(job: OcrOptions, checkpoint: Checkpoint) -> PrepareSpec:
    """Pictures are drawn as pages are; who asks about a blank one shall have an answer."""
    return PrepareSpec(
        render=RenderSpec(dpi=job.dpi, max_pixels=job.max_pixels),
        text_layer="ignore",
        reads=checkpoint.reads,
        line_height=checkpoint.line.height,
        max_line_width=checkpoint.line.max_width,
        skips_blank=checkpoint.reads == "lines",
    )


def _load(checkpoint: Checkpoint, job: OcrOptions, budgets: "Budgets") -> "Answerer":
    # Imports torch, in the thread that will use it.
    from vlmcli.readers import load_chat, load_reader

    if checkpoint.reads == "lines":
        return LineAnswerer(load_reader(checkpoint, job, budgets))
    return load_chat(checkpoint, job, budgets)
