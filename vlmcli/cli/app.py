"""The command line's root: its commands, and the one place where an error becomes an exit code.

A command is one file with one function, registered below; it imports heavy modules when it runs.
Whatever a command raises ends here: what the user caused is one line with a remedy, what we caused
is a traceback with a request to report it.
"""

import errno
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vlmcli.cli import bench, cache, models, signals
from vlmcli.cli.ask import ask
from vlmcli.cli.console import fill_descriptors, say
from vlmcli.cli.doctor import doctor
from vlmcli.cli.evaluate import evaluate
from vlmcli.cli.layers import LayeredCommand
from vlmcli.cli.ocr import ocr
from vlmcli.cli.plan import plan
from vlmcli.cli.serve import serve
from vlmcli.cli.view import view
from vlmcli.errors import ExitCode, VlmcliError
from vlmcli.outputs.files import ReaderGoneError
from vlmcli.version import __version__

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

_FULL = (errno.ENOSPC, errno.EDQUOT)


class _Group(TyperGroup):
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
app.command("ocr", cls=LayeredCommand, epilog=_EPILOG)(ocr)
app.command("ask", cls=LayeredCommand, epilog=_EPILOG)(ask)
app.command("plan", cls=LayeredCommand, epilog=_EPILOG)(plan)
app.command("serve", epilog=EXIT_CODES)(serve)
app.command("eval")(evaluate)
app.command("view")(view)
app.command("doctor")(doctor)
app.add_typer(bench.app, name="bench")
app.add_typer(cache.app, name="cache")
app.add_typer(models.app, name="models")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vlmcli {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Turn PDFs, scans and images into text with a vision-language model, on this machine."""


def report(error: BaseException) -> ExitCode | None:
    """Tell the user about an error and name its exit code; None for a bug of ours."""
    if isinstance(error, ReaderGoneError):
        return ExitCode.OK
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


def main() -> None:
    """Entry point of `vlmcli` and `python -m vlmcli`. Does not return."""
    fill_descriptors()
    signals.install()
    try:
        app(prog_name="vlmcli")
    except KeyboardInterrupt as error:
        sys.exit(report(error))
    except Exception:
        for line in traceback.format_exc().splitlines():
            say(line)
        say(f"vlmcli: error: this is a bug in vlmcli {__version__}; please report the lines above")
        sys.exit(ExitCode.INTERNAL)
