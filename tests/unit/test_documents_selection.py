"""Page selections: every well-formed one gives its pages, everything else a usage error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.documents.selection import parse_pages, parse_ranges
from vlmcli.errors import UsageError, VlmcliError


@st.composite
def selections(draw):
    """A number of pages, a selection within it, and the pages that it names."""
    num_pages = draw(st.integers(1, 50))
    parts, pages = [], set()
    for _ in range(draw(st.integers(1, 6))):
        first = draw(st.integers(1, num_pages))
        last = draw(st.integers(first, num_pages))
        shown = {page: draw(st.sampled_from(names(page, num_pages))) for page in (first, last)}
        space = draw(st.sampled_from(["", " "]))
        if first == last and draw(st.booleans()):
            parts.append(f"{space}{shown[first]}")
        else:
            parts.append(f"{shown[first]}{space}-{space}{shown[last]}")
        pages |= set(range(first, last + 1))
    return num_pages, ",".join(parts), sorted(pages)


def names(page, num_pages):
    return [str(page), f"0{page}"]


@given(selections())
def test_a_selection_gives_its_pages_once_and_ascending(case):
    num_pages, text, pages = case
    assert parse_pages(text, num_pages) == tuple(pages)


@given(st.integers(1, 40), st.integers(1, 40))
def test_end_is_the_last_page(first, num_pages):
    if first <= num_pages:
        assert parse_pages(f"{first}-end", num_pages) == tuple(range(first, num_pages + 1))
    assert parse_pages("end", num_pages) == (num_pages,)


@given(st.text(alphabet="0123456789-, end", max_size=12), st.integers(1, 30))
def test_any_text_is_a_selection_or_a_usage_error(text, num_pages):
    try:
        pages = parse_pages(text, num_pages)
    except UsageError as error:
        assert error.message
    else:
        assert pages
        assert all(1 <= page <= num_pages for page in pages)


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "0", "0-3", "3-1", "end-2", "-3", "3-", "1..4", "x", "1-2-3", "²"]
)
def test_nonsense_is_refused_before_a_document_is_open(text):
    with pytest.raises(VlmcliError) as caught:
        parse_ranges(text)
    assert caught.value.exit_code == 2
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["8", "3-8", "8-end", "1," + "9" * 5000])
def test_pages_beyond_the_end_name_the_count(text):
    with pytest.raises(UsageError, match="7 pages"):
        parse_pages(text, 7)
