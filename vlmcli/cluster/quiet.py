"""Ray kept quiet, and kept from what is not its own: streams, loggers, signals, usage statistics.

Ray prints to stdout from a thread of its own when a worker dies, whatever it is told about logs;
the job says that itself. Nothing else that this process prints is touched.
"""

import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO, cast

_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No statistics are sent, and no notice says what Ray will do about GPUs one day."""
_RAY_THREADS = "ray_"
"""What the names of the threads begin with in which Ray prints what others have said."""


class _WithoutRay:
    """A stream for everybody but Ray's own threads."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or take it and do nothing."""
        if threading.current_thread().name.startswith(_RAY_THREADS):
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prepare_environment(*, is_local: bool) -> None:
    """Set variables that Ray reads when it is imported; those that are set already are kept.

    A cluster that is started here has a token of its own, so that no other user of the machine can
    have it run something; Ray would write one into the home folder and say so.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    is_open = "RAY_AUTH_MODE" not in os.environ and "ray" not in sys.modules
    if is_local and is_open:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextlib.contextmanager
def quiet(verbose: int) -> Iterator[None]:
    """While this lasts Ray says nothing; with `verbose` it says what it likes, on stderr."""
    logger, stdout = logging.getLogger("ray"), sys.stdout
    level = logger.level
    logger.setLevel(logging.INFO if verbose else logging.CRITICAL)
    if stdout is not None:
        sys.stdout = sys.stderr if verbose else cast(TextIO, _WithoutRay(stdout))
    try:
        yield
    finally:
        sys.stdout = stdout
        logger.setLevel(level)


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """Ray's handler of SIGTERM, which it sets when it connects, gives way to ours again."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if is_main else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
