"""`--print-recipe`: the settings that a command would run with, as a recipe.

What is printed can be saved and given to `--recipe`. Comments say where each value comes from, and
which options are not set. Leaves out what has no place in a file.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from typer.core import TyperCommand, TyperOption

from vlmcli.recipes.schema import REFUSED

_NOT_SETTINGS = ("help", "recipe")


def recipe_text(
    command: TyperCommand, ctx: Any, sources: Mapping[str, str], description: str
) -> str:
    """A recipe with every setting of a parsed command line.

    Args:
        command: of the command line.
        ctx: its context, parsed.
        sources: where settings come from that are in files and variables.
        description: of the recipe that the command line named, or nothing.
    """
    title = description or f"Settings of vlmcli {command.name}"
    lines = [f"description = {_value(title)}", "", f"[{command.name}]"]
    return "\n".join([*lines, *_lines(command, ctx, sources)]) + "\n"


def long_name(param: TyperOption) -> str:
    """An option's name as files have it: `max-pixels`."""
    return next(name[2:] for name in param.opts if name.startswith("--"))


def _lines(command: TyperCommand, ctx: Any, sources: Mapping[str, str]) -> Iterator[str]:
    unset = []
    for param in command.params:
        if not isinstance(param, TyperOption):
            continue
        name = long_name(param)
        if name in REFUSED or name in _NOT_SETTINGS:
            continue
        value = ctx.params[param.name]
        source = _source(param, ctx, sources.get(name))
        if value is None or value in ([], ()):
            unset.append(name)
        else:
            yield f"{name} = {_value(value)}{source}"
    yield f"# not set: {', '.join(unset)}"


def _source(param: TyperOption, ctx: Any, setting: str | None) -> str:
    """A comment on where a value comes from; nothing for defaults."""
    kind = ctx.get_parameter_source(param.name).name
    if kind == "COMMANDLINE":
        return "  # command line"
    if kind == "ENVIRONMENT":
        return f"  # {param.envvar}"
    return f"  # {setting}" if kind == "DEFAULT_MAP" and setting else ""


def _value(value: Any) -> str:
    """A value in TOML, whose texts are those of JSON but for the character DEL."""
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
