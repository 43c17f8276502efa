"""A server that speaks OpenAI's API and misbehaves as told, from the standard library alone."""

import base64
import contextlib
import json
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pymupdf


@dataclass
class Asked:
    """One request: the width of its picture, the rest of its JSON, its header fields."""

    width: int
    data: dict[str, Any]
    headers: dict[str, str]
    number: int
    """How often this picture has been asked about, from 1."""


@dataclass
class Fake:
    """What the server does and what it has seen. `answer` is called for every chat request.

    It returns a text, which is streamed word by word, or writes to the handler and returns None.
    """

    answer: Callable[["Handler", Asked], str | None] = lambda handler, asked: page_text(asked)
    models: Any = ("fake",)
    """Names, or the status and body of the answer to `/models`."""
    asked: list[Asked] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""
    stop: Callable[[], None] = lambda: None

    def widths(self) -> list[int]:
        return sorted(asked.width for asked in self.asked)


def page_text(asked: Asked) -> str:
    return f"page of width {asked.width}"


class Handler(BaseHTTPRequestHandler):
    """Parses requests; answers are the fake's."""

    fake: Fake
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        models = self.fake.models
        if len(models) == 2 and isinstance(models[0], int):
            self.whole(*models)
            return
        self.whole(200, {"object": "list", "data": [{"id": name} for name in models]})

    def do_POST(self) -> None:
        data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake = self.fake
        image = data["messages"][0]["content"].pop(0)
        raw = base64.b64decode(image["image_url"]["url"].partition(",")[2])
        width = struct.unpack(">I", raw[16:20])[0] if raw[:4] == b"\x89PNG" else 0
        with fake.lock:
            fake.in_flight += 1
            fake.most_in_flight = max(fake.most_in_flight, fake.in_flight)
            number = 1 + sum(asked.width == width for asked in fake.asked)
            asked = Asked(width, data, dict(self.headers), number)
            fake.asked.append(asked)
        try:
            with contextlib.suppress(ConnectionError):
                text = fake.answer(self, asked)
                if text is not None:
                    self.stream(text)
        finally:
            with fake.lock:
                fake.in_flight -= 1

    def whole(self, status: int, body: Any, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def stream(self, text: str, finish: str | None = "stop") -> None:
        self.begin()
        for word in text.replace(" ", " \0").split("\0"):
            self.event({"choices": [{"index": 0, "delta": {"content": word}}]})
        if finish is None:
            return
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": 7, "completion_tokens": len(text.split())}
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def begin(self) -> None:
        """Head of a stream that ends with the connection."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()

    def event(self, data: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")

    def log_message(self, *args: Any) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what these tests are about."""


@contextlib.contextmanager
def running(fake: Fake):
    """The fake, listening; `fake.stop` ends it as if its process had died."""
    handler = type("Bound", (Handler,), {"fake": fake})
    server = _Quiet(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"

    def stop() -> None:
        server.shutdown()
        server.server_close()

    fake.stop = stop
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_pages(path, count: int) -> list[int]:
    """A PDF whose pages differ in width, and the widths in pixels at 72 dpi."""
    widths = [200 + 20 * number for number in range(count)]
    with pymupdf.open() as document:
        for width in widths:
            page = document.new_page(width=width, height=150)
            page.insert_text((20, 40), f"This page has a width of {width}", fontsize=11)
            page.draw_rect((20, 60, width - 20, 130), fill=(0, 0, 0))
        document.save(path)
    return widths
