"""Where the documents lie that records name: beside the records, where they were, or below a root.

Looks only at paths; opens nothing. With a root nothing outside of it is found, whatever the records
say.
"""

from collections.abc import Iterator
from pathlib import Path

from vlmcli.documents.base import Source
from vlmcli.documents.source import STDIN
from vlmcli.errors import InputError


def find_document(name: str, *, beside: Path, root: Path | None = None) -> Source:
    """The document `name` of a record.

    Args:
        name: as records have it: a path from where the job was started.
        beside: folder of the records.
        root: folder below which documents lie, by their path or their last name.

    Raises:
        InputError: it is nowhere, or came from stdin.
    """
    if name == STDIN:
        raise InputError("it came from standard input, and was not kept", code="missing")
    try:
        there = next((path for path in _places(name, beside, root) if path.is_file()), None)
    except (OSError, ValueError):  # a name that no file can have: too long, a null character
        there = None
    if there is not None:
        return Source(path=there, name=name)
    where = f"below {root}" if root else f"here or in {beside}"
    raise InputError(f"no such file {where}", code="missing")


def _places(name: str, beside: Path, root: Path | None) -> Iterator[Path]:
    path = Path(name)
    if root is None:
        yield from (path, beside / path, beside / path.name)
        return
    inside = root.resolve()
    for place in (root / path, root / path.name):
        if place.resolve().is_relative_to(inside):
            yield place
