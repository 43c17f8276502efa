"""For every test: no deadlines (a busy machine is no fault), Ctrl-C as on a terminal, own results
and no configuration.

A suite that was started in the background of a shell script inherits SIGINT ignored, and so would
every command that it starts. The user's store of results is neither read nor written: a test that
found there what an earlier one has read would test nothing. Triton's kernels run on the CPU, under
its interpreter, unless TRITON_INTERPRET=0 says that tests/gpu is meant.
"""

import itertools
import os
import signal
from collections import Counter

import pytest
from family_checks import CELLS, PROPERTY, Cell, cells_of, table
from hypothesis import settings

# A pinned CI run judges the change, not the luck of the draw; everybody else's runs explore.
# Twenty-five examples a property keep the suite within ten minutes; VLMCLI_EXAMPLES asks for more.
settings.register_profile(
    "vlmcli",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    max_examples=int(os.environ.get("VLMCLI_EXAMPLES", "25")),
)
settings.load_profile("vlmcli")
_numbers = itertools.count()
# Triton reads it when it is imported, and some libraries import it early.
os.environ.setdefault("TRITON_INTERPRET", "1")
_passed: Counter[Cell] = Counter()
_failed: Counter[Cell] = Counter()
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def empty_store(tmp_path_factory, monkeypatch):
    """Every test begins with an empty result store of its own; it is made when it is needed."""
    folder = tmp_path_factory.getbasetemp() / "stores" / str(next(_numbers))
    monkeypatch.setenv("VLMCLI_CACHE_DIR", str(folder))


@pytest.fixture(autouse=True)
def no_configuration(tmp_path_factory, monkeypatch):
    """What the user of this machine has set for vlmcli does not count."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "nothing-there"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Families and checks go into the tests' reports, which xdist's workers send; all tests count,
    those that will be deselected too."""
    config.stash[CELLS] = []
    for item in items:
        cells = cells_of(item)
        config.stash[CELLS] += cells
        item.user_properties += [(PROPERTY, list(cell)) for cell in cells]


def pytest_runtest_logreport(report):
    """Count what passed and failed: under xdist only the controller's counts are printed."""
    cells = [tuple(value) for name, value in report.user_properties if name == PROPERTY]
    if report.failed:
        _failed.update(cells)
    elif report.when == "call" and report.passed:
        _passed.update(cells)


def pytest_terminal_summary(terminalreporter):
    """Families × checks, where tests of them ran."""
    if _passed or _failed:
        terminalreporter.section("families × checks: tests passed in this run", "-")
        for line in table(_passed, _failed):
            terminalreporter.write_line(line)
