"""Lines of MuPDF's with the glyphs of symbol fonts as signs, which its own text lacks.

MuPDF's text says what an encoding makes of a glyph. Here the page is run once more, to see which
glyphs are drawn, where there are any that an encoding is no good for. Costs nothing elsewhere.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from vlmcli.documents import mupdf
from vlmcli.documents.symbols import Glyph, is_ambiguous, is_symbol_font, sign_of

Place = tuple[int, int]
"""Where a glyph stands, in quarters of a pixel."""
_STEPS = 4
_NOTHING = Glyph("", -1, "")


def has_symbols(lines: Iterable[dict[str, Any]]) -> bool:
    """Whether glyphs of a symbol font are among the lines."""
    return any(is_symbol_font(span["font"]) for line in lines for span in line["spans"])


def with_signs(lines: list[dict[str, Any]], page: Any, matrix: Any) -> list[dict[str, Any]]:
    """The lines, of single glyphs, with signs in their letters' place.

    Args:
        lines: as of `extractRAWDICT`; changed.
        page: MuPDF's page that they are of.
        matrix: maps the page onto the lines' coordinates.
    """
    symbols = [span for line in lines for span in line["spans"] if is_symbol_font(span["font"])]
    is_needed = any(
        is_ambiguous(span["font"], glyph["c"]) for span in symbols for glyph in span["chars"]
    )
    drawn = _drawn(page, matrix) if is_needed else {}
    for span in symbols:
        for glyph in span["chars"]:
            found = drawn.get(_place(*glyph["origin"]), _NOTHING)
            glyph["c"] = sign_of(span["font"], found._replace(letter=glyph["c"]))
    for line in lines:
        for span in line["spans"]:
            span["text"] = "".join(glyph["c"] for glyph in span["chars"])
    return lines


def _place(x: float, y: float) -> Place | None:
    """None for what a broken matrix has put nowhere."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return None
    return round(_STEPS * x), round(_STEPS * y)


def _drawn(page: Any, matrix: Any) -> Mapping[Place | None, Glyph]:
    core = mupdf.load().mupdf
    device = _device()()
    core.fz_run_page(page, device, matrix, core.FzCookie())
    core.fz_close_device(device)
    found: Mapping[Place | None, Glyph] = device.found
    return found


@lru_cache(maxsize=1)
def _device() -> type[Any]:
    """A device that notes the glyphs of symbol fonts; a class of a module that is loaded late."""
    core = mupdf.load().mupdf

    class Glyphs(core.FzDevice2):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.found: dict[Place, Glyph] = {}
            for kind in ("fill", "stroke", "clip", "clip_stroke", "ignore"):
                getattr(self, f"use_virtual_{kind}_text")()

        def fill_text(self, _: Any, text: Any, matrix: Any, *more: Any) -> None:
            self._note(text, matrix)

        def stroke_text(self, _: Any, text: Any, stroke: Any, matrix: Any, *more: Any) -> None:
            self._note(text, matrix)

        def clip_text(self, _: Any, text: Any, matrix: Any, *more: Any) -> None:
            self._note(text, matrix)

        def clip_stroke_text(self, _: Any, text: Any, stroke: Any, matrix: Any, *more: Any) -> None:
            self._note(text, matrix)

        def ignore_text(self, _: Any, text: Any, matrix: Any) -> None:
            self._note(text, matrix)

        def _note(self, text: Any, matrix: Any) -> None:
            span = text.head
            while span:
                if is_symbol_font(core.ll_fz_font_name(span.font)):
                    self._note_span(core.FzTextSpan(span), matrix)
                span = span.next

        def _note_span(self, span: Any, matrix: Any) -> None:
            for index in range(span.m_internal.len):
                item = span.items(index)
                x = matrix.a * item.x + matrix.c * item.y + matrix.e
                y = matrix.b * item.x + matrix.d * item.y + matrix.f
                if item.gid < 0 or not (math.isfinite(x) and math.isfinite(y)):
                    continue
                name = core.fz_get_glyph_name2(span.font(), item.gid)
                glyph = Glyph("", item.cid, name)
                # MuPDF's own sum may differ in its last digit: both neighbours are the place.
                for across in (math.floor(_STEPS * x), math.ceil(_STEPS * x)):
                    for down in (math.floor(_STEPS * y), math.ceil(_STEPS * y)):
                        self.found[across, down] = glyph

    return Glyphs
