"""Drafts of a page, cut up for its lines: what is at a crop's place, or the line it is part of."""

from hypothesis import given
from hypothesis import strategies as st

from vlmcli.readers.drafts import crop_drafts, page_drafts, text_at
from vlmcli.reading import Draft
from vlmcli.results import Line


def encode(text: str) -> list[int]:
    return list(text.encode())


def line(text: str, x0: int, y0: int, x1: int, y1: int) -> Line:
    return Line(bbox=(x0, y0, x1, y1), text=text)


TABLE = (
    line("Total", 10, 100, 60, 120),
    line("42.00", 200, 101, 250, 121),
    line("a long line over the whole width", 10, 140, 400, 160),
)


def test_a_crop_gets_the_lines_at_its_place_from_left_to_right() -> None:
    assert text_at(TABLE, (8, 98, 260, 124)) == "Total 42.00"
    assert text_at(TABLE[::-1], (8, 98, 260, 124)) == "Total 42.00"
    assert text_at(TABLE, (190, 98, 260, 124)) == "42.00"
    assert text_at(TABLE, (8, 105, 60, 118)) == "Total"


def test_a_part_of_a_line_gets_the_whole_line() -> None:
    assert text_at(TABLE, (10, 139, 120, 161)) == TABLE[2].text


def test_where_the_draft_has_nothing_there_is_none() -> None:
    assert text_at(TABLE, (300, 98, 380, 124)) == ""
    assert text_at(TABLE, (8, 300, 380, 320)) == ""
    assert text_at((), (0, 0, 10, 10)) == ""
    drafts = [Draft(name="text-layer", text="x", lines=TABLE)]
    assert crop_drafts(drafts, (8, 300, 380, 320), encode) == ()
    assert page_drafts([Draft(name="text-layer", text="")], encode) == ()


def test_every_source_comes_under_its_name_with_its_weight() -> None:
    drafts = [
        Draft(name="text-layer", text="Total 42.00", lines=TABLE),
        Draft(name="near-duplicate", text="Total 41.00", lines=(line("Total", 9, 99, 61, 121),)),
    ]
    whole = page_drafts(drafts, encode)
    assert [(one.name, bytes(one.token_ids)) for one in whole] == [
        ("text-layer", b"Total 42.00"),
        ("near-duplicate", b"Total 41.00"),
    ]
    cut = crop_drafts(drafts, (8, 98, 62, 122), encode)
    assert [(one.name, bytes(one.token_ids)) for one in cut] == [
        ("text-layer", b"Total"),
        ("near-duplicate", b"Total"),
    ]
    assert whole[0].weight > whole[1].weight


@given(st.permutations(range(6)), st.integers(0, 5))
def test_the_order_of_a_drafts_lines_does_not_matter(order: list[int], row: int) -> None:
    lines = [line(f"line {n}", 10, 30 * n, 300, 30 * n + 20) for n in order]
    assert text_at(lines, (5, 30 * row - 2, 310, 30 * row + 22)) == f"line {row}"
