"""docs/servers.md is true: its commands run in order, and its options are the program's."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import sys

import pytest
from command_line import ROOT, blocks

TEXT = (ROOT / "docs" / "servers.md").read_text(encoding="utf-8")
SHELL = blocks(TEXT)
PYTHON = blocks(TEXT, "python")


@pytest.fixture(scope="module")
def port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.fixture(scope="module")
def shell(shell):
    """Whatever is left of the server is ended."""
    yield shell
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((shell.folder / "serve.pid").read_text()), signal.SIGKILL)


def test_every_command_runs(shell, port):
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    start, ask, read, end = (block.replace("8123", port) for block in SHELL)
    assert json.loads(shell(start))["status"] == "ok"
    answer = json.loads(shell(ask))
    text = answer["choices"][0]["message"]["content"]
    assert text.strip()
    if importlib.util.find_spec("openai") is not None:
        code = PYTHON[0].replace("8123", port)
        done = shell.run(sys.executable, "-c", code)
        assert (done.stdout, done.returncode) == (text, 0), done.stderr
    assert shell(read).count("\f") == 5
    (record,) = map(json.loads, (shell.folder / "scan.jsonl").read_text().splitlines())
    assert record["model"] == f"nano@127.0.0.1:{port}" and record["text"]
    shell(end)


def test_options_are_those_of_the_program(shell):
    commands = ("ocr", "serve", "bench server")
    said = "".join(shell(f"COLUMNS=200 vlmcli {command} --help") for command in commands)
    options = set(re.findall(r"`(--[a-z-]+)", TEXT))
    assert len(options) > 15
    assert not [option for option in options if not re.search(rf"{option}\b", said)]
    offered = set(re.findall(r"(--server-[a-z]+|--max-(?:body|images|queue)|--drain)\b", said))
    assert offered <= options
