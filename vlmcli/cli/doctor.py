"""`vlmcli doctor`: reads a run's `--stats` and names what ails it, with evidence and remedy."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from vlmcli.cli.console import printable, take_stdout
from vlmcli.doctor import diagnose
from vlmcli.errors import InputError


def doctor(
    stats: Annotated[Path, typer.Argument(metavar="STATS.json", help="What `--stats` wrote.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of text.")
    ] = False,
) -> None:
    """Name what slowed a run down or is odd about it, with the figures that say so."""
    findings = diagnose(_read(stats))
    stdout = take_stdout(is_needed=True)
    if as_json:
        text = json.dumps({"findings": [dataclasses.asdict(finding) for finding in findings]})
    else:
        text = "\n".join(
            f"{finding.name}\n  {finding.evidence}\n  → {finding.remedy}" for finding in findings
        )
    stdout.write(f"{text or 'nothing found'}\n".encode())


def _read(file: Path) -> dict[str, float]:
    """The figures of a run.

    Raises:
        InputError: the file is not there, or is not what `--stats` writes.
    """
    remedy = "give the file that `vlmcli ocr --stats FILE` wrote"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"no such file: {printable(str(file))}", code="missing") from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {printable(str(file))}: {error}", remedy=remedy) from error
    if not isinstance(data, dict) or not {"pages", "seconds"} <= data.keys():
        raise InputError(f"no figures of a run: {printable(str(file))}", remedy=remedy)
    return {
        name: float(value)
        for name, value in data.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
