"""A command whose options may also come from variables, a recipe and configuration files.

The command line beats `VLMCLI_*` variables, those beat the recipe, that beats the configuration
files, and those the defaults. Typer asks `Context.default_map` for what the command line does not
say, and parses and checks values from there as if they had been typed; here that map is filled, and
faults are laid at the door of the file or variable that they are in. Knows no single option but
those four that say which files count.
"""

import inspect
import os
import re
import types
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption

from vlmcli.cli import lean_help
from vlmcli.cli.effective import long_name, recipe_text
from vlmcli.cli.progress import JsonReporter, PlainReporter
from vlmcli.cli.variables import LAYERED, variable_of, warnings
from vlmcli.errors import UsageError, VlmcliError
from vlmcli.recipes import config
from vlmcli.recipes.named import load_recipe
from vlmcli.recipes.schema import Kind, Schema, Setting, check_tables

_JOBS = ("ocr", "ask")
"""Those of them whose jobs `plan` plans."""
_NOW_ONLY = ("help", "print_recipe")
"""Options that nobody wants for every run."""
_KINDS: Mapping[Any, Kind] = {int: "whole", float: "number"}

_WRONG_KINDS = {
    "integer": "no whole number",
    "number": "no number",
    "boolean": "neither true nor false",
}
"""What Pydantic wanted, and what it got."""


class LayeredCommand(TyperCommand):
    """Fills in what the command line leaves open, before Typer parses it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer does, with the lower layers as defaults; prints them where that is asked for.

        Raises:
            UsageError: a file or variable is wrong.
        """
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        if ctx.resilient_parsing or "help" in given:
            return super().parse_args(ctx, args)
        layers = _Layers(self, ctx, given)
        settings = layers.settings()
        ctx.default_map = {option_of(self, name).name: s.value for name, s in settings.items()}
        ctx.default_map["no_config"] = layers.has_config
        if not given.get("print_recipe"):
            return super().parse_args(ctx, args)
        # Nothing is read, so that nothing need be named.
        ctx.default_map.setdefault("inputs", ["-"])
        super().parse_args(ctx, args)
        sources = {name: setting.source for name, setting in settings.items()}
        typer.echo(recipe_text(self, ctx, sources, layers.description), nl=False)
        raise typer.Exit

    def invoke(self, ctx: Any) -> Any:
        """As Typer does; variables that nothing reads are warnings, in the form of all others."""
        is_quiet = bool(ctx.params.get("quiet"))
        is_json = ctx.params.get("progress") == "json"
        reporter = JsonReporter() if is_json else PlainReporter(quiet=is_quiet, summary=False)
        for text in variable_warnings(ctx.parent):
            reporter.warning(text)
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As Typer does, without loading what it does not need."""
        lean_help.load()
        super().format_help(ctx, formatter)


class _Layers:
    """What is not on the command line of one run, weakest layer first.

    Args:
        command: the command that runs.
        ctx: its context, not yet parsed.
        given: what the command line says, by parameter.
    """

    def __init__(self, command: LayeredCommand, ctx: Any, given: Mapping[str, Any]) -> None:
        self._command, self._ctx, self._given = command, ctx, given
        self.has_config = False
        """Whether a configuration file counts."""
        self.description = ""
        """Of the recipe, if there is one."""

    def settings(self) -> dict[str, Setting]:
        """Option → the setting that holds where the command line says nothing."""
        environment = self._environment()
        found = self._configured(environment)
        recipe = self._named("recipe", environment) or found.pop("recipe", None)
        if recipe is not None:
            found |= self._recipe(recipe)
        found |= environment
        for setting in ("recipe", "config", "no-config"):
            found.pop(setting, None)
        return found

    def _environment(self) -> dict[str, Setting]:
        """Variables that are set and not empty; Typer looks after those that it was told of."""
        found = {}
        for param in self._command.params:
            if not isinstance(param, TyperOption) or param.envvar or param.name in _NOW_ONLY:
                continue
            variable = variable_of(long_name(param))
            text = os.environ.get(variable)
            if text:
                value = _split(text, param) if param.multiple else text
                setting = _setting(value, variable)
                parsed = self._check(self._command, long_name(param), setting)
                found[long_name(param)] = _setting(parsed, variable) if param.is_flag else setting
        return found

    def _configured(self, environment: Mapping[str, Setting]) -> dict[str, Setting]:
        """What the configuration files say to this command."""
        named = self._named("config", environment)
        if self._given.get("config") and self._given.get("no_config"):
            raise UsageError("--config and --no-config contradict each other")
        refused = self._named("no-config", environment)
        if refused is not None and refused.value and not self._given.get("config"):
            return {}
        files = (
            config.find_config_files(Path.cwd())
            if named is None
            else [config.named_config_file(Path(named.value))]
        )
        self.has_config = bool(files)
        found: dict[str, Setting] = {}
        for file in files:
            tables = check_tables(file, self._schema)
            self._check_all(tables)
            found |= self._for_this(tables)
        return found

    def _recipe(self, named: Setting) -> dict[str, Setting]:
        recipe = load_recipe(str(named.value), self._schema)
        self._check_all(recipe.settings)
        settings = self._for_this(recipe.settings)
        if self._command.name in _JOBS and self._command.name not in recipe.settings:
            others = " and ".join(f"vlmcli {command}" for command in recipe.settings)
            raise UsageError(
                f"recipe {recipe.name} has no table for {self._command.name}",
                remedy=f"it is for {others}" if others else "it is empty",
            )
        self.description = recipe.description
        return settings

    def _for_this(self, tables: Mapping[str, Mapping[str, Setting]]) -> dict[str, Setting]:
        """The settings of this command. `plan` plans what `ocr`, or else `ask`, would do."""
        name = str(self._command.name)
        found: dict[str, Setting] = {}
        if name not in _JOBS:
            job = tables.get("ocr") or tables.get("ask") or {}
            known = {long_name(p) for p in self._command.params if isinstance(p, TyperOption)}
            found |= {option: setting for option, setting in job.items() if option in known}
        return found | dict(tables.get(name, {}))

    def _named(self, option: str, environment: Mapping[str, Setting]) -> Setting | None:
        """An option that says which file counts: on the command line, else in a variable."""
        value = self._given.get(option.replace("-", "_"))
        return environment.get(option) if value is None else _setting(value, f"--{option}")

    @cached_property
    def _schema(self) -> Schema:
        return {name: options_of(self._sibling(name)) for name in LAYERED}

    def _sibling(self, name: str) -> TyperCommand:
        return _command(self._ctx.parent, name)

    def _check_all(self, tables: Mapping[str, Mapping[str, Setting]]) -> None:
        for command, settings in tables.items():
            for option, setting in settings.items():
                self._check(self._sibling(command), option, setting)

    def _check(self, command: TyperCommand, option: str, setting: Setting) -> Any:
        """Have Typer parse a value now, where it is known who is to blame; the parsed value."""
        try:
            return option_of(command, option).process_value(self._ctx, setting.value)
        except VlmcliError as error:
            message = f"{setting.place}: {option}: {error.message}"
            raise UsageError(message, remedy=error.remedy) from error
        except typer.BadParameter as error:
            raise UsageError(
                f"{setting.place}: {option}: {_said(error.message, setting.value)}",
                remedy=f"vlmcli {command.name} --help says what --{option} takes",
            ) from error


def _command(root: Any, name: str) -> TyperCommand:
    """A command of the root's context, loaded."""
    command = root.command.get_command(root, name)
    assert isinstance(command, TyperCommand)
    return command


def variable_warnings(root: Any) -> list[str]:
    """A warning for each `VLMCLI_*` variable that is set and that no option of ours has.

    Args:
        root: the context of the command line's root, which knows the commands.
    """
    return warnings(
        long_name(param)
        for name in LAYERED
        for param in _command(root, name).params
        if isinstance(param, TyperOption) and param.name not in _NOW_ONLY
    )


def _said(message: str, value: Any) -> str:
    """What Typer and Pydantic say of a value, in the words of people."""
    message = message.removeprefix("Value error, ")
    for kind, words in _WRONG_KINDS.items():
        if message.startswith(f"Input should be a valid {kind}"):
            return f"{value!r} is {words}"
    return f"{message}, not {value}" if message.startswith("Input should be") else message


def _setting(value: Any, source: str) -> Setting:
    """What does not come out of a file."""
    return Setting(value=value, source=source, find_place=lambda: source)


def _split(text: str, param: TyperOption) -> list[str]:
    """A list in a variable: questions stand on lines of their own, names apart by commas."""
    parts = text.splitlines() if long_name(param) == "question" else re.split(r"[,\s]+", text)
    return [part for part in parts if part.strip()]


def option_of(command: TyperCommand, name: str) -> TyperOption:
    """The option of a command by its long name."""
    return next(
        param
        for param in command.params
        if isinstance(param, TyperOption) and long_name(param) == name
    )


def options_of(command: TyperCommand) -> dict[str, Kind]:
    """What a file may say to a command: its options, and of which kind their values are."""
    assert command.callback is not None
    hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    return {
        long_name(param): _kind(param, hints[param.name])
        for param in command.params
        if isinstance(param, TyperOption)
    }


def _kind(param: TyperOption, hint: Any) -> Kind:
    annotation, info = get_args(hint)[:2]
    if param.multiple:
        return "texts"
    if param.is_flag and not param.count:
        return "switch"
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(arg for arg in get_args(annotation) if arg is not type(None))
    if annotation is int and info.parser is not None:
        return "size"
    return _KINDS.get(annotation, "text")
