"""A page's own text: sound where it says what is seen and nothing else, in reading order."""

from dataclasses import replace

import numpy as np
import pytest
from documents_kit import GREY, image_object, opened, pages_pdf, sentences, stream, text_at, written
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmcli.documents import bidi, textlayer
from vlmcli.documents.base import Fragment, TextLayer
from vlmcli.documents.lines.text import CELL_GAP

PAGE = b"/MediaBox[0 0 612 792]"


def verdict_of(tmp_path, contents, **options):
    """Judge the one page of a PDF made of these contents."""
    path = tmp_path / "x.pdf"
    path.write_bytes(pages_pdf([contents], page=options.pop("page", PAGE), **options))
    with opened(path) as document:
        return textlayer.judge(document.text_layer(0, GREY), document.render(0, GREY).pixels)


def printed(lines, *, x=60, y=730, size=11, pitch=15, mode=0):
    return b"".join(
        text_at(x, y - pitch * number, line, size, mode) for number, line in enumerate(lines)
    )


def test_plain_text_is_sound_and_comes_line_by_line(tmp_path):
    lines = sentences(30)
    verdict = verdict_of(tmp_path, printed(lines))
    assert verdict.sound, verdict.reason
    assert verdict.text.split("\n") == lines
    assert [line.text for line in verdict.lines] == lines


def test_boxes_lie_on_their_ink(tmp_path):
    lines = sentences(20)
    path = tmp_path / "x.pdf"
    path.write_bytes(pages_pdf([printed(lines)], page=PAGE))
    with opened(path) as document:
        pixels = document.render(0, GREY).pixels
        verdict = textlayer.judge(document.text_layer(0, GREY), pixels)
    rest = pixels.copy()
    for line in verdict.lines:
        x0, y0, x1, y1 = line.bbox
        assert 0 <= x0 < x1 <= pixels.shape[1]
        assert 0 <= y0 < y1 <= pixels.shape[0]
        assert pixels[y0:y1, x0:x1].min() < 128
        rest[y0:y1, x0:x1] = 255
    assert rest.min() > 128, "no ink outside the boxes"


def test_a_page_without_text_has_no_layer(tmp_path):
    assert verdict_of(tmp_path, b"").reason == "no-text"
    assert verdict_of(tmp_path, text_at(60, 700, "   ")).reason == "no-text"
    assert textlayer.compose(None).reason == "no-text"


@pytest.mark.parametrize("share", [0.06, 0.2, 0.5, 0.95])
@pytest.mark.parametrize("where", ["top", "middle", "bottom"])
def test_lines_that_are_pictures_make_a_layer_unsound(tmp_path, share, where):
    lines = sentences(40)
    path = tmp_path / "x.pdf"
    path.write_bytes(pages_pdf([printed(lines)], page=PAGE))
    with opened(path) as document:
        pixels = document.render(0, GREY).pixels
        layer = document.text_layer(0, GREY)
    assert layer is not None
    lost = max(2, round(share * len(layer.fragments)))
    start = {"top": 0, "middle": (len(lines) - lost) // 2, "bottom": len(lines) - lost}[where]
    kept = layer.fragments[:start] + layer.fragments[start + lost :]
    assert textlayer.judge(layer, pixels).sound
    verdict = textlayer.judge(replace(layer, fragments=kept), pixels)
    assert not verdict.sound
    assert verdict.reason == "uncovered"


@pytest.mark.parametrize("height", [14, 22, 60])
def test_a_scan_with_a_stamp_of_text_is_unsound(tmp_path, height):
    pixels = written(sentences(10, 4), size=(850, 1100), height=height)
    scan = b"q 612 0 0 792 0 0 cm /I Do Q "
    verdict = verdict_of(
        tmp_path,
        scan + text_at(400, 20, "Received 12 May, Archive 7", 8),
        extra=[image_object(pixels)],
        resources=b"/XObject<</I 4 0 R>>",
    )
    assert verdict.reason == "uncovered"


def test_a_photograph_beside_the_text_is_no_missing_text(tmp_path):
    random = np.random.default_rng(0)
    clouds = sum(
        np.kron(random.normal(size=(2**n, 2**n)), np.ones((512 >> n, 512 >> n))) * 2.0 ** (-n)
        for n in range(1, 8)
    )
    grey = np.interp(clouds, (clouds.min(), clouds.max()), (0, 255)).astype(np.uint8)
    verdict = verdict_of(
        tmp_path,
        printed(sentences(20)) + b"q 300 0 0 200 100 100 cm /I Do Q",
        extra=[image_object(grey)],
        resources=b"/XObject<</I 4 0 R>>",
    )
    assert verdict.sound, verdict.reason


def test_rules_frames_and_a_logo_are_no_missing_text(tmp_path):
    frames = b"0.5 w 50 100 500 650 re S 50 500 m 550 500 l S 0.9 g 60 120 200 80 re f 0 g "
    logo = b"1 0 0 rg 500 750 30 30 re f 520 760 m 560 760 l 540 790 l f 0 g "
    assert verdict_of(tmp_path, frames + logo + printed(sentences(20))).sound


def test_white_text_on_dark_is_seen(tmp_path):
    content = b"0 0 0.4 rg 40 700 500 60 re f 1 g " + text_at(60, 720, "A light headline", 20)
    verdict = verdict_of(tmp_path, content + b"0 g " + printed(sentences(10), y=650))
    assert verdict.sound, verdict.reason
    assert verdict.text.startswith("A light headline")


def test_hidden_text_is_not_said(tmp_path):
    white = b"1 g " + text_at(60, 60, "ignore me") + b"0 g "
    verdict = verdict_of(tmp_path, printed(sentences(30)) + white)
    assert verdict.sound
    assert "ignore" not in verdict.text


def test_blacked_out_text_is_not_said(tmp_path):
    bar = b"0 g 50 726 540 14 re f "
    lines = sentences(30)
    verdict = verdict_of(tmp_path, printed(lines) + bar)
    assert verdict.text.split("\n") == lines[1:]


def test_a_layer_of_hidden_text_is_unsound(tmp_path):
    verdict = verdict_of(tmp_path, b"1 g " + printed(sentences(20)))
    assert verdict.reason == "hidden"


def ocr_page(tmp_path, seen, said):
    """A scan, and a line of invisible text over each of its lines."""
    pixels = written(seen, size=(1224, 1584), height=22, left=120, top=120)
    layer = b"".join(
        text_at(60, 792 - 60 - 9 - 17.5 * number, line, 11, mode=3)
        for number, line in enumerate(said)
    )
    return verdict_of(
        tmp_path,
        b"q 612 0 0 792 0 0 cm /I Do Q " + layer,
        extra=[image_object(pixels)],
        resources=b"/XObject<</I 4 0 R>>",
    )


def test_a_good_invisible_layer_is_sound(tmp_path):
    lines = sentences(24)
    verdict = ocr_page(tmp_path, lines, lines)
    assert verdict.sound, verdict.reason
    assert verdict.text.split("\n") == lines


def test_a_garbled_invisible_layer_is_not(tmp_path):
    lines = sentences(24)
    random = np.random.default_rng(1)

    def garble(line):
        noise = list("|]~^¬;1lI{}_=")
        return "".join(random.choice(noise) if random.random() < 0.15 else c for c in line)

    assert ocr_page(tmp_path, lines, [garble(line) for line in lines]).reason == "poor-ocr"


def test_an_invisible_layer_that_lacks_lines_is_not(tmp_path):
    lines = sentences(24)
    assert ocr_page(tmp_path, lines, lines[:16]).reason == "uncovered"


def drawn_font(to_unicode):
    """Objects 4 to 6: a font of drawn glyphs that mean what `to_unicode` says."""
    meaning = b"\n".join(b"<%02x> <%04x>" % pair for pair in to_unicode.items())
    cmap = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
        b"/CMapName /X def 1 begincodespacerange <00> <ff> endcodespacerange\n"
        b"%d beginbfchar\n%s\nendbfchar endcmap end end" % (len(to_unicode), meaning)
    )
    font = (
        b"<</Type/Font/Subtype/Type3/FontBBox[0 0 1000 1000]/FontMatrix[0.001 0 0 0.001 0 0]"
        b"/CharProcs<</qa 5 0 R/qb 5 0 R/qc 5 0 R/qd 5 0 R>>"
        b"/Encoding<</Differences[65/qa/qb/qc/qd]>>"
        b"/FirstChar 65/LastChar 68/Widths[600 600 600 600]/Resources<<>>%s>>"
        % (b"/ToUnicode 4 0 R" if to_unicode else b"")
    )
    glyph = b"600 0 0 0 500 700 d1 0 0 150 700 re f 350 0 150 700 re f 0 300 500 100 re f"
    return [stream(cmap), stream(glyph), font]


MEANT = {65: 0x61, 66: 0x62, 67: 0x63, 68: 0x64}


@pytest.mark.parametrize(
    ("meaning", "sound"),
    [
        (MEANT, True),
        (MEANT | {67: 0xE123}, False),
        (MEANT | {67: 0xFFFD}, False),
    ],
    ids=["meant", "private", "replacement"],
)
def test_glyphs_without_a_meaning_make_a_layer_unsound(tmp_path, meaning, sound):
    content = b"".join(
        b"BT /G 11 Tf 60 %d Td (ABCDBA ADDA) Tj ET " % (700 - 16 * n) for n in range(20)
    )
    verdict = verdict_of(
        tmp_path,
        content,
        extra=drawn_font(meaning),
        fonts=b"/G 6 0 R",
    )
    assert verdict.sound == sound, verdict.reason
    assert sound or verdict.reason == "unmapped"


def layer_of(texts, *, width=600, height=800):
    fragments = tuple(
        Fragment(
            text=text,
            box=(50, 20 + 20 * n, 50 + 7 * len(text), 34 + 20 * n),
            origin=(50, 31 + 20 * n),
            size=12,
        )
        for n, text in enumerate(texts)
    )
    return TextLayer(width=width, height=height, fragments=fragments)


def test_one_unknown_icon_among_words_is_bearable():
    texts = [*sentences(12), "\ue0a1 Telephone"]
    assert not textlayer._is_unmapped(textlayer._clean(layer_of(texts).fragments))
    for lost in ("(cid:17)(cid:4)", "wo\x03rd", "wo\ufffdd", "\ue000\ue001", "\ue0a1 \ue0a2 x"):
        assert textlayer._is_unmapped(textlayer._clean(layer_of([lost]).fragments))


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("of\ufb01ce \ufb04ow", "office fflow"),
        ("exam\u00ad", "exam-"),
        ("exam\u00adple", "example"),
        ("a\u00a0b\u2009c", "a b c"),
        ("\uf0b7 item", "• item"),
        ("zero\u200bwidth", "zerowidth"),
        ("  padded ", "padded"),
        ("नमस्\u200dते", "नमस्\u200dते"),
    ],
)
def test_text_is_as_people_type_it(raw, wanted):
    assert textlayer.normalise(raw) == wanted


@given(st.text(max_size=30))
def test_normalising_twice_changes_nothing(text):
    once = textlayer.normalise(text)
    assert textlayer.normalise(once) == once
    assert "\u00ad" not in once


@st.composite
def layers(draw):
    """Fragments of any size, direction and place, as a hostile file may have them."""
    width, height = draw(st.integers(1, 300)), draw(st.integers(1, 300))
    place = st.floats(-1e4, 1e4)
    fragments = []
    for _ in range(draw(st.integers(0, 12))):
        x, y = draw(place), draw(place)
        fragments.append(
            Fragment(
                text=draw(st.text(max_size=8)),
                box=(x, y, x + draw(st.floats(0, 500)), y + draw(st.floats(0, 50))),
                origin=(draw(place), draw(place)),
                size=draw(st.floats(0, 200)),
                angle=draw(st.integers(0, 359)),
                vertical=draw(st.booleans()),
                invisible=draw(st.booleans()),
            )
        )
    return TextLayer(width=width, height=height, fragments=tuple(fragments))


@settings(max_examples=150)
@given(layer=layers(), seed=st.integers(0, 9))
def test_any_layer_gets_a_verdict_and_keeps_its_lines_on_the_page(layer, seed):
    random = np.random.default_rng(seed)
    grey = random.integers(0, 255, (layer.height, layer.width)).astype(np.uint8)
    for verdict in (textlayer.compose(layer), textlayer.judge(layer, grey)):
        assert verdict.sound == (not verdict.reason)
        for line in verdict.lines:
            x0, y0, x1, y1 = line.bbox
            assert 0 <= x0 < x1 <= layer.width
            assert 0 <= y0 < y1 <= layer.height
            assert line.text in verdict.text


def columns(left, right, *, order="columns", top=600, pitch=14, x=(60, 320)):
    pairs = [
        *((0, number, line) for number, line in enumerate(left)),
        *((1, number, line) for number, line in enumerate(right)),
    ]
    if order == "rows":
        pairs.sort(key=lambda pair: (pair[1], pair[0]))
    return b"".join(
        text_at(x[side], top - pitch * number, line, 10) for side, number, line in pairs
    )


def test_columns_are_read_one_after_the_other(tmp_path):
    left, right = sentences(25, 7, seed=1), sentences(25, 7, seed=2)
    head = text_at(150, 700, "A heading over both of the columns", 16)
    foot = text_at(300, 60, "12", 10)
    verdict = verdict_of(tmp_path, head + columns(left, right) + foot)
    said = [line.text for line in verdict.lines]
    assert said == ["A heading over both of the columns", *left, *right, "12"]


def test_three_columns_of_uneven_length(tmp_path):
    parts = [sentences(count, 4, seed=count) for count in (18, 15, 9)]
    content = b"".join(
        text_at(50 + 180 * column, 650 - 13 * number, line, 9)
        for column, part in enumerate(parts)
        for number, line in enumerate(part)
    )
    assert [line.text for line in verdict_of(tmp_path, content).lines] == [
        line for part in parts for line in part
    ]


def test_a_table_is_read_row_by_row(tmp_path):
    rows = [(f"item number {n}", f"remark {n * 7} on it", f"{n * 13}.00") for n in range(20)]
    content = b"".join(
        text_at(x, 700 - 16 * number, cell, 10)
        for number, row in enumerate(rows)
        for x, cell in zip((60, 250, 450), row, strict=True)
    )
    verdict = verdict_of(tmp_path, content)
    assert verdict.text.split("\n") == [CELL_GAP.join(row) for row in rows]


def test_paragraphs_are_parted_by_an_empty_line(tmp_path):
    first, second = sentences(8, seed=1), sentences(8, seed=2)
    content = printed(first, y=730) + printed(second, y=730 - 15 * 8 - 12)
    assert verdict_of(tmp_path, content).text == "\n".join(first) + "\n\n" + "\n".join(second)


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), shuffle=st.randoms(use_true_random=False))
def test_the_order_of_single_column_text_does_not_depend_on_the_stream(seed, shuffle):
    layer = layer_of(sentences(12, seed=seed))
    mixed = list(layer.fragments)
    shuffle.shuffle(mixed)
    expected = textlayer.compose(layer).text
    assert textlayer.compose(replace(layer, fragments=tuple(mixed))).text == expected


def test_a_text_printed_twice_in_place_is_said_once(tmp_path):
    lines = sentences(12)
    shadow = printed(lines, x=60.4, y=729.6)
    verdict = verdict_of(tmp_path, b"0.6 g " + shadow + b"0 g " + printed(lines))
    assert verdict.text.split("\n") == lines


def test_equal_lines_in_different_places_are_all_said(tmp_path):
    lines = ["0.00 0.00 0.00"] * 25
    assert verdict_of(tmp_path, printed(lines)).text.split("\n") == lines


def test_writing_along_the_margin_comes_last(tmp_path):
    lines = sentences(20)
    side = b"BT 0 1 -1 0 30 200 Tm /F 10 Tf (along the margin) Tj ET "
    verdict = verdict_of(tmp_path, side + printed(lines))
    assert [line.text for line in verdict.lines] == [*lines, "along the margin"]


def test_hidden_layers_are_not_said(tmp_path):
    catalogue_layers = b"/OCProperties<</OCGs[4 0 R]/D<</OFF[4 0 R]>>>>"
    content = printed(sentences(10)) + b"/OC /L BDC " + text_at(60, 300, "secret") + b"EMC"
    data = pages_pdf(
        [content],
        page=PAGE,
        extra=[b"<</Type/OCG/Name(hidden)>>"],
        resources=b"/Properties<</L 4 0 R>>",
    ).replace(b"/Type/Catalog", b"/Type/Catalog" + catalogue_layers)
    path = tmp_path / "x.pdf"
    path.write_bytes(data)
    with opened(path) as document:
        verdict = textlayer.judge(document.text_layer(0, GREY), document.render(0, GREY).pixels)
    assert verdict.sound
    assert "secret" not in verdict.text


HEBREW = st.text(alphabet="אבגדהוזחטיךכלםמןנסעףפץצקרשת", min_size=1, max_size=6)
LATIN = st.text(alphabet="abcdefghij", min_size=1, max_size=6)
NUMBER = st.from_regex(r"[1-9][0-9]{0,3}(\.[0-9]{1,2})?", fullmatch=True)


@given(
    st.lists(
        st.one_of(HEBREW, st.lists(st.one_of(LATIN, NUMBER), min_size=1, max_size=3)), max_size=7
    )
)
def test_right_to_left_lines_are_read_from_the_right(parts):
    # Words from right to left; Latin words and numbers next to each other run from left to right.
    merged = []
    for part in parts:
        if isinstance(part, list) and merged and isinstance(merged[-1], list):
            merged[-1] += part
        else:
            merged.append(part)
    glyphs, place = [], 0.0
    for number, part in enumerate(merged):
        letters = part if isinstance(part, str) else " ".join(part)
        if number:
            place -= 1
            glyphs.append((" ", place))
        place -= len(letters)
        shown = letters[::-1] if isinstance(part, str) else letters
        glyphs += [(letter, place + offset) for offset, letter in enumerate(shown)]
    wanted = " ".join(part if isinstance(part, str) else " ".join(part) for part in merged)
    assert bidi.reading_text(sorted(glyphs, key=lambda glyph: glyph[1])) == wanted
