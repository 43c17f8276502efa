"""Names that a file system takes: what would be too long is cut and marked with a digest.

Pure functions of names, but for the question how long one may be.
"""

import hashlib
import os
from pathlib import Path

LONGEST_NAME = 255
"""Bytes; no common file system takes more, some that encrypt take less."""
_SHORTEST = 64
_DIGITS = 12


def longest_name(folder: Path) -> int:
    """Bytes that a name in `folder`, which need not be there yet, may have."""
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        return max(_SHORTEST, min(LONGEST_NAME, os.pathconf(folder, "PC_NAME_MAX")))
    except (OSError, ValueError):
        return LONGEST_NAME


def fitting(path: Path, most: int, extension: int) -> Path:
    """A relative path whose every name fits: directories in `most` bytes, the last one with an
    extension of so many bytes behind it."""
    *folders, last = path.parts
    return Path(*(_fitting(name, most) for name in folders), _fitting(last, most - extension))


def _fitting(name: str, most: int) -> str:
    """The name, or as much of it as fits with a digest of all of it, which keeps it apart."""
    data = os.fsencode(name)
    if len(data) <= most:
        return name
    mark = "-" + hashlib.sha256(data).hexdigest()[:_DIGITS]
    while len(os.fsencode(name)) > most - len(mark):
        name = name[:-1]
    return name + mark
