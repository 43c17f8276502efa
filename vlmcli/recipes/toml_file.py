"""One TOML file with settings: parsed, with the line on which each of them stands.

`tomllib` keeps no positions, so a line is found only when somebody asks for it. Checks nothing but
the syntax; what may stand in a file is `schema`'s business.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlmcli.errors import UsageError

_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)

Keys = tuple[str, ...]
"""The way to a value, from the root of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """A parsed file; `label` is what messages call it, `root` the table that is looked at.

    Paths in it count from `folder`, where it lies.
    """

    label: str
    folder: Path
    text: str = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)
    root: Keys = ()

    @property
    def table(self) -> Mapping[str, Any]:
        """The table at `root`; empty where the file has none."""
        found = value_at(self.data, self.root)
        return found if isinstance(found, dict) else {}

    def place(self, keys: Keys) -> str:
        """Where the value at `keys` (below `root`) stands, for people: `vlmcli.toml, line 3`."""
        line = line_of(self.text, (*self.root, *keys))
        return self.label if line is None else f"{self.label}, line {line}"


def read_toml(path: Path, *, label: str | None = None, root: Keys = ()) -> TomlFile:
    """Read and parse a file.

    Raises:
        UsageError: it is missing, cannot be read, or is not TOML; names file and line.
    """
    label = label or str(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {label}") from error
    except OSError as error:
        raise UsageError(f"cannot read {label}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{label} is not TOML: it is not UTF-8") from error
    # Most runs of a command have no file to read.
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(_syntax(label, str(error))) from error
    return TomlFile(label=label, folder=path.parent, text=text, data=data, root=root)


def _syntax(label: str, message: str) -> str:
    found = _AT_LINE.fullmatch(message)
    if found is None:
        return f"{label} is not TOML: {message}"
    return f"{label}, line {found[2]}: not TOML: {found[1]}"


def value_at(data: Mapping[str, Any], keys: Keys) -> Any:
    """The value at the end of the way, None where the way ends before."""
    found: Any = data
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def line_of(text: str, keys: Keys) -> int | None:
    """The line, from 1, on which the value at `keys` begins; None where there is no such value.

    The value has begun behind the longest beginning of the file that is TOML by itself and does not
    have it yet.
    """
    import tomllib

    lines = text.splitlines()
    start = 0
    for end in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        if value_at(data, keys) is not None:
            return start + 1
        start = end
    return None
