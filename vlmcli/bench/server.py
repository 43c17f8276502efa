"""`vlmcli bench server`: the same pages read here, by `vlmcli serve`, and by any other server.

A random checkpoint in Hugging Face format is written, so that nothing need be fetched; another
server is started by a command with `{model}` and `{port}` in it, or named by its URL. What counts
is that every page has its record, and what a token costs; what a random model says means nothing,
and whether two runtimes agree on it is told, not demanded. Seconds are a whole job's: locally with
the loading of the model, with a server after one page that warms it up. Processor seconds of a
server that was started here are those since its start.
"""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlmcli.bench.checkpoints import Shape, write_lively
from vlmcli.bench.jobs import WITHOUT_REUSE, Job, read
from vlmcli.bench.pages import page_picture, write_scan
from vlmcli.errors import UnreachableError, UsageError

Say = Callable[[str], None]

START_SECONDS = 300.0
"""Until a server must answer: some compile first."""
_END_SECONDS = 30.0
_SAID = 2000
"""Bytes of the last that a server said, for one that did not come up."""
_OWN = (
    f"{shlex.quote(sys.executable)} -m vlmcli serve --model {{model}} --port {{port}} --threads 1"
)
_TEMPLATE = (
    "{% for message in messages %}{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if 'image' in part.type %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)
"""How other servers make a prompt of a message: random weights have no format of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way of reading: the job, its wall-clock seconds, and what its server took."""

    job: Job
    server_cpu_seconds: float | None
    """None where there is no server, or it was not started here."""

    @property
    def tokens(self) -> int:
        """Output tokens, by the reader's own count."""
        return sum(int(record["tokens"]["output"]) for record in self.job.records)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the job."""
        return float(self.job.stats["seconds"])

    def has_every_page(self, num_pages: int) -> bool:
        """Whether there is one record for every page, in order."""
        return [record["page"] for record in self.job.records] == list(range(1, num_pages + 1))

    def figures(self, num_pages: int) -> dict[str, Any]:
        """For the JSON."""
        records = self.job.records
        return {
            "records": len(records),
            "one_record_per_page": self.has_every_page(num_pages),
            "status": {
                status: sum(record["status"] == status for record in records)
                for status in sorted({record["status"] for record in records})
            },
            "output_tokens": self.tokens,
            "seconds": round(self.seconds, 2),
            "tokens_per_second": round(self.tokens / self.seconds, 1),
            "client_cpu_seconds": round(self.job.cpu_seconds, 2),
            "server_cpu_seconds": self.server_cpu_seconds,
        }


def run(
    shape: Shape,
    *,
    num_pages: int,
    max_tokens: int,
    concurrency: int,
    start: str | None,
    url: str | None,
    say: Say,
) -> dict[str, Any]:
    """Measure; `say` gets the table line by line.

    Args:
        shape: of the random checkpoint.
        num_pages: of the document.
        max_tokens: of an answer.
        concurrency: pages that are with a server at a time.
        start: command of another server, with `{model}` and `{port}` in it.
        url: of another server that runs already; it reads with its own model.
        say: takes a line of text.

    Returns:
        `pages`, `max_tokens`, and by way of reading (`local`, `vlmcli serve`, `other`) its figures
        under `runs`; `same_text_as_own_server`: the share of pages on which the other server said
        what `vlmcli serve` did, null without one.

    Raises:
        UsageError: the command has no place for the model or the port.
        UnreachableError: a server did not come up.
    """
    if start is not None:
        _command(start, Path("model"), 1)
    runs: dict[str, Reading] = {}
    say(f"{'':<14} {'pages':>6} {'tokens':>7} {'s':>7} {'tokens/s':>9} {'CPU s':>7} {'server':>7}")
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as name:
        folder = Path(name)
        document = folder / "pages.pdf"
        write_scan(document, map(page_picture, range(num_pages)))
        model = write_lively(folder, shape)
        (model / "chat_template.jinja").write_text(_TEMPLATE)
        options = (*WITHOUT_REUSE, "--max-tokens", str(max_tokens), "--retries", "0")
        remote = (*options, "--server-concurrency", str(concurrency))

        def measured(name: str, reading: Reading) -> None:
            runs[name] = reading
            say(_row(name, reading, num_pages))

        job = read(document, folder, *options, "--model", str(model), "--threads", "1")
        measured("local", Reading(job=job, server_cpu_seconds=None))
        measured("vlmcli serve", _started(_OWN, model, document, remote))
        if start is not None:
            measured("other", _started(start, model, document, remote))
        elif url is not None:
            job = _asked(document, url, remote)
            measured("other", Reading(job=job, server_cpu_seconds=None))
    return {
        "pages": num_pages,
        "max_tokens": max_tokens,
        "runs": {name: reading.figures(num_pages) for name, reading in runs.items()},
        "same_text_as_own_server": _share_same(runs),
    }


def _share_same(runs: dict[str, Reading]) -> float | None:
    if "other" not in runs:
        return None
    own, other = runs["vlmcli serve"].job.texts, runs["other"].job.texts
    return round(sum(a == b for a, b in zip(own, other, strict=False)) / len(own), 3)


def _row(name: str, reading: Reading, num_pages: int) -> str:
    found = reading.figures(num_pages)
    server = reading.server_cpu_seconds
    return (
        f"{name:<14} {found['records']:>6} {reading.tokens:>7} {reading.seconds:>7.1f} "
        f"{found['tokens_per_second']:>9.1f} {reading.job.cpu_seconds:>7.1f} "
        f"{'' if server is None else f'{server:.1f}':>7}"
    )


def _started(command: str, model: Path, document: Path, options: Sequence[str]) -> Reading:
    """The document read by a server that is started for it and ended behind it."""
    used: list[float] = []
    with _serving(command, model, used) as url:
        job = _asked(document, url, options)
    return Reading(job=job, server_cpu_seconds=round(used[0], 1))


def _asked(document: Path, url: str, options: Sequence[str]) -> Job:
    """The document read by a server, after a page that warms it up."""
    store = document.parent
    read(document, store, *options, "--server", url, "--pages", "1")
    return read(document, store, *options, "--server", url)


@contextlib.contextmanager
def _serving(command: str, model: Path, used: list[float]) -> Iterator[str]:
    """A server while it is wanted; its URL. Its processor seconds are appended to `used`."""
    port = _free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            _command(command, model, port), stdout=log, stderr=log, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(f"{url}/v1/models", process)
            yield url
        except UnreachableError as error:
            log.seek(0)
            error.add_note(log.read()[-_SAID:].decode(errors="replace"))
            raise
        finally:
            used.append(_end(process))


def _command(command: str, model: Path, port: int) -> list[str]:
    if "{model}" not in command or "{port}" not in command:
        raise UsageError(
            "the command that starts a server has no {model} or no {port}",
            remedy="as in --start 'vllm serve {model} --port {port}'",
        )
    values = {"{model}": str(model), "{port}": str(port)}
    words = shlex.split(command)
    for place, value in values.items():
        words = [word.replace(place, value) for word in words]
    return words


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server lists its models."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UnreachableError(f"the server ended with {process.returncode} before it answered")
        try:
            with opener.open(url, timeout=5) as answer:
                if json.load(answer).get("data"):
                    return
        except (OSError, ValueError):
            time.sleep(0.2)
    raise UnreachableError(f"the server did not answer within {START_SECONDS:g} s")


def _end(process: subprocess.Popen[bytes]) -> float:
    """Ask the server to end, then make it, processes of its own with it; its processor seconds."""
    if process.returncode is not None:
        return 0.0
    process.terminate()
    deadline = time.monotonic() + _END_SECONDS
    while not (found := os.wait4(process.pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.05)
    _, status, usage = found
    process.returncode = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return usage.ru_utime + usage.ru_stime
