"""Text lines of a page picture: find them, cut them out, and join their texts again.

Finding and cutting bring OpenCV, at their first use: who only handles lines and their
texts, as the main process does, does not pay for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vlmcli.documents.lines.shapes import LineCrop, TextLine
from vlmcli.documents.lines.text import join_text

if TYPE_CHECKING:
    from vlmcli.documents.lines.crops import crop_lines
    from vlmcli.documents.lines.finder import find_lines

__all__ = ["LineCrop", "TextLine", "crop_lines", "find_lines", "join_text"]

_HEAVY = {"crop_lines": "crops", "find_lines": "finder"}


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HEAVY[name]}"), name)
