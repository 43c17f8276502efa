"""A limit on address space (`ulimit -v`): what it must leave, and errors that it is the cause of.

Libraries map far more than they use, and what they do where that fails is up to each of them: an
`ImportError`, a failed allocation, or the end of the process. So what cannot do is refused before
they are loaded, and the errors of the rest are told by their words. Imports no library itself.
"""

import resource
from collections.abc import Iterator

from vlmcli.errors import WillNotFitError
from vlmcli.options import format_size

MIB = 1 << 20
TO_DRAW = 384 * MIB
"""Of a process with numpy, OpenCV and MuPDF on x86-64; 352 MiB did for page workers, not 332."""
TO_READ = 768 * MIB
"""With torch and the built-in model, measured likewise: 781 MiB did, 683 did not."""

_WORDS = (
    *("failed to map segment", "cannot allocate memory", "can't allocate memory"),
    *("out of memory", "bad_alloc", "memory allocation", "unable to allocate"),
    *("can't start new thread", "page worker could not start", "os error 12", "errno 12"),
)


def limit_bytes() -> int | None:
    """The limit that holds for this process and its children; None for none."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def named(limit: int) -> str:
    """The limit in the words of the shell, whose unit is KiB: `ulimit -v 600000`."""
    return f"the limit on address space, ulimit -v {limit // 1024}"


def require(least: int, what: str) -> None:
    """Refuse what cannot do under the limit, before it is begun.

    Args:
        least: bytes of address space that it takes.
        what: it is called in the message.

    Raises:
        WillNotFitError: the limit is lower.
    """
    limit = limit_bytes()
    if limit is not None and limit < least:
        raise WillNotFitError(
            f"{what} takes {format_size(least)} of address space, more than {named(limit)}, allows",
            remedy=raise_to(least),
        )


def raise_to(least: int) -> str:
    """The remedy, for so many bytes."""
    kibibytes = -(-least // 1024)
    return f"raise that limit, as in ulimit -v {kibibytes}; --max-memory caps memory without it"


def shortage(error: BaseException, doing: str = "") -> WillNotFitError | None:
    """What an error is where it is the limit's doing; None where it is not, or there is no limit.

    Libraries that could not be mapped, failed allocations and threads that could not be started are
    one kind of fault.

    Args:
        error: with the errors behind it.
        doing: what was going on, as in ` while this was loaded`.
    """
    limit = limit_bytes()
    if limit is None or not any(map(_is_shortage, _chain(error))):
        return None
    return WillNotFitError(
        f"memory ran out{doing}, under {named(limit)}", remedy=raise_to(max(2 * limit, TO_READ))
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, ImportError | OSError | RuntimeError) and any(
        word in text for word in _WORDS
    )
