"""Names and what lies at them: nothing, where the system refuses even to look.

`pathlib` answers False for names at which nothing is, and raises for those that are too long to be
any file's and for those in folders that this user may not enter. Opens nothing.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where this user's cache is: VLMCLI_CACHE_DIR, else XDG_CACHE_HOME/vlmcli, else
    ~/.cache/vlmcli.

    A process without a home directory (some containers and services) uses the temporary directory.
    """
    if environ.get("VLMCLI_CACHE_DIR"):
        return Path(environ["VLMCLI_CACHE_DIR"])
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "vlmcli"
    if environ.get("HOME"):
        return Path(environ["HOME"]) / ".cache" / "vlmcli"
    return Path(tempfile.gettempdir()) / f"vlmcli-{os.getuid()}"


def name_of(path: Path | str) -> str:
    """A path as records have it: its bytes as UTF-8, those that are none as lone surrogates.

    PEP 383's way, whatever the system's encoding is; `path_of` finds the way back.
    """
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def path_of(name: str) -> Path:
    """The path that a record's name stands for; one where nothing is, where it stands for none."""
    try:
        return Path(os.fsdecode(name.encode("utf-8", "surrogateescape")))
    except UnicodeEncodeError:
        return Path(name)


def mode_of(path: Path) -> int:
    """Kind and permissions, as `stat` has them; 0 where nothing is, can be, or may be looked for.

    Links are followed.
    """
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def is_folder(path: Path) -> bool:
    """Whether a folder is there."""
    return stat.S_ISDIR(mode_of(path))


def is_file(path: Path) -> bool:
    """Whether a regular file is there."""
    return stat.S_ISREG(mode_of(path))


def exists(path: Path) -> bool:
    """Whether anything is there."""
    return mode_of(path) != 0
