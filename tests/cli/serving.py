"""A real `vlmcli serve` for tests: started on a free port, asked over HTTP, ended by a signal."""

import base64
import contextlib
import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from command_line import RealCli

_READY = re.compile(rb"answers at http://(\S+?)/v1")


class Server:
    """A running server; `url` ends without a slash."""

    def __init__(self, process: subprocess.Popen, address: str) -> None:
        self.process = process
        self.address = address
        self.url = f"http://{address}"

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        return self._open(urllib.request.Request(self.url + path, headers=headers))[:2]

    def post(self, data: object, **headers: str):
        """Status, parsed body and headers of an answer."""
        status, body, got = self._open(self.asking(data, **headers))
        return status, json.loads(body), got

    def stream(self, data: dict) -> list[dict]:
        """The pieces of an answer that comes in pieces, to its end."""
        status, body, _ = self._open(self.asking({**data, "stream": True}))
        assert status == 200, body
        return pieces(body)

    def asking(self, data: object, **headers: str) -> urllib.request.Request:
        """A request about JSON, or about bytes that should be JSON."""
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        more = {"Content-Type": "application/json", **headers}
        return urllib.request.Request(f"{self.url}/v1/chat/completions", raw, more)

    def read(self, *paths: Path, **more):
        """The answer about some pictures."""
        return self.post(question(*map(data_url, paths), **more))

    def end(self, number: int = signal.SIGTERM) -> tuple[int, bytes]:
        """Signal the server; its exit code and what it said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said

    def _open(self, request):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers


@contextlib.contextmanager
def serving(folder: Path, *args: str, **more):
    """A server that is killed at the end if it is still there."""
    process = start(folder, *args, **more)
    try:
        for line in process.stderr:
            if match := _READY.search(line):
                yield Server(process, match[1].decode())
                break
        else:
            raise AssertionError(f"the server ended with {process.wait()}")
    finally:
        process.kill()
        process.communicate()


def start(folder: Path, *args: str, env: dict | None = None) -> subprocess.Popen:
    """Start a server on any free port; what one that is killed leaves behind is in `folder`."""
    cli = RealCli(folder)
    spool = folder / "spool"
    spool.mkdir(exist_ok=True)
    env = {"TMPDIR": str(spool), **(env or {})}
    return subprocess.Popen(
        cli.command("serve", "--port", "0", "--threads", "1", *args, fake=False),
        cwd=folder,
        env=cli.environment(**env),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def data_url(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()


def question(*urls: str, words: str = "Read.", **more) -> dict:
    parts: list[dict] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    parts.append({"type": "text", "text": words})
    return {"model": "nano", "messages": [{"role": "user", "content": parts}], **more}


def pieces(stream: bytes) -> list[dict]:
    """The JSON of every event but the last, which says that it was the last."""
    *events, last = stream.decode().strip().split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def content(answer: dict) -> str:
    return answer["choices"][0]["message"]["content"]
