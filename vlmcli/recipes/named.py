"""Recipes: named sets of options of `ocr` or `ask`, those that come with vlmcli and the user's own.

A recipe is a TOML file with a `description` and a table for each command that it is for.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path

from vlmcli.errors import UsageError
from vlmcli.recipes.schema import Schema, Setting, check_tables
from vlmcli.recipes.toml_file import read_toml

FOLDER = Path(__file__).parent
"""Where the recipes are that come with vlmcli."""

SUFFIX = ".toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRecipe:
    """A checked recipe: its settings by command."""

    name: str
    description: str
    settings: dict[str, dict[str, Setting]]


def recipe_names() -> list[str]:
    """The recipes that come with vlmcli, by name."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def load_recipe(name: str, schema: Schema) -> NamedRecipe:
    """The recipe of this name, or in this file.

    Args:
        name: of a recipe that comes with vlmcli, or the path of one: it has a slash or ends with
            `.toml`.
        schema: the options of the commands that a recipe may be for.

    Raises:
        UsageError: there is no such recipe, or the file is not one.
    """
    path = _path(name)
    label = f"recipe {name}" if path.parent == FOLDER else str(path)
    file = read_toml(path, label=label)
    description = file.table.get("description")
    if not isinstance(description, str) or not description.strip():
        place = label if description is None else file.place(("description",))
        raise UsageError(
            f"{place}: a recipe says what it is for", remedy='add description = "..." at the top'
        )
    tables = check_tables(file, schema, ignored=("description",), shared=False)
    for options in tables.values():
        if "recipe" in options:
            raise UsageError(
                f"{options['recipe'].place}: a recipe cannot name another one",
                remedy="copy its options",
            )
    settings = {command: tables[command] for command in schema if command in file.table}
    return NamedRecipe(name=name, description=description.strip(), settings=settings)


def _path(name: str) -> Path:
    if "/" in name or name.endswith(SUFFIX):
        return Path(name)
    known = recipe_names()
    if name in known:
        return FOLDER / f"{name}{SUFFIX}"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"no such recipe: {name!r}",
        remedy=f"{hint}there are {', '.join(known)}; a file is named with its path",
    )
