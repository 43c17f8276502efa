"""What may stand in a file: names of options, and the kinds of their values.

Errors name file and line, and for a misspelt name the nearest one. Whether a value is in range is
checked by the option itself, later.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vlmcli.errors import UsageError
from vlmcli.recipes.toml_file import Keys, TomlFile

Kind = Literal["switch", "whole", "number", "size", "text", "texts"]
"""A switch is true or false; a size is text with a unit, or bytes; texts are one or a list."""

Options = Mapping[str, Kind]
"""The options of one command by name, without leading dashes."""

Schema = Mapping[str, Options]
"""Command → its options."""

_WORDS: dict[Kind, str] = {
    "switch": "true or false",
    "whole": "a whole number",
    "number": "a number",
    "size": 'a size such as "4GiB"',
    "text": "text in quotes",
    "texts": 'text in quotes, or a list such as ["one", "two"]',
}

REFUSED = {
    "password": "set VLMCLI_PASSWORD, or name a file with password-file",
    "output": "give -o on the command line",
    "overwrite": "give --overwrite on the command line",
    "stats": "give --stats on the command line",
    "print-recipe": "give it on the command line",
    "config": "give it on the command line",
    "no-config": "give it on the command line",
}
"""Options that stand in no file: secrets, since files are shared, and what is written where, since
a file that lies above the working directory must not choose that. With the remedies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value for one option, and where it comes from."""

    value: Any
    """As the option would be given: text, number, truth value, or a list of texts."""
    source: str
    """The file or variable, for people."""
    find_place: Callable[[], str]

    @property
    def place(self) -> str:
        """The source with its line, for errors."""
        return self.find_place()


_PATHS = frozenset({"password-file", "answer-schema"})
"""Options that name files. Files name them from where they lie themselves."""
_PATHS_WITH_A_DOT = frozenset({"model", "recipe"})
"""Options that name files only where they say so, as in `./checkpoint`."""


def check_tables(
    file: TomlFile, schema: Schema, *, ignored: Iterable[str] = (), shared: bool = True
) -> dict[str, dict[str, Setting]]:
    """The settings of each command: those at the top of the file, under those of its own table.

    Args:
        file: parsed.
        schema: every command that may have a table.
        ignored: names at the top that are no options.
        shared: whether options may stand at the top.

    Raises:
        UsageError: a name is unknown or refused, or a value is of the wrong kind.
    """
    found: dict[str, dict[str, Setting]] = {command: {} for command in schema}
    tables: list[str] = []
    for key, value in file.table.items():
        if key in ignored:
            continue
        if key in schema and isinstance(value, dict):
            tables.append(key)
            continue
        if key in schema:
            raise UsageError(f"{file.place((key,))}: {key} must be a table, as in [{key}]")
        if not shared or isinstance(value, dict):
            raise _unknown(file, (key,), "table", [*schema, *ignored])
        name, setting = _setting(file, (key,), _union(schema), value)
        for command, options in schema.items():
            if name in options:
                found[command][name] = setting
    for command in tables:
        for key, value in file.table[command].items():
            name, setting = _setting(file, (command, key), schema[command], value)
            found[command][name] = setting
    return found


def _union(schema: Schema) -> Options:
    return {name: kind for options in schema.values() for name, kind in options.items()}


def _setting(file: TomlFile, keys: Keys, options: Options, value: Any) -> tuple[str, Setting]:
    name = keys[-1].replace("_", "-")
    if name in REFUSED:
        raise UsageError(f"{file.place(keys)}: {name} has no place in a file", remedy=REFUSED[name])
    if name not in options:
        raise _unknown(file, keys, "option", list(options))
    kind = options[name]
    if not _is_of_kind(value, kind):
        raise UsageError(f"{file.place(keys)}: {name} must be {_WORDS[kind]}, not {_shown(value)}")
    if name in _PATHS or (name in _PATHS_WITH_A_DOT and value.startswith("./")):
        value = value if value.lstrip().startswith("{") else str(file.folder / value)
    return name, Setting(
        value=_as_given(value, kind), source=file.label, find_place=lambda: file.place(keys)
    )


def _unknown(file: TomlFile, keys: Keys, what: str, known: list[str]) -> UsageError:
    name = keys[-1].replace("_", "-")
    where = f" of {keys[-2]}" if len(keys) > 1 else ""
    known = [one for one in known if one not in REFUSED]
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
    return UsageError(f"{file.place(keys)}: unknown {what}{where}: {keys[-1]}", remedy=remedy)


def _is_of_kind(value: Any, kind: Kind) -> bool:
    if kind == "switch" or isinstance(value, bool):
        return kind == "switch" and isinstance(value, bool)
    if kind == "texts" and isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    allowed: dict[Kind, tuple[type, ...]] = {
        "whole": (int,),
        "number": (int, float),
        "size": (str, int),
        "text": (str,),
        "texts": (str,),
    }
    return isinstance(value, allowed[kind])


def _as_given(value: Any, kind: Kind) -> Any:
    if kind == "texts":
        return [value] if isinstance(value, str) else value
    return str(value) if kind == "size" else value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    return repr(value) if isinstance(value, str | int | float | list) else f"{value}"
