"""`vlmcli cache`: the results of earlier runs, looked at, deleted, checked.

What was asked for goes to stdout, for people or as JSON. Opens neither documents nor models.
"""

import dataclasses
import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlmcli.cli.console import printable, say, take_stdout
from vlmcli.errors import OutputError
from vlmcli.options import format_size

if TYPE_CHECKING:
    from vlmcli.reuse.store import ResultStore
    from vlmcli.reuse.upkeep import StoreInfo

app = typer.Typer(help="Show, delete or check the results of earlier runs.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


@app.command()
def info(as_json: AsJson = False) -> None:
    """Where the store is, how much is in it, and by which models."""
    with _store() as store:
        found = store.info()
    data = dataclasses.asdict(found) | {"path": str(found.path)}
    _show(data, "\n".join(_describe(found)), as_json)


@app.command()
def clear(as_json: AsJson = False) -> None:
    """Delete all results. Running jobs go on and keep what they read from now on."""
    with _store() as store:
        num_pages = store.clear()
        left = store.info().num_pages
    if left:
        raise OutputError(
            f"{left} pages in {store.path} could not be deleted",
            remedy="try again when no job runs",
        )
    _show({"deleted": num_pages}, f"deleted the results of {num_pages} pages", as_json)


@app.command()
def verify(as_json: AsJson = False) -> None:
    """Check every result and the file that holds them; damaged ones are deleted."""
    with _store() as store:
        found = store.verify()
    text = f"{found.num_checked} pages checked, {found.num_dropped} damaged entries deleted"
    _show(dataclasses.asdict(found), text if found.is_sound else f"{text}: was damaged", as_json)


def _store() -> "ResultStore":
    from vlmcli.reuse.store import ResultStore

    return ResultStore(on_warning=lambda message: say(f"vlmcli: warning: {message}"))


def _describe(found: "StoreInfo") -> list[str]:
    lines = [
        f"store    {printable(str(found.path))}",
        f"pages    {found.num_pages}, {found.num_sketches} of them with a picture to compare",
        f"size     {format_size(found.num_bytes)} of at most {format_size(found.max_bytes)}, "
        f"{format_size(found.file_bytes)} on disk",
    ]
    if found.oldest_use is not None and found.newest_use is not None:
        lines.append(f"used     {_date(found.oldest_use)} to {_date(found.newest_use)}")
    lines += [f"model    {printable(model)}: {count}" for model, count in found.pages_by_model]
    return lines


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def _show(data: dict[str, Any], text: str, as_json: bool) -> None:
    stdout = take_stdout(is_needed=True)
    stdout.write(((json.dumps(data) if as_json else text) + "\n").encode())
