"""Errors that a limit on address space causes, whichever library puts them how."""

import errno
import resource

import pytest

from vlmcli.errors import ExitCode, WillNotFitError
from vlmcli.memory import address_space
from vlmcli.memory.address_space import MIB, named, require, shortage

SHORT = [
    MemoryError(),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ImportError("libtorch.so: cannot open shared object file: Cannot allocate memory"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("can't start new thread"),
    RuntimeError("a page worker could not start; is the installation complete?"),
]
OTHER = [
    ImportError("No module named 'numpy'"),
    OSError(errno.ENOENT, "No such file or directory"),
    ValueError("out of memory"),
    RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
]


@pytest.fixture
def limit(monkeypatch):
    """Sets what the system is taken to say of the limit."""

    def call(size: int) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (size, size))

    return call


@pytest.mark.parametrize("error", SHORT, ids=str)
def test_a_shortage_under_a_limit_names_it_and_the_way_out(limit, error):
    limit(600 * MIB)
    found = shortage(error, " while it was loaded")
    assert found is not None
    assert found.exit_code == ExitCode.WILL_NOT_FIT
    assert "ran out while it was loaded, under the limit on address space, ulimit -v 614400" in (
        found.message
    )
    assert "ulimit -v" in found.remedy
    limit(resource.RLIM_INFINITY)
    assert shortage(error) is None


def test_an_error_counts_for_what_is_behind_it(limit):
    limit(600 * MIB)
    for error in SHORT:
        try:
            raise ImportError("Importing the numpy C-extensions failed") from error
        except ImportError as outer:
            assert shortage(outer) is not None


@pytest.mark.parametrize("error", OTHER, ids=str)
def test_other_errors_stay_what_they_are(limit, error):
    limit(600 * MIB)
    assert shortage(error) is None


def test_what_cannot_do_is_refused_before_it_is_begun(limit):
    limit(600 * MIB)
    require(600 * MIB, "reading")
    with pytest.raises(
        WillNotFitError, match=r"reading takes 601\.0 MiB of address space"
    ) as found:
        require(601 * MIB, "reading")
    assert named(600 * MIB) in found.value.message
    assert f"ulimit -v {601 * 1024}" in found.value.remedy
    limit(resource.RLIM_INFINITY)
    require(1 << 60, "reading")
    assert address_space.limit_bytes() is None
