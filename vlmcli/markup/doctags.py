"""DocTags, in which Granite-Docling and SmolDocling write pages, as text or Markdown.

The tags are those of docling-core (`DocumentToken` and `TableToken`, whose OTSL tables say of each
cell whether it is full, empty, or belongs to the one on its left or above). Only known tags are
taken for tags: a page that prints `<b>` or `a < b` keeps that.
"""

import re
from dataclasses import dataclass, field

from vlmcli.markup.grid import write_grid

_BLOCKS = (
    *("title", "text", "paragraph", "caption", "footnote", "page_header", "page_footer"),
    *("formula", "code", "list_item", "otsl", "picture", "chart", "reference"),
)
_GROUPS = (
    *("doctag", "doctags", "ordered_list", "unordered_list", "group", "inline", "document_index"),
    *("smiles", "form", "key_value_region", "checkbox_selected", "checkbox_unselected"),
)
_CELLS = ("fcel", "ecel", "lcel", "ucel", "xcel", "ched", "rhed", "srow", "nl")
_NAMES = "|".join([*_BLOCKS, *_GROUPS, *_CELLS, r"section_header_level_\d", "page_break"])
_TAG = re.compile(rf"<(/?)({_NAMES})>|<loc_\d{{1,4}}>|<_[\w+#.-]+_>|<\|?end_of_utterance\|?>")
_START = re.compile(r"\s*<(?:doctags?|otsl|loc_\d)")


@dataclass(slots=True)
class _Block:
    name: str
    text: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=lambda: [[]])
    """Of a table: cells by row."""


def is_doctags(text: str) -> bool:
    """Whether an answer is in DocTags: it begins with one."""
    return _START.match(text) is not None and re.search(rf"<(?:{_NAMES})>", text) is not None


def read_doctags(text: str, *, plain: bool) -> str:
    """The page's text, blocks parted by empty lines, items of a list by line breaks.

    Args:
        text: in DocTags; one that was cut short ends where it was cut.
        plain: text alone, instead of Markdown.
    """
    reader = _Reader(plain)
    place = 0
    for tag in _TAG.finditer(text):
        reader.take_text(text[place : tag.start()])
        reader.take_tag(tag[2] or "", is_end=bool(tag[1]))
        place = tag.end()
    reader.take_text(text[place:])
    return reader.finish()


class _Reader:
    """Takes tags and texts in order and writes blocks."""

    def __init__(self, plain: bool) -> None:
        self._plain = plain
        self._open: list[_Block] = []
        self._lists: list[int | None] = []
        """Of each open list the number of its last item; None where items have bullets."""
        self._num_lists = 0
        self._written: list[tuple[str, str]] = []
        """Blocks that are done: name and text."""

    def take_text(self, text: str) -> None:
        """Text between two tags."""
        if not text.strip():
            return
        if not self._open:
            self._open.append(_Block("text"))
        block = self._open[-1]
        if block.name == "otsl" and block.rows[-1]:
            block.rows[-1][-1] += text
        else:
            block.text.append(text)

    def take_tag(self, name: str, *, is_end: bool) -> None:
        """A tag; places (`name` is empty) say nothing here."""
        if name in _CELLS:
            self._take_cell(name)
        elif name in ("ordered_list", "unordered_list"):
            self._close_all()
            if is_end:
                self._lists = self._lists[:-1]
            else:
                self._num_lists += 1
                self._lists.append(0 if name == "ordered_list" else None)
        elif name in _GROUPS or name == "page_break":
            self._close_all()
        elif name and is_end:
            self._close(name)
        elif name:
            if self._open and self._open[-1].name == "text":
                self._close_all()
            self._open.append(_Block(name))

    def finish(self) -> str:
        """Everything that was written."""
        self._close_all()
        out = ""
        before = ""
        for name, text in self._written:
            is_item = name == before and name.startswith("list_item")
            gap = "" if not out else "\n" if is_item else "\n\n"
            out += gap + text
            before = name
        return out

    def _is_in(self, name: str) -> bool:
        return any(block.name == name for block in self._open)

    def _take_cell(self, name: str) -> None:
        if not self._is_in("otsl"):
            self._open.append(_Block("otsl"))
        while self._open[-1].name != "otsl":
            self._write(self._open.pop())
        rows = self._open[-1].rows
        if name == "nl":
            rows.append([])
        else:
            rows[-1].append("")

    def _close(self, name: str) -> None:
        """The innermost block of that name ends, and with it those in it."""
        while self._is_in(name):
            block = self._open.pop()
            self._write(block)
            if block.name == name:
                return

    def _close_all(self) -> None:
        while self._open:
            self._write(self._open.pop())

    def _write(self, block: _Block) -> None:
        text = "".join(block.text).strip()
        if block.name == "otsl":
            if text:
                self._written.append(("caption", text))
            grid = [row for row in block.rows if row]
            text = write_grid(grid, plain=self._plain)
        elif text:
            text = self._formatted(block.name, text)
        if text:
            name = block.name
            # Items of one list stand close.
            self._written.append(
                (f"{name} {self._num_lists}" if name == "list_item" else name, text)
            )

    def _formatted(self, name: str, text: str) -> str:
        if name == "list_item":
            return self._item(text)
        if self._plain:
            return text
        if name == "title":
            return f"# {text}"
        if name.startswith("section_header_level_"):
            return f"{'#' * min(6, int(name[-1]) + 1)} {text}"
        if name == "formula":
            return f"$$\n{text}\n$$"
        if name == "code":
            return f"```\n{text}\n```"
        return text

    def _item(self, text: str) -> str:
        if not self._lists or re.match(r"[-*•·]\s|\(?\w{1,3}[.)]\s", text):
            return text
        number = self._lists[-1]
        if number is None:
            return f"- {text}"
        self._lists[-1] = number + 1
        return f"{number + 1}. {text}"
