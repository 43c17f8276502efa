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

import pytest
from hypothesis import settings

# A pinned CI run judges the change, not the luck of the draw; everybody else's runs explore.
# Fifty examples a property keep the suite within ten minutes; VLMCLI_EXAMPLES asks for more.
settings.register_profile(
    "vlmcli",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    max_examples=int(os.environ.get("VLMCLI_EXAMPLES", "50")),
)
settings.load_profile("vlmcli")
_numbers = itertools.count()
# Triton reads it when it is imported, and some libraries import it early.
os.environ.setdefault("TRITON_INTERPRET", "1")
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
