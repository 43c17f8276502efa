"""`vlmcli models`: families that run natively, checkpoints that are here; fetch or check one.

What was asked for goes to stdout, for people or as JSON. Reads no documents; only `verify` loads
torch, only `pull` uses the network.
"""

import json
from typing import Annotated, Any

import typer

from vlmcli.cli.console import printable, take_stdout
from vlmcli.options import format_size

app = typer.Typer(help="List, describe, fetch or check models.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
Model = Annotated[str, typer.Argument(metavar="NAME|DIR", help="As after `ocr --model`.")]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """Model families that the engine runs, and checkpoints on this machine."""
    from vlmcli.catalogue import families_by_type, installed_models

    families = [
        {"model_type": kind, "published": names} for kind, names in families_by_type().items()
    ]
    models = [
        {
            "name": model.name,
            "model_type": model.model_type,
            "native": model.is_native,
            "bytes": model.num_bytes,
            "path": str(model.path),
        }
        for model in installed_models()
    ]
    lines = ["families that run natively:"]
    lines += [f"  {family['model_type']:<12} {family['published']}" for family in families]
    lines.append("checkpoints here:")
    lines += [
        f"  {printable(str(model['name']))}  {model['model_type']}, "
        f"{format_size(int(str(model['bytes'])))}{'' if model['native'] else ', not native'}"
        for model in models
    ]
    _show({"families": families, "models": models}, lines, as_json)


@app.command()
def show(model: Model, as_json: AsJson = False) -> None:
    """What a checkpoint is: family, revision, parameters, size, how it reads."""
    from vlmcli.catalogue import describe

    card = describe(model)
    checkpoint, facts = card.checkpoint, card.facts
    data = {
        "name": checkpoint.name,
        "path": str(checkpoint.path),
        "revision": checkpoint.revision,
        "model_type": checkpoint.model_type,
        "native": card.is_native,
        "reads": checkpoint.reads,
        "parameters": facts.num_parameters,
        "dtype": facts.dtype,
        "bytes": card.num_bytes,
    }
    if facts.foreign is not None:
        del data["parameters"], data["dtype"]
    lines = [f"{name:<11} {printable(str(value))}" for name, value in data.items()]
    _show(data, lines, as_json)


@app.command()
def pull(
    model: Annotated[str, typer.Argument(metavar="OWNER/MODEL", help="Its name on the hub.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a checkpoint into the Hugging Face cache; goes on where an earlier try broke off."""
    from vlmcli.hub import pull as fetch

    path = str(fetch(model, revision))
    _show({"name": model, "path": path}, [path], as_json)


@app.command()
def verify(model: Model, as_json: AsJson = False) -> None:
    """Check that a checkpoint's weights are complete and match its config.json."""
    from vlmcli.catalogue import verify as check

    count = check(model)
    _show({"name": model, "weights": count}, [f"{count} weights, all as config.json says"], as_json)


def _show(data: dict[str, Any], lines: list[str], as_json: bool) -> None:
    stdout = take_stdout(is_needed=True)
    stdout.write(((json.dumps(data) if as_json else "\n".join(lines)) + "\n").encode())
