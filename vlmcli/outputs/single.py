"""A file that one option names, as `--stats` and `view -o` do: checked before any work, written
whole.

The one place that decides what such an option may replace: never an input or another output, and an
existing file only where that is said. A pipe or a device is written to and stays what it is.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from vlmcli.errors import OutputError, UsageError
from vlmcli.outputs.files import AtomicFile, OutputFile, StreamFile, remedies_for, translated
from vlmcli.outputs.targets import STDOUT_NAMES
from vlmcli.paths import is_folder


def refuse_stdout(name: str, option: str) -> None:
    """Refuse a name of standard output, for options whose file is not what the command prints.

    Raises:
        UsageError: the name is one of those.
    """
    if name in STDOUT_NAMES:
        raise UsageError(f"{option} cannot write to stdout", remedy=f"name a file with {option}")


def check_single(
    path: Path,
    option: str,
    *,
    inputs: Iterable[Path] = (),
    outputs: Iterable[Path] = (),
    new_folders: Sequence[Path] = (),
    overwrite: bool,
) -> None:
    """Refuse a file that cannot be written, or whose writing would lose something. Opens nothing.

    Args:
        path: what the option names.
        option: as the user writes it, for messages.
        inputs: what the command reads; asked for only where something is at `path`.
        outputs: what else it writes; need not be there yet.
        new_folders: folders that the command makes by itself.
        overwrite: whether an existing file may be replaced.

    Raises:
        OutputError: it is an input, another output or a folder; it exists; its folder does not, or
            may not be written to.
    """
    elsewhere = f"choose another with {option}"
    with translated(path, remedies_for(option)):
        _check_place(path, option, new_folders)
    if _is_among(path, outputs):
        raise OutputError(f"{path} is also another output of this run", remedy=elsewhere)
    if not os.path.lexists(path):
        return
    if _is_among(path, inputs):
        raise OutputError(f"the output {path} is also an input", remedy=elsewhere)
    if not is_stream(path) and not overwrite:
        raise OutputError(
            f"output exists: {path}", remedy=f"add --overwrite to replace it, or {elsewhere}"
        )


def open_single(path: Path, option: str) -> OutputFile:
    """The file, to be written once; a pipe or device is opened at the first write."""
    if is_stream(path):
        return StreamFile(None, str(path), option=option)
    return AtomicFile(path, resumable=False, option=option)


def write_single(path: Path, option: str, data: bytes) -> None:
    """Write the whole file.

    Raises:
        OutputError: it cannot be written.
        ReaderGoneError: it is a pipe that nobody reads any more.
    """
    file = open_single(path, option)
    try:
        file.write(data)
        file.publish()
    finally:
        file.discard()


def is_stream(path: Path) -> bool:
    """Whether a pipe or a device is there: nothing to replace."""
    return path.exists() and not path.is_file()


def may_lose(path: Path) -> bool:
    """Whether a file is there that writing would replace."""
    return os.path.lexists(path) and not is_stream(path)


def is_same(one: Path, other: Path) -> bool:
    """Whether two names lead to one file that is there."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


def _check_place(path: Path, option: str, new_folders: Sequence[Path]) -> None:
    """Raise where no file can be, as far as permissions tell.

    Raises:
        OutputError: so it is.
        OSError: the system does not let us look, or no file can have the name.
    """
    with contextlib.suppress(FileNotFoundError):
        path.lstat()
    if is_folder(path):
        raise OutputError(f"a directory: {path}", remedy=f"name a file with {option}")
    if is_stream(path):
        return
    # Writing keeps a link and replaces what it leads to.
    folder = Path(os.path.realpath(path)).parent
    shown = folder if path.is_symlink() else path.parent
    if not is_folder(folder):
        if any(os.path.realpath(made) == str(folder) for made in new_folders):
            return
        raise OutputError(
            f"no such directory: {shown}", remedy=f"create it, or choose another with {option}"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(
            f"no permission to write into {shown}",
            remedy=f"choose another place with {option}, or change the permissions",
        )


def _is_among(path: Path, others: Iterable[Path]) -> bool:
    """Whether one of the other names leads to the same file, which need not be there yet."""
    try:
        info = path.stat()
    except (OSError, ValueError):
        # Case does not make a difference, since some file systems see none.
        real = os.path.realpath(path).casefold()
        return any(os.path.realpath(other).casefold() == real for other in others)
    return any(_is_file(other, info) for other in others)


def _is_file(path: Path, info: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), info)
    except (OSError, ValueError):
        return False
