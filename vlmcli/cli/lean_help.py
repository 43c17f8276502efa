"""Typer's help without two parts of rich that it imports and that no help of ours uses.

Markdown brings a parser, tracebacks bring a lexer: half of the time of `vlmcli --help`. Both are
hidden while `typer.rich_utils` is imported, and there for everybody who imports them later.
"""

import importlib
import sys
from types import ModuleType

_UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""Module → the class that is imported from it."""


def load() -> None:
    """Import what draws help, if it has not been imported yet."""
    if "typer.rich_utils" in sys.modules:
        return
    hidden = [name for name in _UNUSED if name not in sys.modules]
    for name in hidden:
        stand_in = ModuleType(name)
        setattr(stand_in, _UNUSED[name], type(_UNUSED[name], (), {}))
        sys.modules[name] = stand_in
    try:
        importlib.import_module("typer.rich_utils")
    finally:
        for name in hidden:
            del sys.modules[name]
