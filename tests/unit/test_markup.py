"""What models wrap answers in comes off, and no word of a page with it."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from vlmcli.markup import tidy
from vlmcli.markup.doctags import read_doctags
from vlmcli.markup.fences import without_fence
from vlmcli.markup.grid import write_grid
from vlmcli.markup.tables import convert_tables

TASKS = ("text", "markdown", "table", "formula", "layout")
WORDS = st.text("abcdefgh", min_size=1, max_size=5)
DOCTAGS = ("text", "title", "section_header_level_1", "list_item", "formula", "code", "caption")
PIECES = st.sampled_from(
    [
        *("<table>", "</table>", "<tr>", "</tr>", "<td>", "</td>", "<td colspan=9999999>", "<ul>"),
        *(
            "<td rowspan='2'>",
            "<th",
            "<!--",
            "<?",
            "<![",
            "</3",
            "<script>",
            "<otsl>",
            "<fcel>",
            "<ecel>",
            "<nl>",
            "</otsl>",
            "<doctag>",
        ),
        *("<loc_12>", "<|det|>[[1]]<|/det|>", "```", "~~~\n", "\n", "|", "\\", "&amp;", "a < b"),
        *(f"<{name}>" for name in DOCTAGS),
        *(f"</{name}>" for name in DOCTAGS),
    ]
)


def tables_of(markdown: str) -> list[list[list[str]]]:
    """The tables of a Markdown text, as another program reads them."""
    found: list[list[list[str]]] = []
    is_inside = False
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type == "table_open":
            found.append([])
            is_inside = True
        elif token.type == "table_close":
            is_inside = False
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and is_inside:
            parts = [part.content for part in token.children or ()]
            found[-1][-1].append("".join(parts))
    return found


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-h]+[0-9]+", text)


@given(st.lists(PIECES | WORDS).map("".join), st.sampled_from(TASKS))
def test_anything_may_come(text, task):
    assert isinstance(tidy(text, task), str)


@given(st.text(st.characters(exclude_characters="<`~\r")), st.sampled_from(TASKS))
def test_text_without_markup_stays(text, task):
    assert tidy(text, task) == text.strip()


@given(st.lists(st.one_of(PIECES, WORDS), max_size=30), st.sampled_from(["text", "markdown"]))
@example(["<otsl>", "<fcel>", "a", "<otsl>"], "text")
@example(["<otsl>", "<fcel>", "a", "<otsl>", "b", "</otsl>", "<ecel>", "c"], "text")
@example(["<otsl>", "<fcel>", "a", "<caption>", "b", "<nl>", "<fcel>", "c"], "markdown")
def test_no_word_is_lost(pieces, task):
    """Numbered words between tags of all kinds, in any order and never closed."""
    numbered = [
        f" {piece}{i} " if re.fullmatch("[a-h]+", piece) else piece
        for i, piece in enumerate(pieces)
    ]
    text = "".join(numbered)
    assert sorted(words_of(tidy(text, task))) == sorted(words_of(text))


@given(WORDS, st.sampled_from(["", "markdown", "html", "JSON"]), st.sampled_from(["```", "~~~~"]))
def test_a_fence_around_everything_goes(word, language, fence):
    inner = f"{word}\n\n- {word}"
    wrapped = f"\n{fence}{language}\n{inner}\n{fence}\n"
    assert without_fence(wrapped) == inner
    for other in (f"{word}\n{wrapped}", f"{wrapped}\n{word}", f"{fence}{language}\n{inner}"):
        assert without_fence(other) == other.strip()
    twice = f"{wrapped}\n{word}\n{wrapped}"
    assert without_fence(twice) == twice.strip()


def test_a_listing_keeps_its_fence():
    text = "```python\nprint(1)\n```"
    assert tidy(text, "markdown") == text


CELLS = st.builds(
    "{}{}".format,
    st.lists(st.sampled_from(["a", "b", " ", "|", "\\a", "\\|"]), max_size=5).map("".join),
    st.sampled_from(["", "", "\\"]),
)
"""Two backslashes in a row are left out: Markdown, not the table, makes one of them."""


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n))))
def test_a_grid_is_read_back_as_it_was(grid):
    markdown = write_grid(grid, plain=False)
    if not grid:
        assert markdown == ""
        return
    (found,) = tables_of(markdown)
    cleaned = [[" ".join(cell.split()) for cell in row] for row in grid]
    assert found == cleaned


@st.composite
def tilings(draw) -> tuple[list[list[str]], str]:
    """A table whose cells span others: what its grid must be, and its HTML."""
    height, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    taken = [[False] * width for _ in range(height)]
    grid = [[""] * width for _ in range(height)]
    rows = []
    for y in range(height):
        row = "<tr>"
        for x in range(width):
            if taken[y][x]:
                continue
            free = next((i for i in range(x, width) if taken[y][i]), width) - x
            across, down = draw(st.integers(1, free)), draw(st.integers(1, height - y))
            for dy in range(down):
                for dx in range(across):
                    taken[y + dy][x + dx] = True
            grid[y][x] = f"c{y}{x}"
            tag = draw(st.sampled_from(["td", "th", "TD"]))
            end = draw(st.sampled_from([f"</{tag}>", ""]))
            row += f'<{tag} colspan="{across}" rowspan={down}><b>{grid[y][x]}</b>{end}'
        rows.append(row + draw(st.sampled_from(["</tr>", ""])))
    return grid, f"<table border=1>\n<tbody>{''.join(rows)}</tbody></table>"


@given(tilings())
def test_spans_keep_their_places(found):
    grid, html = found
    markdown = convert_tables(f"before\n{html}\nafter", plain=False)
    assert tables_of(markdown) == [grid]
    assert markdown.startswith("before\n\n|") and markdown.endswith("|\n\nafter")


@pytest.mark.parametrize(
    "html",
    [
        "<table><tr><td><table><tr><td>x</td></tr></table></td></tr></table>",
        "<table><tr><td><ul><li>x</ul></td></tr></table>",
        "<table><caption>x</caption><tr><td>y</td></tr></table>",
        "<table><tr><td>never closed",
        "<table>" + "<tr>" + "<td colspan=1000>x" * 30 + "</table>",
        "<table></table>",
        "<table><tr><td swallowed </table>",
        "<table><tr><td>x<!-- y --></td></tr></table>",
    ],
)
def test_what_no_grid_can_say_stays_as_it_is(html):
    assert convert_tables(html, plain=False) == html


def test_cells_are_decoded_and_escaped():
    html = "<table><tr><th>a|b</th><th>1 &lt; 2</th></tr><tr><td>x<br>y</td></tr></table>"
    assert tidy(html, "table").splitlines() == [
        "| a\\|b | 1 < 2 |",
        "| --- | --- |",
        "| x y |  |",
    ]
    assert tidy(html, "text").splitlines() == ["a|b  1 < 2", "x y"]
    assert tidy(html, "layout") == html


PAGE = (
    "<doctag><page_header><loc_1><loc_2><loc_30><loc_4>Head</page_header>"
    "<section_header_level_1><loc_1>Part</section_header_level_1><text>"
    "<loc_3>a < b, <b>c</b></text>"
    "<unordered_list><list_item>one</list_item><list_item><loc_1>two</list_item></unordered_list>"
    "<ordered_list><list_item>first</list_item></ordered_list>"
    "<otsl><loc_1><caption>Cap</caption><ched>x<ched>y<nl><fcel>1|2<lcel><nl></otsl>"
    "<formula>x^2</formula><code><_Python_>f()</code><picture><loc_1></picture></doctag>"
)


def test_doctags_become_markdown_or_text():
    assert tidy(PAGE, "markdown").split("\n\n") == [
        "Head",
        "## Part",
        "a < b, <b>c</b>",
        "- one\n- two",
        "1. first",
        "Cap",
        "| x | y |\n| --- | --- |\n| 1\\|2 |  |",
        "$$\nx^2\n$$",
        "```\nf()\n```",
    ]
    plain = tidy(PAGE, "text")
    assert "##" not in plain and "x  y\n1|2" in plain and "$$" not in plain
    assert tidy(PAGE, "layout") == PAGE


@given(st.integers(0, len(PAGE)))
def test_a_page_that_was_cut_short_has_what_was_written(end):
    whole = read_doctags(PAGE, plain=True)
    cut = read_doctags(PAGE[:end], plain=True)
    known = set(re.findall(r"\w+", whole))
    pieces = re.sub(r"<[^>]*$", "", PAGE[:end])
    expected = re.findall(r"\w+", re.sub(r"</?[a-z_0-9A-Z]+>", " ", pieces))
    assert [word for word in expected if word in known and word not in cut] == []


def test_places_are_taken_out_of_text():
    text = (
        "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n# Head\n\n"
        "<loc0012><loc0345>word <|box_start|>(1,2),(3,4)<|box_end|>end"
    )
    assert tidy(text, "markdown") == "# Head\n\nword end"
