"""The lock on a job's journal: one process at a time writes an output.

Held by descriptor, so that it ends with the process that holds it, whatever ends that. Where a file
system has no locks there is none, and nobody is kept away.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from vlmcli.errors import OutputError


def take(fd: int, path: Path) -> None:
    """Lock an open file for as long as the descriptor is open.

    Raises:
        OutputError: another process has it.
        OSError: the system says no for another reason than that it has no locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise busy(path) from error
    except OSError as error:
        # Some network file systems have no locks; a journal without one is better than no job.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise


def is_taken(path: Path) -> bool:
    """Whether a process holds the lock on a file now; False where that cannot be found out."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY)
        try:
            # Shared, so that two that only look do not take each other for the holder.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
    return False


def busy(path: Path) -> OutputError:
    """The error of whoever comes second."""
    return OutputError(
        f"another vlmcli is writing this output: {path} is locked",
        remedy="wait until it is done, or choose another place with -o",
    )
