"""Takes an earlier, invisible reading out of a page that was read anew.

Other OCR tools write what they read in render mode 3, which draws nothing. Only operators that show
such text go, from the page's content and the forms that it draws; every other byte of them stays,
so that pictures and visible text come out the same. Nothing that is shared with other pages is
changed: forms are copied. Gave up: pages whose operators cannot be told apart, invisible text that
visible text follows on the same line without a place of its own, and content of many megabytes;
there the old reading stays.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from vlmcli.outputs.operators import NotContentError, Operator, operators

_INVISIBLE = b"3"
_SHOWS = frozenset((b"Tj", b"TJ", b"'", b'"'))
_PLACES = frozenset((b"BT", b"ET", b"Td", b"TD", b"Tm", b"T*"))
"""After these, it does not matter how wide the text before them was."""
_MOST_BYTES = 8 << 20
_DEEPEST = 8
"""Forms within forms."""
_NAME = "VlmcliForm"

Resources = tuple[int, str]
"""The object that has a page's or a form's resources, and the key under which it does."""

Edit = tuple[int, int, bytes]
"""From where to where, and what stands there instead."""


@dataclass(frozen=True, slots=True)
class _State:
    """What of the graphics state decides whether text is seen."""

    mode: bytes = b"0"
    is_plain_font: bool = False
    """Whether the font is known, and none whose glyphs are drawings: those ignore the mode."""

    @property
    def is_invisible(self) -> bool:
        return self.mode == _INVISIBLE and self.is_plain_font


class OldReading:
    """Takes old readings out of the pages of one document.

    Args:
        pdf: an open PyMuPDF document that may be changed.
    """

    def __init__(self, pdf: Any) -> None:
        self._pdf = pdf
        self._copies: dict[tuple[int, Resources, _State], int | None] = {}
        """By form, its resources and the state in which it is drawn: its copy; None where it has no
        old text."""

    def content_without(self, page: Any) -> bytes | None:
        """The page's content without invisible text; None where there is none, or it must stay.

        The page must name its resources itself; names are added to them. Comparing what is `shown`
        before and after tells whether all went well.
        """
        if not any(kind == "ignore-text" for kind, *_ in page.get_bboxlog()):
            return None
        try:
            return self._without(page.read_contents(), (page.xref, "Resources"), _State(), 0)
        except NotContentError:
            return None

    def _without(
        self, content: bytes, resources: Resources, state: _State, depth: int
    ) -> bytes | None:
        if len(content) > _MOST_BYTES:
            return None
        eraser = _Eraser(self, resources, state, depth)
        for operator in operators(content):
            eraser.take(operator)
        eraser.settle()
        return _edited(content, eraser.edits) if eraser.edits else None

    def font_is_plain(self, resources: Resources, name: bytes) -> bool:
        """Whether a font is known and is no Type 3 font."""
        kind, value = self._entry(resources, "Font", name, "Subtype")
        return kind == "name" and value != "/Type3"

    def sets_font(self, resources: Resources, name: bytes) -> bool:
        """Whether a named graphics state comes with a font."""
        return self._entry(resources, "ExtGState", name, "Font")[0] != "null"

    def form_without(
        self, resources: Resources, name: bytes, state: _State, depth: int
    ) -> bytes | None:
        """The name of a form like the named one without old text; None where that has none."""
        kind, value = self._entry(resources, "XObject", name)
        if kind != "xref" or depth >= _DEEPEST:
            return None
        form = int(value.split()[0])
        if self._pdf.xref_get_key(form, "Subtype")[1] != "/Form":
            return None
        has_own = self._pdf.xref_get_key(form, "Resources")[0] != "null"
        key = form, (form, "Resources") if has_own else resources, state
        if key not in self._copies:
            # A form that draws itself finds this and stays.
            self._copies[key] = None
            self._copies[key] = self._copy(form, None if has_own else resources, state, depth)
        copy = self._copies[key]
        if copy is None:
            return None
        add_resource(self._pdf, resources, "XObject", f"{_NAME}{copy}", copy)
        return f"/{_NAME}{copy}".encode()

    def _copy(
        self, form: int, resources: Resources | None, state: _State, depth: int
    ) -> int | None:
        """A copy of a form without old text; `resources` are the caller's where it has none."""
        copy = int(self._pdf.get_new_xref())
        self._pdf.update_object(copy, "<<>>")
        self._pdf.xref_copy(form, copy)
        own = resources or (copy, "Resources")
        content = self._without(self._pdf.xref_stream(form) or b"", own, state, depth + 1)
        if content is None:
            self._pdf.update_object(copy, "null")
            return None
        self._pdf.update_stream(copy, content, compress=True)
        return copy

    def _entry(self, resources: Resources, *path: str | bytes) -> tuple[str, str]:
        holder, base = resources
        names = (key if isinstance(key, str) else key.decode("latin-1") for key in path)
        keys = [name.lstrip("/") for name in names]
        if any("#" in key for key in keys):
            return "null", "null"
        found: tuple[str, str] = self._pdf.xref_get_key(holder, "/".join([base, *keys]))
        return found


@dataclass(slots=True)
class _Eraser:
    """Walks through one content stream and notes what has to go."""

    owner: OldReading
    resources: Resources
    state: _State
    depth: int
    edits: list[Edit] = field(default_factory=list)
    _stack: list[_State] = field(default_factory=list)
    _pending: list[Edit] = field(default_factory=list)
    """Since the last operator that says where text goes on: visible text would be shifted."""

    def take(self, operator: Operator) -> None:
        """The next operator."""
        name = operator.name
        if name in _PLACES:
            self.settle()
        elif name in _SHOWS:
            self._show(operator)
        elif name == b"Do":
            self._draw(operator)
        else:
            self._set(operator)

    def settle(self) -> None:
        """What was to go so far can go: nothing depends on it."""
        self.edits += self._pending
        self._pending.clear()

    def _show(self, operator: Operator) -> None:
        if operator.name in (b"'", b'"'):
            self.settle()
        if not self.state.is_invisible:
            self._pending.clear()
            return
        # Two of the operators do more than to show text.
        rest = b""
        if operator.name == b"'":
            rest = b"T*"
        elif operator.name == b'"' and len(operator.operands) == 3:
            words, letters, _ = operator.operands
            rest = words + b" Tw " + letters + b" Tc T*"
        self._pending.append((operator.start, operator.end, rest))

    def _draw(self, operator: Operator) -> None:
        if not operator.operands:
            return
        other = self.owner.form_without(
            self.resources, operator.operands[-1], self.state, self.depth
        )
        if other is not None:
            self.edits.append((operator.start, operator.end, other + b" Do"))

    def _set(self, operator: Operator) -> None:
        name, operands = operator.name, operator.operands
        if name == b"q":
            self._stack.append(self.state)
        elif name == b"Q" and self._stack:
            self.state = self._stack.pop()
        elif name == b"Tr" and operands:
            self.state = replace(self.state, mode=operands[-1])
        elif name == b"Tf" and len(operands) >= 2:
            is_plain = self.owner.font_is_plain(self.resources, operands[-2])
            self.state = replace(self.state, is_plain_font=is_plain)
        elif name == b"gs" and operands and self.owner.sets_font(self.resources, operands[-1]):
            self.state = replace(self.state, is_plain_font=False)


def _edited(content: bytes, edits: list[Edit]) -> bytes:
    parts = []
    place = 0
    for start, end, instead in sorted(edits):
        parts += [content[place:start], instead]
        place = end
    return b"".join([*parts, content[place:]])


def add_resource(pdf: Any, resources: Resources, kind: str, name: str, xref: int) -> None:
    """Name an object in resources, parts of which may be objects of their own.

    Args:
        pdf: the open document.
        resources: must be there.
        kind: `Font` or `XObject`.
        name: without a slash; must not be in use for another object.
        xref: the object's number.
    """
    holder, path = resources
    for key in ("", kind):
        path = f"{path}/{key}".strip("/")
        found, value = pdf.xref_get_key(holder, path)
        if found == "xref":
            holder, path = int(value.split()[0]), ""
    pdf.xref_set_key(holder, f"{path}/{name}".lstrip("/"), f"{xref} 0 R")


def shown(page: Any) -> list[tuple[Any, ...]]:
    """What a page draws, in order: kinds and boxes of all that is seen. Decodes no picture."""
    return [tuple(entry) for entry in page.get_bboxlog() if entry[0] != "ignore-text"]
