"""docs/servers.md is true: its commands run in order, and its options are the program's."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from command_line import ROOT, Shell

TEXT = (ROOT / "docs" / "servers.md").read_text(encoding="utf-8")
SHELL = re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
PYTHON = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.fixture(scope="module")
def shell(tmp_path_factory, port):
    """A folder with the samples, and whatever is left of the server ended."""
    found = Shell(tmp_path_factory.mktemp("servers"))
    yield found
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((found.folder / "serve.pid").read_text()), signal.SIGKILL)


def test_every_command_runs(shell, port):
    if subprocess.run(["which", "curl"], capture_output=True, check=False).returncode:
        pytest.skip("no curl here")
    start, ask, read, end = (block.replace("8123", port) for block in SHELL)
    assert json.loads(shell(start))["status"] == "ok"
    answer = json.loads(shell(ask))
    text = answer["choices"][0]["message"]["content"]
    assert text.strip()
    ran = False
    with contextlib.suppress(ImportError):
        import openai  # noqa: F401

        ran = True
    if ran:
        code = PYTHON[0].replace("8123", port)
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=shell.folder,
            env=shell.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.stdout, done.returncode) == (text, 0), done.stderr
    assert shell(read).count("\f") == 5
    (record,) = map(json.loads, (shell.folder / "scan.jsonl").read_text().splitlines())
    assert record["model"] == f"nano@127.0.0.1:{port}" and record["text"]
    shell(end)


def test_options_are_those_of_the_program(shell):
    said = shell("COLUMNS=200 vlmcli ocr --help; COLUMNS=200 vlmcli serve --help")
    options = set(re.findall(r"`(--[a-z-]+)", TEXT))
    assert len(options) > 15
    assert not [option for option in options if not re.search(rf"{option}\b", said)]
    offered = set(re.findall(r"(--server-[a-z]+|--max-(?:body|images|queue)|--drain)\b", said))
    assert offered <= options
