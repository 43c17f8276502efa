"""A font without shapes, for text that is found and copied but never seen.

Every character is one empty glyph, half an em wide.
Written from the OpenType and PDF (ISO 32000-1, 9.7) specifications.
"""

import struct
from typing import Any

ADVANCE = 500
"""Width of every glyph, in thousandths of the font size."""
ASCENT, DESCENT = 780, -220
"""What a viewer marks above and below the base line, in the same unit."""
_UNITS = 1000
_MAGIC = 0x5F0F3CF5
_CHECKSUM = 0xB1B0AFBA

_TO_UNICODE = """/CIDInit /ProcSet findresource begin
12 dict begin
begincmap
/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def
/CMapName /Adobe-Identity-UCS def
/CMapType 2 def
1 begincodespacerange
<0000> <FFFF>
endcodespacerange
2 beginbfrange
<0000> <DFFF> <0000>
<F900> <FFFF> <F900>
endbfrange
{own}endcmap
CMapName currentdict /CMap defineresource pop
end
end
"""
"""Codes are UTF-16 but for the private area, which holds what UTF-16 has no single code for."""
_OWN = range(0xE000, 0xF900)
_MAX_ENTRIES = 100
"""Of one block of a CMap."""

_GLYPH_OF_CODE = b"\0\1" * 0x10000
"""CIDToGIDMap: every code is glyph 1."""


class GlyphlessFont:
    """The font in a PyMuPDF document. `close` must follow the last `text_string`."""

    def __init__(self, pdf: Any) -> None:
        self._pdf = pdf
        self._own: dict[str, int] = {}
        self._to_unicode = _object(pdf, "<<>>")
        file = _stream(pdf, truetype(), f"/Length1 {len(truetype())}")
        codes = _stream(pdf, _GLYPH_OF_CODE)
        descriptor = _object(
            pdf,
            "<</Type/FontDescriptor/FontName/VlmcliText/Flags 5/ItalicAngle 0"
            f"/FontBBox[0 {DESCENT} {ADVANCE} {ASCENT}]/Ascent {ASCENT}/Descent {DESCENT}"
            f"/CapHeight {ASCENT}/StemV 80/FontFile2 {file} 0 R>>",
        )
        descendant = _object(
            pdf,
            "<</Type/Font/Subtype/CIDFontType2/BaseFont/VlmcliText"
            "/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>"
            f"/FontDescriptor {descriptor} 0 R/DW {ADVANCE}/CIDToGIDMap {codes} 0 R>>",
        )
        self.xref = _object(
            pdf,
            "<</Type/Font/Subtype/Type0/BaseFont/VlmcliText/Encoding/Identity-H"
            f"/DescendantFonts[{descendant} 0 R]/ToUnicode {self._to_unicode} 0 R>>",
        )

    def text_string(self, text: str) -> bytes:
        """A string operand in this font; as many glyphs as `text` has characters."""
        return b"<" + "".join(f"{self._code(char):04X}" for char in text).encode() + b">"

    def close(self) -> None:
        """Write down what the font's own codes mean."""
        entries = [
            f"<{code:04X}> <{char.encode('utf-16-be').hex()}>\n" for char, code in self._own.items()
        ]
        blocks = [entries[i : i + _MAX_ENTRIES] for i in range(0, len(entries), _MAX_ENTRIES)]
        own = "".join(f"{len(block)} beginbfchar\n{''.join(block)}endbfchar\n" for block in blocks)
        data = _TO_UNICODE.format(own=own).encode()
        self._pdf.update_stream(self._to_unicode, data, new=True, compress=True)

    def _code(self, char: str) -> int:
        point = ord(char)
        if point <= 0xFFFF and point not in _OWN:
            return point
        if char not in self._own:
            if len(self._own) == len(_OWN):
                return 0xFFFD
            self._own[char] = _OWN[len(self._own)]
        return self._own[char]


def truetype() -> bytes:
    """The font file: two empty glyphs."""
    tables = {
        b"cmap": _cmap(),
        b"glyf": b"\0" * 4,
        b"head": struct.pack(
            ">IIIIHHQQhhhhHHhhh",
            *(0x00010000, 0x00010000, 0, _MAGIC, 0, _UNITS, 0, 0),
            *(0, DESCENT, ADVANCE, ASCENT, 0, 8, 2, 0, 0),
        ),
        b"hhea": struct.pack(
            ">IhhhHhhhhhhhhhhhH",
            *(0x00010000, ASCENT, DESCENT, 0, ADVANCE, 0, 0, ADVANCE, 1, 0, 0, 0, 0, 0, 0, 0, 2),
        ),
        b"hmtx": struct.pack(">HhHh", ADVANCE, 0, ADVANCE, 0),
        b"loca": struct.pack(">HHH", 0, 0, 0),
        b"maxp": struct.pack(">IHHHHHHHHHHHHHH", 0x00010000, 2, *([0] * 4), 1, *([0] * 8)),
        b"post": struct.pack(">IIhhIIIII", 0x00030000, 0, 0, 0, 1, 0, 0, 0, 0),
    }
    return _assemble(tables)


def _object(pdf: Any, text: str) -> int:
    xref: int = pdf.get_new_xref()
    pdf.update_object(xref, text)
    return xref


def _stream(pdf: Any, data: bytes, entries: str = "") -> int:
    xref: int = _object(pdf, f"<<{entries}>>")
    pdf.update_stream(xref, data, new=True, compress=True)
    return xref


def _cmap() -> bytes:
    """No character has a glyph by name: the PDF says which is which."""
    segment = struct.pack(">HHHHHHHHHHhH", 4, 24, 0, 2, 2, 0, 0, 0xFFFF, 0, 0xFFFF, 1, 0)
    return struct.pack(">HHHHI", 0, 1, 3, 1, 12) + segment


def _assemble(tables: dict[bytes, bytes]) -> bytes:
    count = len(tables)
    power = 1 << (count.bit_length() - 1)
    header = struct.pack(
        ">IHHHH", 0x00010000, count, 16 * power, power.bit_length() - 1, 16 * (count - power)
    )
    offset = len(header) + 16 * count
    directory, body = b"", b""
    for tag, data in sorted(tables.items()):
        padded = data + b"\0" * (-len(data) % 4)
        directory += struct.pack(">4sIII", tag, _sum(padded), offset + len(body), len(data))
        body += padded
    whole = bytearray(header + directory + body)
    adjustment = (_CHECKSUM - _sum(bytes(whole))) & 0xFFFFFFFF
    head = whole.index(struct.pack(">I", _MAGIC)) - 4
    whole[head : head + 4] = struct.pack(">I", adjustment)
    return bytes(whole)


def _sum(data: bytes) -> int:
    words: tuple[int, ...] = struct.unpack(f">{len(data) // 4}I", data)
    return sum(words) & 0xFFFFFFFF
