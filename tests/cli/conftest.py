"""The command line in a folder of its own, over a fake pipeline or the real one."""

import pytest
from command_line import Cli, RealCli


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
