"""The command line in a folder of its own, over a fake pipeline or the real one."""

import sys
from pathlib import Path

import pytest
from command_line import Cli, RealCli, Shell

# Tiny checkpoints.
sys.path.append(str(Path(__file__).parents[1] / "tiny"))


@pytest.fixture
def cli(tmp_path):
    """The command line in a folder with three documents."""
    for name in ("a.pdf", "b.pdf", "c.pdf"):
        (tmp_path / name).write_bytes(b"document")
    return Cli(tmp_path)


@pytest.fixture
def real(tmp_path):
    """The real command line in an empty folder."""
    return RealCli(tmp_path)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A folder with the samples and a `vlmcli` in its PATH, the same for all tests of a file."""
    return Shell(tmp_path_factory.mktemp("shell"))
