"""The two streams: results alone on stdout, everything said to people on stderr.

`take_stdout` guards at the level of file descriptors, because C libraries and child processes print
without asking Python. Never prints a control character that came out of a file name or a document.
"""

import io
import logging
import os
import sys
from typing import Any

from vlmcli.errors import OutputError, ReaderGoneError


def fill_descriptors() -> None:
    """Point closed standard descriptors at the null device. To be called before anything is opened.

    Otherwise the next file that is opened takes the place of the closed one, and everything that is
    printed goes into that file.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)


class _Stdout(io.FileIO):
    """Standard output, where a reader that has gone is told from every other broken connection."""

    def write(self, data: Any, /) -> int:
        """As any file does.

        Raises:
            ReaderGoneError: whoever read has stopped reading.
        """
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except OSError as error:
            error.filename = "standard output"
            raise


def watch_stdout() -> None:
    """Make `sys.stdout` raise `ReaderGoneError` where its reader has gone."""
    old = sys.stdout
    if isinstance(old, io.TextIOWrapper):
        old.flush()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Stdout(1, "wb", closefd=False)),
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )


def leave_stdout() -> None:
    """Write what `sys.stdout` still holds; where nobody reads it any more it goes nowhere.

    Python would do so itself a moment later, and complain.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (ReaderGoneError, OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def take_stdout(*, is_needed: bool) -> io.FileIO:
    """Take standard output away from everybody else, until the process ends.

    From here on descriptor 1 is standard error, for Python, C libraries and children alike. It is
    not given back: C libraries keep text in buffers of their own until the process ends.

    Args:
        is_needed: results will go there.

    Returns:
        An unbuffered stream that only its holder can write to.

    Raises:
        OutputError: it is needed, and was closed when the process started.
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    elif is_needed:
        raise OutputError("standard output is closed", remedy="name a file with -o")
    private = os.dup(1)
    os.dup2(2, 1)
    return _Stdout(private, "wb")


def printable(text: str) -> str:
    r"""One line that is safe on a terminal: what cannot be printed is written as an escape."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def say(text: str) -> None:
    """One line to the user. A stderr that is closed or gone is no reason to fail."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def is_terminal() -> bool:
    """Whether stderr is a terminal on which lines can be redrawn."""
    try:
        return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


class _SayHandler(logging.Handler):
    """Sends log lines the way of all other messages, wherever stderr points at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say the line; a traceback keeps its own lines."""
        for line in self.format(record).splitlines():
            say(line)


def set_up_logging(verbose: int, *, quiet: bool) -> None:
    """Logs of vlmcli itself on stderr: warnings, with -v progress of stages, with -vv details."""
    level = logging.ERROR if quiet else max(logging.DEBUG, logging.WARNING - 10 * verbose)
    logger = logging.getLogger("vlmcli")
    logger.setLevel(level)
    logger.propagate = False
    handler = _SayHandler()
    handler.setFormatter(logging.Formatter("vlmcli: %(message)s"))
    logger.handlers = [handler]
