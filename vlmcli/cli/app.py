"""The command line's root: its commands, and the one place where an error becomes an exit code.

A command is one file with one function, named in `commands`; it imports heavy modules when it runs.
Whatever a command raises ends here: what the user caused is one line with a remedy, what we caused
is a traceback with a request to report it.
"""

import errno
import sys
import traceback
from typing import Annotated, Any

import typer

from vlmcli.cli import signals
from vlmcli.cli.commands import EXIT_CODES, CommandGroup
from vlmcli.cli.console import fill_descriptors, leave_stdout, say, watch_stdout
from vlmcli.errors import ExitCode, ReaderGoneError, VlmcliError
from vlmcli.version import __version__

_FULL = (errno.ENOSPC, errno.EDQUOT)


class _Group(CommandGroup):
    """Runs a command and turns what it raises into an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """As Typer does, with our errors reported; parse errors are left to Typer (exit 2)."""
        try:
            return super().invoke(ctx)
        except (VlmcliError, KeyboardInterrupt, ReaderGoneError, OSError, EOFError) as error:
            code = report(error)
            if code is not None:
                raise typer.Exit(code) from error
            if isinstance(error, BrokenPipeError | EOFError):
                # Typer would take these for the user's doing and leave without a word.
                raise RuntimeError("a connection to a process of ours broke") from error
            raise


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Turn PDFs, scans and images into text with a vision-language model, on this machine.",
    epilog=EXIT_CODES,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vlmcli {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Turn PDFs, scans and images into text with a vision-language model, on this machine."""
    from vlmcli.cli.variables import LAYERED, set_for_options

    if ctx.invoked_subcommand in LAYERED or not set_for_options():
        return
    # Loads the commands that have variables, which others do not pay for.
    from vlmcli.cli.layers import variable_warnings

    for text in variable_warnings(ctx):
        say(f"vlmcli: warning: {text}")


def report(error: BaseException) -> ExitCode | None:
    """Tell the user about an error and name its exit code; None for a bug of ours."""
    if isinstance(error, ReaderGoneError):
        return ExitCode.OK
    if isinstance(error, Exception) and not isinstance(error, VlmcliError):
        error = _of_the_limit(error) or error
    if isinstance(error, VlmcliError):
        say(f"vlmcli: error: {error}")
        for note in getattr(error, "__notes__", ()):
            say(note)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        notes = getattr(error, "__notes__", [])
        say("; ".join(["vlmcli: interrupted", *notes]))
        return error.exit_code if isinstance(error, signals.Stopped) else ExitCode.INTERRUPTED
    if isinstance(error, OSError) and error.errno in _FULL:
        say(f"vlmcli: error: cannot write {error.filename or 'temporary files'}: {error.strerror}")
        return ExitCode.OUTPUT
    return None


def _of_the_limit(error: BaseException) -> VlmcliError | None:
    """What an error is that a limit on address space has caused."""
    # Loaded where something went wrong, since nothing else here needs it.
    from vlmcli.memory.address_space import shortage

    return shortage(error)


def main() -> None:
    """Entry point of `vlmcli` and `python -m vlmcli`. Does not return."""
    fill_descriptors()
    watch_stdout()
    signals.install()
    try:
        app(prog_name="vlmcli")
    except (KeyboardInterrupt, Exception) as error:
        code = report(error)
        sys.exit(_report_bug() if code is None else code)
    finally:
        leave_stdout()


def _report_bug() -> ExitCode:
    for line in traceback.format_exc().splitlines():
        say(line)
    say(f"vlmcli: error: this is a bug in vlmcli {__version__}; please report the lines above")
    return ExitCode.INTERNAL
