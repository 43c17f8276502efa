"""Text lines of a page picture: find them, cut them out, and join their texts again."""

from vlmcli.documents.lines.crops import crop_lines
from vlmcli.documents.lines.finder import find_lines
from vlmcli.documents.lines.shapes import LineCrop, TextLine
from vlmcli.documents.lines.text import join_text

__all__ = ["LineCrop", "TextLine", "crop_lines", "find_lines", "join_text"]
