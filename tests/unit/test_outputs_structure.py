"""Markdown's structure: found where lines say so, and never at the cost of the text."""

import html
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from record_strategies import page

from vlmcli.outputs.markdown import MarkdownFormatter
from vlmcli.outputs.structure import structure_of
from vlmcli.results import Line, PageRecord

MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})
PROSE = "the quick brown fox jumps over the lazy dog and runs on"
SIZE, PITCH, LEFT, LETTER = 30, 42, 100, 14


class Sheet:
    """A page of 1,000 × 1,400 pixels, written row by row from the top."""

    def __init__(self, *, top: int = 300, confidence: float | None = None) -> None:
        self.top, self.confidence = top, confidence
        self.lines: list[Line] = []
        self.text = ""

    def row(
        self, text: str, *, x: int = LEFT, size: int = SIZE, gap: int = 0, to: int | None = None
    ) -> "Sheet":
        """A row at `x`, `gap` pixels further down than usual, its letters stretched up to `to`."""
        self.top += gap
        right = to or x + round(LETTER * len(text) * size / SIZE)
        self.lines.append(
            Line(bbox=(x, self.top, right, self.top + size), text=text, confidence=self.confidence)
        )
        self.text += ("\n\n" if gap else "\n") * bool(self.text) + text
        self.top += PITCH + size - SIZE
        return self

    def prose(self, *rows: str, x: int = LEFT, right: int = 900) -> "Sheet":
        """Rows as wide as the column, but for the last."""
        for row in rows[:-1]:
            self.row(row, x=x, to=right)
        return self.row(rows[-1], x=x)

    def record(self, number: int = 1) -> PageRecord:
        return page(number=number, text=self.text, lines=tuple(self.lines), width=1000, height=1400)


def blocks(sheet: Sheet) -> list[tuple]:
    """Kind and lines, or cells, of the page's blocks."""
    found = structure_of(sheet.record())
    assert found is not None
    return [(block.kind, *(block.cells or block.lines)) for block in found.blocks]


def markdown(*records: PageRecord) -> str:
    formatter = MarkdownFormatter()
    return "".join(formatter.render(record) for record in records)


def test_rows_of_a_paragraph_are_joined_and_broken_words_mended():
    sheet = Sheet().prose(f"{PROSE} un-", "til it is tired, and can no lon-", "ger jump.")
    assert blocks(sheet) == [("paragraph", f"{PROSE} until it is tired, and can no longer jump.")]


def test_hyphens_that_belong_to_the_word_stay():
    sheet = Sheet().prose(PROSE, "a well-known one, and a well-", "known other, his father-in-")
    sheet.row("law met the Linux-", to=900).row("Kernel and left.")
    (block,) = blocks(sheet)
    assert "a well-known other, his father-in-law met the Linux-Kernel and left." in block[1]


@pytest.mark.parametrize("confidence", [None, 0.9])
def test_paragraphs_begin_where_rows_are_set_in(confidence):
    sheet = Sheet(confidence=confidence)
    for _ in range(2):
        sheet.row(PROSE, x=LEFT + 40, to=900).prose(PROSE, PROSE, "and the end.")
    assert [kind for kind, *_ in blocks(sheet)] == ["paragraph", "paragraph"]


def test_a_paragraph_goes_on_in_the_next_column():
    sheet = Sheet()
    for _ in range(3):
        sheet.row(PROSE[:34], to=480)
    sheet.row("and here all the words are bro-", to=480)
    sheet.top = 300 - 80
    sheet.row("ken by the column's end,", x=520, to=900, gap=80)
    sheet.row(PROSE[:34], x=520, to=900).row("and end.", x=520)
    (block,) = blocks(sheet)
    assert "all the words are broken by the column's end," in block[1]


def test_headings_are_larger_and_have_levels():
    sheet = Sheet().row("A Title", size=64).prose(PROSE, PROSE, "end.")
    sheet.row("A chapter", size=45, gap=30).prose(PROSE, PROSE, "end.")
    sheet.row("A section", size=37, gap=30).prose(PROSE, PROSE, "end.")
    text = markdown(sheet.record())
    assert re.findall(r"^#+ .*$", text, re.MULTILINE) == [
        "# A Title",
        "## A chapter",
        "### A section",
    ]


def test_a_noisy_box_in_a_paragraph_is_no_heading():
    sheet = Sheet(confidence=0.9).row(PROSE, to=900)
    sheet.lines.append(
        Line(bbox=(LEFT, sheet.top - 8, 900, sheet.top + 46), text=PROSE, confidence=0.9)
    )
    sheet.text += f"\n\n{PROSE}"
    sheet.top += PITCH
    sheet.row(PROSE, to=900).row("and the end.")
    assert [kind for kind, *_ in blocks(sheet)] == ["paragraph"]


def test_lists():
    sheet = Sheet().prose(PROSE, "and these:")
    sheet.row("• the first of them is so long", to=900).row("that it goes on", x=LEFT + 30)
    sheet.row("• the second").prose(PROSE, PROSE, "then:")
    sheet.row("1. one", gap=30).row("2. two").row("3. three")
    text = markdown(sheet.record())
    assert "- the first of them is so long that it goes on\n- the second" in text
    assert "1. one\n2. two\n3. three\n" in text


def test_a_number_alone_makes_no_list():
    sheet = Sheet().row("1984. It was a year.", gap=30).prose(PROSE, PROSE, "end.")
    assert "1984" in rendered(markdown(sheet.record()))
    assert "<ol" not in MARKDOWN.render(markdown(sheet.record()))


def test_tables_are_rows_of_as_many_cells():
    sheet = Sheet().row("Name  Sum", to=600)
    for name, amount in (("Bread", "2.00"), ("Milk | cream", "3.50"), ("Tea", "4.75")):
        sheet.row(f"{name}  {amount}", to=600)
    text = markdown(sheet.record())
    assert "| Name | Sum |\n| --- | --- |\n| Bread | 2.00 |\n| Milk \\| cream | 3.50 |" in text
    assert MARKDOWN.render(text).count("<td>") == 6


def test_rows_of_cells_that_do_not_agree_stay_rows():
    sheet = Sheet().row("a  b  c", to=600).row("d  e", to=600).row("f  g  h  i", to=600)
    text = markdown(sheet.record())
    assert "<table>" not in MARKDOWN.render(text)
    assert "a  b  c" in text
    assert "d  e" in text


def test_addresses_and_verses_keep_their_lines():
    address = Sheet().row("Azure Interior").row("4557 De Silva St").row("Fremont CA 94538")
    assert blocks(address) == [
        ("paragraph", "Azure Interior", "4557 De Silva St", "Fremont CA 94538")
    ]
    verses = ["Who rides so late through night and wind", "It is the father with his only child"]
    poem = Sheet()
    for verse in verses * 2:
        poem.row(verse, to=800)
    assert blocks(poem) == [("paragraph", *verses, *verses)]


def running(number: int) -> PageRecord:
    sheet = Sheet(top=60).row("THE STORY OF A FOX", x=350)
    sheet.top = 300
    sheet.prose(PROSE, PROSE, "end.")
    sheet.top = 1330
    return sheet.row(f"{number}", x=480, gap=1).record(number)


def test_running_heads_and_page_numbers_become_comments():
    first, second = (
        markdown(running(7)),
        markdown(running(7), running(8)).split("<!-- page 8 -->")[1],
    )
    assert "<!-- footer: 7 -->" in first
    assert "\nTHE STORY OF A FOX\n" in first
    assert "<!-- header: THE STORY OF A FOX -->" in second
    assert "THE STORY" not in rendered(second)


def test_a_page_that_is_only_a_number_keeps_it():
    sheet = Sheet(top=1330).row("12", x=480)
    assert rendered(markdown(sheet.record())).strip() == "12"


@pytest.mark.parametrize(
    "record",
    [
        page(text="one\ntwo"),
        page(text="one\nelse", lines=(Line(bbox=(0, 0, 50, 10), text="one"),)),
        page(text="わたくし", lines=(Line(bbox=(0, 0, 50, 10), text="わたくし"),)),
        page(text="مرحبا", lines=(Line(bbox=(0, 0, 50, 10), text="مرحبا"),)),
        page(text="down", lines=(Line(bbox=(0, 0, 10, 50), text="down"),)),
    ],
)
def test_pages_that_cannot_be_told_keep_their_lines(record):
    assert structure_of(record) is None
    assert rendered(markdown(record)).strip() == record.text


def rendered(text: str) -> str:
    """What a reader sees."""
    tags = re.sub(r"<!--.*?-->|<[^>]*>", "", MARKDOWN.render(text), flags=re.DOTALL)
    return html.unescape(tags)


def letters(text: str) -> str:
    return "".join(char for char in text if char.isalpha())


WORDS = st.text(st.sampled_from("ab A1.)(#*_-+=`~<>&;:|[]!\\\"'•—/x"), min_size=1, max_size=30)
ROWS = st.lists(
    st.tuples(
        WORDS,
        st.integers(0, 600),
        st.sampled_from([20, 30, 31, 60]),
        st.sampled_from([0, 0, 0, 40]),
        st.none() | st.integers(650, 1000),
    ),
    max_size=12,
)


def written(rows: Sequence[tuple], confidence: float | None) -> Sheet:
    sheet = Sheet(top=30, confidence=confidence)
    for text, x, size, gap, to in rows:
        if text.strip():
            sheet.row(text.strip(), x=x, size=size, gap=gap, to=to)
    return sheet


@given(ROWS, st.sampled_from([None, 0.8]))
def test_every_letter_is_there_in_order_whatever_stands_where(rows, confidence):
    record = written(rows, confidence).record()
    text = markdown(record)
    in_comments = "".join(re.findall(r"^<!-- (?:header|footer): (.*) -->$", text, re.MULTILINE))
    assert letters(rendered(text)) in letters(record.text)
    assert len(letters(rendered(text) + in_comments)) == len(letters(record.text))


@given(ROWS)
def test_only_structure_becomes_markup(rows):
    shown = MARKDOWN.render(markdown(written(rows, None).record()))
    found = set(re.findall(r"<(\w+)", re.sub(r"<!--.*?-->", "", shown)))
    allowed = {*("p", "br", "h1", "h2", "h3", "ul", "ol", "li"), *("table", "thead", "tbody")}
    assert found <= allowed | {"tr", "th", "td"}
