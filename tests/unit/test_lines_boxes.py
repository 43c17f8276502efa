"""Boxes that somebody else has found come into the order in which people read them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.documents.lines import join_text
from vlmcli.documents.lines.boxes import order_boxes

PITCH, HEIGHT = 40, 28


def box(x0: float, y0: float, width: float, height: float = HEIGHT) -> np.ndarray:
    return np.array([[x0, y0], [x0 + width, y0], [x0 + width, y0 + height], [x0, y0 + height]])


def page() -> tuple[list[np.ndarray], list[str]]:
    """A heading across the page, two columns of prose, a table of three rows with three cells."""
    quads, texts = [box(100, 40, 1200, 60)], ["heading"]
    for column, x0 in enumerate((100, 760)):
        for row in range(12):
            quads.append(box(x0, 200 + PITCH * row, 580))
            texts.append(f"prose {column} {row} " + "word " * 8)
    for row in range(3):
        for cell, x0 in enumerate((100, 600, 1100)):
            quads.append(box(x0, 1000 + PITCH * row, 90))
            texts.append(f"cell {row} {cell}")
    return quads, texts


def turned(quads: list[np.ndarray], degrees: float) -> np.ndarray:
    angle = np.radians(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return np.array(quads) @ turn


def read(quads: np.ndarray, texts: list[str]) -> str:
    placed = order_boxes(quads, texts)
    return join_text([place for _, place in placed], [texts[i] for i, _ in placed])


def test_columns_one_after_the_other_and_tables_row_by_row():
    quads, texts = page()
    lines = [line for line in read(np.array(quads), texts).splitlines() if line]
    assert lines[0] == "heading"
    prose = [line.split(" word")[0] for line in lines if line.startswith("prose")]
    assert prose == [f"prose {column} {row}" for column in range(2) for row in range(12)]
    rows = [line for line in lines if line.startswith("cell")]
    assert rows == ["  ".join(f"cell {row} {cell}" for cell in range(3)) for row in range(3)]


@given(st.permutations(range(34)), st.floats(-4, 4))
def test_neither_their_order_nor_a_turned_page_matters(order, degrees):
    quads, texts = page()
    assert len(quads) == len(order)
    moved = turned([quads[i] for i in order], degrees)
    assert read(moved, [texts[i] for i in order]) == read(np.array(quads), texts)


@given(
    st.lists(
        st.tuples(*(st.floats(0, 2000) for _ in range(8)), st.sampled_from(["", "a", "word x"])),
        max_size=12,
    )
)
def test_every_box_comes_once_whatever_its_shape(found):
    quads = np.array([corners[:8] for corners in found]).reshape(-1, 4, 2)
    placed = order_boxes(quads, [corners[8] for corners in found])
    assert sorted(i for i, _ in placed) == list(range(len(found)))
