"""SIGINT and SIGTERM: end in good order, soon, and with the exit code that says so.

The first signal raises `Stopped` in the main thread, so that the job can flush. If the process is
still there after `GRACE_SECONDS`, or a second signal comes, it ends at once; what was appended to
journal and outputs by then is whole lines. Signals that were ignored from the start stay ignored.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from vlmcli.errors import ExitCode

GRACE_SECONDS = 4.0

_EXIT_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end. A KeyboardInterrupt, since it must pass all handlers.

    Args:
        exit_code: 130 for SIGINT, 143 for SIGTERM.
    """

    def __init__(self, exit_code: ExitCode) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def install() -> None:
    """Handle both signals in this process. Main thread only; children that exec do not inherit."""
    has_begun = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal has_begun
        exit_code = _EXIT_CODES[signal.Signals(number)]
        if has_begun:
            os._exit(exit_code)
        has_begun = True
        timer = threading.Timer(GRACE_SECONDS, os._exit, (int(exit_code),))
        timer.daemon = True
        timer.start()
        raise Stopped(exit_code)

    for number in _EXIT_CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


class Ended:
    """Which signal has told a server to end; `exit_code` is None while none has."""

    def __init__(self) -> None:
        self.exit_code: ExitCode | None = None


def install_gentle(stop: Callable[[], None]) -> Ended:
    """In place of `install`, for a server: the first signal calls `stop`, a second ends at once.

    Main thread only. `stop` runs in the signal handler.
    """
    ended = Ended()

    def handle(number: int, frame: FrameType | None) -> None:
        exit_code = _EXIT_CODES[signal.Signals(number)]
        if ended.exit_code is not None:
            os._exit(exit_code)
        ended.exit_code = exit_code
        stop()

    for number in _EXIT_CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handle)
    return ended
