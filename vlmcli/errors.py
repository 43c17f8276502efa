"""What a user can cause: typed errors with an exit code and a one-line remedy.

A leaf of the import graph. Nothing here prints; `cli.app` is the one place where an error becomes
an exit code. Whatever is not a `VlmcliError` is our own fault and keeps its traceback.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of every vlmcli command. Stable: scripts depend on these numbers."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    INPUT = 3
    OUTPUT = 4
    PARTIAL = 5
    WILL_NOT_FIT = 6
    MODEL = 7
    ENCRYPTED = 8
    UNREACHABLE = 9
    INTERRUPTED = 130
    TERMINATED = 143


class VlmcliError(Exception):
    """An error that a user can cause and mend.

    Args:
        message: one line that names the thing at fault (file, option, model) and the cause.
        remedy: one line that says what to do, or empty where nothing can be said.
    """

    exit_code: ExitCode = ExitCode.INTERNAL
    code: str = "internal"
    """Short machine-readable cause; stands as `error.code` in page records."""

    def __init__(self, message: str, *, remedy: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class ReaderGoneError(Exception):
    """Whoever read our stream has stopped reading, as `head` does. The job ends quietly."""


def first_line(error: BaseException) -> str:
    """The first line of what a library's error says; its type where it says nothing."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


class UsageError(VlmcliError):
    """The command line contradicts itself or names something that does not exist."""

    exit_code = ExitCode.USAGE
    code = "usage"


class MissingExtraError(UsageError):
    """What was asked for needs libraries that are not installed.

    Args:
        message: what needs them.
        extra: the name under which vlmcli installs them.
    """

    def __init__(self, message: str, extra: str) -> None:
        super().__init__(message, remedy=f"pip install 'vlmcli[{extra}]'")


class InputError(VlmcliError):
    """An input is missing, empty, damaged, not a document, or has no pages.

    `code` is one of `missing`, `empty`, `not-a-document`, `damaged`, `no-pages`, `unreadable`.
    """

    exit_code = ExitCode.INPUT
    code = "unreadable"


class EncryptedError(InputError):
    """A document needs a password, or the given one is wrong."""

    exit_code = ExitCode.ENCRYPTED
    code = "encrypted"


class PageError(VlmcliError):
    """One page cannot be rendered or read; the job goes on and the page's record says so.

    `code` is one of `render`, `too-large`, `bomb`, `worker-died`, `timeout`, `read`.
    """

    exit_code = ExitCode.PARTIAL
    code = "render"


class OutputError(VlmcliError):
    """An output exists already, or cannot be written (no space, no permission)."""

    exit_code = ExitCode.OUTPUT
    code = "output"


class WillNotFitError(VlmcliError):
    """The plan exceeds the memory cap; nothing was loaded."""

    exit_code = ExitCode.WILL_NOT_FIT
    code = "will-not-fit"


class ModelError(VlmcliError):
    """A model is missing, unsupported, or its weights do not match its config."""

    exit_code = ExitCode.MODEL
    code = "model"


class UnreachableError(VlmcliError):
    """A server or cluster does not answer."""

    exit_code = ExitCode.UNREACHABLE
    code = "unreachable"
