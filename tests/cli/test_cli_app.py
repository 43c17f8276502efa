"""The root of the command line: help, version and completion, without a heavy import."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import typer

from vlmcli import __version__
from vlmcli.cli.app import app
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


OWN_OF_HELP = {
    *("", ".version", ".errors", ".__main__"),
    *(".cli", ".cli.app", ".cli.commands", ".cli.console", ".cli.lean_help", ".cli.signals"),
}
LOADED = """
import sys
sys.argv = ["vlmcli", *sys.argv[1:]]
from vlmcli.__main__ import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_help_imports_no_command(cli):
    """Half of its time was the import of every command, a quarter that of a Markdown parser."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "--help"],
        cwd=cli.folder, env=cli.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = set(done.stderr.split())
    own = {name.removeprefix("vlmcli") for name in loaded if name.split(".")[0] == "vlmcli"}
    assert own == OWN_OF_HELP
    assert not loaded & {"markdown_it", "pygments", "rich.markdown", "rich.traceback", "attr"}


def test_a_list_of_commands_says_what_they_say():
    group = typer.main.get_group(app)
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command.name == name
        assert command is not group.commands[name], "a list loads nothing"
        assert group.commands[name].get_short_help_str() == command.get_short_help_str()
        assert group.commands[name].help == command.help.partition("\n")[0]
        assert not (command.hidden or command.deprecated)


@pytest.mark.parametrize(
    "line", ["--help", "--version", "", "ocr --help", "models list", "ocr --print-recipe"]
)
def test_a_reader_that_has_gone_is_no_error(cli, line):
    """`vlmcli --help | head -1` ended with 1, `vlmcli models list | head -1` as a bug."""
    reading, writing = os.pipe()
    os.close(reading)
    done = cli(*line.split(), capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_an_output_that_cannot_be_written(cli):
    with Path("/dev/full").open("wb") as full:
        done = cli("--help", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == ExitCode.OUTPUT
    assert done.stderr == b"vlmcli: error: cannot write standard output: No space left on device\n"


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
