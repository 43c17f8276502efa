"""The root of the command line: help, version and completion, without a heavy import."""

import subprocess
import sys
from typing import get_args

import pytest

from vlmcli import __version__
from vlmcli.errors import ExitCode
from vlmcli.options import Format

HEAVY = (
    *("torch", "transformers", "tokenizers", "safetensors", "pymupdf", "fitz", "numpy", "scipy"),
    *("cv2", "PIL", "onnxruntime", "imagehash", "asyncio", "vlmcli.pipeline"),
)
PROBE = f"""
import sys
sys.argv = ["vlmcli", *sys.argv[1:]]
from vlmcli.__main__ import main
try:
    main()
except SystemExit as leave:
    print(leave.code, *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["ocr", "--help"], 0),
        (["ocr"], 2),
        (["ocr", "x", "--dpi", "0"], 2),
    ],
    ids=str,
)
def test_what_needs_no_model_imports_nothing_heavy(cli, args, code):
    command = [sys.executable, "-c", PROBE, *args]
    done = subprocess.run(
        command, cwd=cli.folder, env=cli.environment(), capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == str(code)


def test_version(cli):
    assert cli("--version").stdout.decode() == f"vlmcli {__version__}\n"


def test_help_lists_every_exit_code(cli):
    for args in (["--help"], ["ocr", "--help"], ["ocr", "-h"]):
        done = cli(*args)
        text = done.stdout.decode()
        assert done.returncode == ExitCode.OK and done.stderr == b""
        assert "\x1b" not in text
        section = text[text.index("Exit codes:") :]
        assert all(str(int(code)) in section.replace("(", " ").split() for code in ExitCode)


def test_without_a_command_there_is_help(cli):
    done = cli()
    assert b"Usage: vlmcli" in done.stdout + done.stderr
    assert done.returncode == ExitCode.USAGE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vlmcli o", {"ocr"}),
        ("vlmcli ocr --text-l", {"--text-layer"}),
        ("vlmcli ocr --text-layer ", {"auto", "ignore", "only", "draft"}),
        ("vlmcli ocr -f ", set(get_args(Format))),
    ],
)
def test_completion(cli, line, expected):
    words = line.split(" ")
    env = {
        "_VLMCLI_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = cli(env=env)
    assert set(done.stdout.decode().split()) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_can_be_shown(cli, shell):
    env = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = cli("--show-completion", shell, env=env)
    assert done.returncode == ExitCode.OK
    assert b"_VLMCLI_COMPLETE" in done.stdout
