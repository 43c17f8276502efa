"""Configuration files: which of them count for a working directory, and what stands in them.

The project's is the nearest `vlmcli.toml`, or `pyproject.toml` with a table `tool.vlmcli`; the
search ends at the root of the repository or at the user's home. Outside of both only the working
directory itself is looked at: a file in `/tmp`, which anybody may have written, configures nobody.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from vlmcli.errors import UsageError
from vlmcli.paths import exists, is_file
from vlmcli.recipes.toml_file import TomlFile, read_toml

OWN_NAME = "vlmcli.toml"
PROJECT_NAME = "pyproject.toml"
_TABLE = ("tool", "vlmcli")


def find_config_files(directory: Path) -> list[TomlFile]:
    """The files that count in `directory`, the weakest first: the user's, then the project's.

    Raises:
        UsageError: one of them is not TOML.
    """
    own = user_config_path()
    files = [read_toml(own)] if own is not None and is_file(own) else []
    for folder in _folders(directory):
        file = _project_file(folder, directory)
        if file is not None:
            return [*files, file]
    return files


def named_config_file(path: Path) -> TomlFile:
    """A configuration file that was named; it counts alone.

    Raises:
        UsageError: it is missing, not TOML, or a `pyproject.toml` without our table.
    """
    if path.name != PROJECT_NAME:
        return read_toml(path)
    file = read_toml(path, root=_TABLE)
    if not file.table:
        raise UsageError(f"{path} has no table [{'.'.join(_TABLE)}]")
    return file


def user_config_path() -> Path | None:
    """The user's own file: `$XDG_CONFIG_HOME/vlmcli/config.toml`, by default in `~/.config`."""
    home = _home()
    base = os.environ.get("XDG_CONFIG_HOME") or (home and home / ".config")
    return Path(base) / "vlmcli" / "config.toml" if base else None


def _folders(directory: Path) -> Iterator[Path]:
    """`directory`, and those above it up to the repository's root or the user's home."""
    chain = [directory, *directory.parents]
    home = _home()
    for number, folder in enumerate(chain):
        if folder == home or exists(folder / ".git"):
            yield from chain[: number + 1]
            return
    yield directory


def _home() -> Path | None:
    """The user's home as the working directory would name it; None for users that have none."""
    try:
        return Path.home().resolve()
    except RuntimeError:
        return None


def _project_file(folder: Path, directory: Path) -> TomlFile | None:
    own = folder / OWN_NAME
    if is_file(own):
        return read_toml(own, label=_label(own, directory))
    shared = folder / PROJECT_NAME
    if not _mentions_us(shared):
        return None
    file = read_toml(shared, label=_label(shared, directory), root=_TABLE)
    return file if file.table else None


def _mentions_us(path: Path) -> bool:
    """Whether to parse somebody else's file at all, whose faults are no concern of ours."""
    try:
        return b"vlmcli" in path.read_bytes()
    except OSError:
        return False


def _label(path: Path, directory: Path) -> str:
    """The path as it is seen from the working directory."""
    return os.path.relpath(path, directory)
