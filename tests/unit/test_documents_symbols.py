"""Glyphs of symbol fonts in text layers: the sign that is seen, however the font is encoded."""

import pymupdf
import pytest
from documents_kit import opened

from vlmcli.documents.base import RenderSpec
from vlmcli.documents.symbols import (
    UNKNOWN,
    ZAPF_CODES,
    Glyph,
    is_ambiguous,
    is_symbol_font,
    sign_of,
)
from vlmcli.documents.textlayer import compose, judge

SPEC = RenderSpec(dpi=100, max_pixels=10**7, grey=True)
ZAPF = {"3": "✓", "4": "✔", "5": "✕", "8": "✘", "l": "●", "n": "■", "o": "❏", "u": "◆", "H": "★"}
"""What forms use, by the code as a letter."""
NAMES = {"a19": "✓", "a20": "✔", "a21": "✕", "a24": "✘", "a71": "●", "a73": "■", "a35": "★"}
SIMPLE = "<</Type/Font/Subtype/Type1/BaseFont/{name}{more}>>"
WINGDINGS = (
    "<</Type/Font/Subtype/TrueType/BaseFont/Wingdings/FirstChar 0/LastChar 255/Widths[{widths}]"
    "/FontDescriptor<</Type/FontDescriptor/FontName/Wingdings/Flags 4/FontBBox[0 0 1000 1000]"
    "/ItalicAngle 0/Ascent 800/Descent -200/CapHeight 700/StemV 80>>>>"
).replace("{widths}", " ".join(["800"] * 256))


def layer(path, font: str, codes: bytes, **more):
    """The text layer of a page with a line in Helvetica and, below, codes in a font."""
    with pymupdf.open() as pdf:
        page = pdf.new_page(width=600, height=300)
        text, fonts = pdf.get_new_xref(), pdf.get_new_xref()
        plain = SIMPLE.format(name="Helvetica", more="")
        pdf.update_object(fonts, f"<</Font<</H {plain}/S {font}>>>>")
        pdf.update_object(text, "<<>>")
        body = f"BT /H 12 Tf 20 250 Td (Plain words) Tj /S 14 Tf 0 -50 Td <{codes.hex()}> Tj ET"
        pdf.update_stream(text, body.encode())
        pdf.xref_set_key(page.xref, "Resources", f"{fonts} 0 R")
        pdf.xref_set_key(page.xref, "Contents", f"{text} 0 R")
        for key, value in more.items():
            pdf.xref_set_key(page.xref, key, value)
        pdf.save(path)
    with opened(path) as document:
        return document.text_layer(0, SPEC)


def words(path, font: str, codes: bytes, **more) -> str:
    first, second = compose(layer(path, font, codes, **more)).text.split("\n\n")
    assert first == "Plain words"
    return second


@pytest.mark.parametrize(
    "encoding", ["", "/Encoding/WinAnsiEncoding", "/Encoding/StandardEncoding", "/Name/ZaDb"]
)
@pytest.mark.parametrize("turned", [{}, {"Rotate": "90"}])
def test_zapf_dingbats_are_signs_whatever_their_encoding(tmp_path, encoding, turned):
    font = SIMPLE.format(name="ZapfDingbats", more=encoding)
    codes = "".join(ZAPF).encode()
    assert words(tmp_path / "a.pdf", font, codes, **turned) == "".join(ZAPF.values())


def test_glyphs_that_are_named_are_those_of_the_names(tmp_path):
    more = f"/Encoding<</Differences[65/{'/'.join(NAMES)}]>>"
    font = SIMPLE.format(name="ABCDEF+ZapfDingbats", more=more)
    codes = bytes(range(65, 65 + len(NAMES)))
    assert words(tmp_path / "a.pdf", font, codes) == "".join(NAMES.values())


@pytest.mark.parametrize("first", range(len(ZAPF_CODES) // 20 + 1))
def test_every_code_of_zapf_dingbats_has_the_sign_of_its_glyph(tmp_path, first):
    codes = dict(list(ZAPF_CODES.items())[20 * first : 20 * first + 20])
    font = SIMPLE.format(name="ZapfDingbats", more="")
    assert words(tmp_path / "a.pdf", font, bytes(codes)) == "".join(codes.values())


def test_wingdings_and_symbol_without_a_meaning_of_their_own(tmp_path):
    assert words(tmp_path / "a.pdf", WINGDINGS, b"\xfc\xfb\xfe\xa8ln") == "✓✗☑□●■"
    symbol = SIMPLE.format(name="Symbol", more="/Encoding/WinAnsiEncoding")
    assert words(tmp_path / "b.pdf", symbol, b"abG 12,5") == "αβΓ 12,5"
    assert words(tmp_path / "c.pdf", SIMPLE.format(name="Symbol", more=""), b"abG\xb3") == "αβΓ≥"


def test_a_ticked_box_is_a_check_mark_and_an_empty_one_is_nothing(tmp_path):
    with pymupdf.open() as pdf:
        page = pdf.new_page(width=400, height=300)
        for row, (name, ticked) in enumerate({"Citizen": True, "Minor": False}.items()):
            page.insert_text((20, 100 + 60 * row), name, fontsize=14)
            box = pymupdf.Widget()
            box.rect = pymupdf.Rect(200, 85 + 60 * row, 218, 103 + 60 * row)
            box.field_type = pymupdf.PDF_WIDGET_TYPE_CHECKBOX
            box.field_name, box.field_value = name, ticked
            page.add_widget(box)
        pdf.save(tmp_path / "form.pdf")
    with opened(tmp_path / "form.pdf") as document:
        verdict = judge(document.text_layer(0, SPEC), document.render(0, SPEC).pixels)
    assert (verdict.sound, verdict.text.split()) == (True, ["Citizen", "✓", "Minor"])


def test_what_a_document_says_of_its_signs_counts():
    for font in ("Wingdings", "ZapfDingbats", "Symbol"):
        assert sign_of(font, Glyph("☑", 0x50, "")) == "☑"
        assert sign_of(font, Glyph(" ", 0x20, "")) == " "
    assert sign_of("Wingdings-Regular", Glyph("\uf0fc", 7, "")) == "✓"
    assert sign_of("SymbolMT", Glyph("\uf0b7", 7, "")) == "•"
    assert sign_of("Symbol", Glyph("×", 0xB4, "multiply")) == "×"


def test_a_sign_that_is_not_known_has_no_meaning_rather_than_a_letter_s():
    assert sign_of("Wingdings", Glyph("W", ord("W"), "")) == UNKNOWN
    assert sign_of("Wingdings", Glyph("\uf057", 7, "")) == "\uf057"


@pytest.mark.parametrize("font", ["Helvetica", "SymbolSans", "Wingding Text", "ABCDEF+Times-Bold"])
def test_other_fonts_are_left_alone(font):
    assert not is_symbol_font(font)
    assert sign_of(font, Glyph("3", 0x33, "a19")) == "3"


def test_letters_are_in_doubt_and_signs_are_not():
    for font in ("Wingdings", "ZapfDingbats", "Symbol"):
        assert all(is_ambiguous(font, letter) for letter in "3a\x14É’" + UNKNOWN)
        assert not any(is_ambiguous(font, letter) for letter in "✓●\uf0fc")
