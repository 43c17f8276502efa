"""Page text: a printed line a line, cells two spaces apart, an empty line between blocks."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from vlmcli.documents.lines import join_text


@dataclass(frozen=True)
class Place:
    block: int
    row: int
    cell: int | None = None
    glued: bool = False


def test_lines_blocks_and_cells() -> None:
    places = [Place(0, 0), Place(1, 1), Place(1, 2), Place(2, 3, 0), Place(2, 3, 1), Place(2, 4, 1)]
    texts = ["Title", "one", "two", "Apples", "3", "4"]
    assert join_text(places, texts) == "Title\n\none\ntwo\n\nApples  3\n4"


def test_lines_of_one_cell_are_joined_with_a_space() -> None:
    places = [Place(0, 0, 0), Place(0, 0, 1), Place(0, 0, 1), Place(0, 0, 2)]
    assert join_text(places, ["a", "b", "c", "d"]) == "a  b c  d"


def test_an_initial_is_joined_without_a_space() -> None:
    places = [Place(0, 0, 0, glued=True), Place(0, 0, 1), Place(0, 1)]
    assert join_text(places, ["S", "he moped.", "She sighed."]) == "She moped.\nShe sighed."


def test_lines_that_say_nothing_leave_no_trace() -> None:
    places = [Place(0, 0), Place(1, 1), Place(2, 2, 0), Place(2, 2, 1)]
    assert join_text(places, ["a", " ", "", "b"]) == "a\n\nb"
    assert join_text([], []) == ""
    assert join_text(places, ["", "", " ", "\t"]) == ""


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.text(" abé\t", max_size=6)), max_size=12
    )
)
def test_every_word_stays_in_order(entries: list[tuple[int, int, str]]) -> None:
    block = row = 0
    places = []
    for new_block, new_row, _ in entries:
        block += new_block == 2
        row += new_row > 0 or new_block == 2
        places.append(Place(block, row, new_row))
    texts = [text for _, _, text in entries]
    joined = join_text(places, texts)
    assert joined.split() == " ".join(texts).split()
    assert "\n\n\n" not in joined
    assert joined == joined.strip()
