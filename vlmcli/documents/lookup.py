"""Where the documents lie that records name: beside the records, where they were, or below a root.

Looks only at paths; opens nothing. With a root nothing outside of it is found, whatever the records
say.
"""

import os
from pathlib import Path

from vlmcli.documents.base import Source
from vlmcli.documents.source import STDIN
from vlmcli.errors import InputError
from vlmcli.paths import is_file, path_of


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
    for path in _places(name, beside, root):
        if is_file(path) and (root is None or _is_inside(path, root)):
            return Source(path=path, name=name)
    where = f"below {root}" if root else f"here or in {beside}"
    raise InputError(f"no such file {where}", code="missing")


def _places(name: str, beside: Path, root: Path | None) -> tuple[Path, ...]:
    path = path_of(name)
    if root is None:
        return path, beside / path, beside / path.name
    return root / path, root / path.name


def _is_inside(path: Path, root: Path) -> bool:
    """Whether a file lies below the folder, wherever links lead."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
