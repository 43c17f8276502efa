"""`vlmcli bench server`: one record per page, however and by whom the pages are read."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from vlmcli.bench import server as bench
from vlmcli.errors import ExitCode, UnreachableError, UsageError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

QUIET = """
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

http.server.HTTPServer(("127.0.0.1", {port}), Handler).serve_forever()  # {model}
"""
"""A server that answers and lists no model."""
ENDING = """
print("no such card")
raise SystemExit(3)  # {model} {port}
"""


def python(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def test_the_places_in_a_command_are_filled():
    words = bench._command("run {model} --port={port} 'a b'", Path("/m o"), 81)
    assert words == ["run", "/m o", "--port=81", "a b"]
    for command in ("run {model}", "run --port {port}"):
        with pytest.raises(UsageError, match=r"no \{port\}|no \{model\}"):
            bench._command(command, Path("m"), 1)


def test_a_server_that_ends_at_once_is_named_with_what_it_said():
    with (
        pytest.raises(UnreachableError, match="ended with 3") as caught,
        bench._serving(python(ENDING), Path("m"), []),
    ):
        pass
    assert "no such card" in caught.value.__notes__[0]


def test_a_server_that_lists_no_model_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(bench, "START_SECONDS", 1.0)
    used: list[float] = []
    with (
        pytest.raises(UnreachableError, match="did not answer"),
        bench._serving(python(QUIET), Path("m"), used),
    ):
        pass
    assert len(used) == 1, "it was ended"


def test_two_other_servers_are_one_too_many(cli):
    done = cli("bench", "server", "--start", "x {model} {port}", "--url", "http://127.0.0.1:1")
    assert done.returncode == ExitCode.USAGE


@pytest.mark.slow
def test_any_server_is_read_with_like_our_own(real):
    """The other one is our own as well, started as a stranger's would be: it says the same."""
    start = f"{shlex.quote(sys.executable)} -m vlmcli serve -m {{model}} --port {{port}}"
    sizes = ("--pages", "2", "--max-tokens", "8", "--concurrency", "2")
    done = real("bench", "server", *sizes, "--start", start)
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout.decode().splitlines()[-1])
    assert list(result["runs"]) == ["local", "vlmcli serve", "other"]
    for figures in result["runs"].values():
        assert figures["one_record_per_page"] and figures["records"] == 2
        assert figures["output_tokens"] == 16
    assert result["same_text_as_own_server"] == 1.0
