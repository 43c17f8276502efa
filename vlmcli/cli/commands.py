"""The commands by name: what a list of them needs to know, and where each is loaded from.

A command's module is imported when the command is wanted, so that `vlmcli --help` and `vlmcli ocr`
do not pay for all the others. A summary stands here a second time; a test compares.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from vlmcli.cli import lean_help

EXIT_CODES = """Exit codes:
 0 every page read;
 1 error in vlmcli itself;
 2 wrong usage;
 3 input cannot be read;
 4 output cannot be written;
 5 some pages failed, the output is complete and says which;
 6 does not fit into memory;
 7 model missing or broken;
 8 password missing or wrong;
 9 server or cluster unreachable;
 130 interrupted (143 by SIGTERM), --resume goes on."""
_EPILOG = f"""Every option can be set for all runs by a variable, as in VLMCLI_MAX_MEMORY=4GiB.

{EXIT_CODES}"""


class _Entry(NamedTuple):
    """A command that is not loaded yet."""

    summary: str
    """The first sentence of its help."""
    add: Callable[[typer.Typer], None]
    """Imports the command and registers it."""


def _add_ocr(app: typer.Typer) -> None:
    from vlmcli.cli.layers import LayeredCommand
    from vlmcli.cli.ocr import ocr

    app.command("ocr", cls=LayeredCommand, epilog=_EPILOG)(ocr)


def _add_ask(app: typer.Typer) -> None:
    from vlmcli.cli.ask import ask
    from vlmcli.cli.layers import LayeredCommand

    app.command("ask", cls=LayeredCommand, epilog=_EPILOG)(ask)


def _add_plan(app: typer.Typer) -> None:
    from vlmcli.cli.layers import LayeredCommand
    from vlmcli.cli.plan import plan

    app.command("plan", cls=LayeredCommand, epilog=_EPILOG)(plan)


def _add_serve(app: typer.Typer) -> None:
    from vlmcli.cli.serve import serve

    app.command("serve", epilog=EXIT_CODES)(serve)


def _add_eval(app: typer.Typer) -> None:
    from vlmcli.cli.evaluate import evaluate

    app.command("eval")(evaluate)


def _add_view(app: typer.Typer) -> None:
    from vlmcli.cli.view import view

    app.command("view")(view)


def _add_doctor(app: typer.Typer) -> None:
    from vlmcli.cli.doctor import doctor

    app.command("doctor")(doctor)


def _add_bench(app: typer.Typer) -> None:
    from vlmcli.cli import bench

    app.add_typer(bench.app, name="bench")


def _add_cache(app: typer.Typer) -> None:
    from vlmcli.cli import cache

    app.add_typer(cache.app, name="cache")


def _add_models(app: typer.Typer) -> None:
    from vlmcli.cli import models

    app.add_typer(models.app, name="models")


_ENTRIES = {
    "ocr": _Entry(
        "Read documents: every page's text, in order, on stdout or into files.", _add_ocr
    ),
    "ask": _Entry(
        "Put questions to the pages of documents; every page answers all of them.", _add_ask
    ),
    "plan": _Entry(
        "Predict memory and tokens of a job before anything is rendered or loaded.", _add_plan
    ),
    "serve": _Entry(
        "Answer OpenAI's chat completions with the engine, on this machine.", _add_serve
    ),
    "eval": _Entry(
        "Character and word error rates against a truth, page by page and together.", _add_eval
    ),
    "view": _Entry(
        "Write one HTML file with every page's picture beside its text; any browser opens it.",
        _add_view,
    ),
    "doctor": _Entry(
        "Name what slowed a run down or is odd about it, with the figures that say so.", _add_doctor
    ),
    "bench": _Entry(
        "Measure: engine against transformers, memory against page count, what reuse and drafts "
        "save, what a GPU does.",
        _add_bench,
    ),
    "cache": _Entry("Show, delete or check the results of earlier runs.", _add_cache),
    "models": _Entry("List, describe, fetch or check models.", _add_models),
}
"""In the order of the help."""


class CommandGroup(TyperGroup):
    """A group of the commands above. Lists them without loading any; else loads what is wanted."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for name, entry in _ENTRIES.items():
            self.commands[name] = TyperCommand(name, help=entry.summary)
        self._loaded: dict[str, Any] = {}
        self._is_listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, loaded; None where there is none. In lists its name and summary alone."""
        if self._is_listing or cmd_name not in _ENTRIES:
            return super().get_command(ctx, cmd_name)
        if cmd_name not in self._loaded:
            app = typer.Typer()
            _ENTRIES[cmd_name].add(app)
            self._loaded[cmd_name] = typer.main.get_group(app).commands[cmd_name]
        return self._loaded[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, with a list of the commands."""
        lean_help.load()
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names of commands, with summaries."""
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextlib.contextmanager
    def _listing(self) -> Iterator[None]:
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False
