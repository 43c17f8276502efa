"""The parts of line finding: pairs, links, baselines, frames, necks, letter size."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vlmcli.documents.lines.baseline import fit_baseline
from vlmcli.documents.lines.frame import Turn, View, deskewed, identity, measure_skew, turned
from vlmcli.documents.lines.marks import label, letter_size, marks_from, median
from vlmcli.documents.lines.pairs import chains, grouped_median, mutual_links, row_pairs

box = st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(1, 40), st.integers(1, 60))


@given(st.lists(box, min_size=2, max_size=30), st.integers(0, 50), st.integers(5, 90))
def test_row_pairs_miss_none_and_name_none_twice(
    boxes: list[tuple[int, int, int, int]], reach: int, stripe: int
) -> None:
    x0, y0, width, height = np.array(boxes, np.float64).T
    x1, y1 = x0 + width, y0 + height
    i, j = row_pairs(x0, y0, x1, y1, reach=np.full(len(boxes), float(reach)), stripe=float(stripe))
    pairs = list(zip(i.tolist(), j.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    both_ways = set(pairs) | {(b, a) for a, b in pairs}
    for a in range(len(boxes)):
        for b in range(a + 1, len(boxes)):
            level = min(y1[a], y1[b]) - max(y0[a], y0[b]) > 0
            left, right = (a, b) if x0[a] <= x0[b] else (b, a)
            if level and x0[right] <= x1[left] + reach:
                assert (a, b) in both_ways


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 5)),
        max_size=30,
        unique_by=lambda pair: pair[:2],
    )
)
def test_links_are_mutual_choices(pairs: list[tuple[int, int, int]]) -> None:
    pairs = [pair for pair in pairs if pair[0] < pair[1]]
    i, j, cost = np.array(pairs, np.int64).reshape(-1, 3).T
    following = mutual_links(i, j, cost.astype(np.float64), 10)
    taken = following[following >= 0]
    assert len(set(taken.tolist())) == len(taken)
    for left, right in enumerate(following.tolist()):
        if right < 0:
            continue
        own = [c for a, b, c in pairs if (a, b) == (left, right)]
        assert own[0] == min(c for a, _, c in pairs if a == left)
        assert own[0] == min(c for _, b, c in pairs if b == right)
    paths = chains(following)
    assert sorted(np.concatenate(paths).tolist()) == list(range(10))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=15))
def test_medians_are_values(values: list[int]) -> None:
    array = np.array(values, np.float64)
    assert median(array) == sorted(values)[len(values) // 2]
    groups = np.zeros(len(values), np.int64)
    assert grouped_median(groups, array, 2).tolist() == [sorted(values)[(len(values) - 1) // 2], 0]


@given(
    slope=st.floats(-0.05, 0.05),
    bend=st.sampled_from([0.0, 6e-5, -6e-5]),
    tails=st.sets(st.integers(0, 59), max_size=12),
)
def test_baselines_pass_under_the_letters_that_stand_on_them(
    slope: float, bend: float, tails: set[int]
) -> None:
    # A line that begins or ends with descenders alone has no foot to go by there.
    assume(all(len(tails & set(part)) <= 3 for part in (range(8), range(52, 60))))
    x = np.arange(60) * 14.0
    along = x + 5 - (x[-1] + 10) / 2
    foot = 100 + slope * along + bend * along**2
    rows = np.column_stack((x, foot - 10, x + 10, foot, np.full(60, 60.0)))
    for tail in tails:
        rows[tail, 3] += 5
    base = fit_baseline(marks_from(rows), np.arange(60), 10.0)
    assert np.abs(base.at(x + 5) - foot).max() < 1.0
    assert base.ascent == pytest.approx(10, abs=1.2)
    assert base.descent <= 7.5


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
@given(scale=st.floats(0.5, 4), degrees=st.floats(-5, 5))
def test_frames_lead_back_to_the_page(turn: Turn, scale: float, degrees: float) -> None:
    spot = np.zeros((60, 90), np.uint8)
    spot[20:23, 31:34] = 200
    view = View(frame=identity(90, 60, scale), dark=spot, light=spot.copy())
    view = deskewed(turned(view, turn), degrees)
    assert view.dark.shape == (view.frame.height, view.frame.width)
    assert view.light is not None and view.light.shape == view.dark.shape
    y, x = np.nonzero(view.dark > 60)
    weights = view.dark[y, x].astype(np.float64)
    centre = np.array([[np.average(x, weights=weights), np.average(y, weights=weights)]])
    expected = (np.array([32, 21]) + 0.5) * scale - 0.5
    assert np.abs(view.frame.to_page(centre) - expected).max() < 0.7 * scale
    assert view.frame.scale == pytest.approx(scale)


@given(st.floats(-5, 5), st.integers(3, 12))
def test_skew_is_measured_on_feet(degrees: float, num_rows: int) -> None:
    x, row = np.meshgrid(np.arange(40) * 20.0, np.arange(num_rows) * 31.0)
    foot = row + x * np.tan(np.radians(degrees))
    rng = np.random.default_rng(2)
    foot = foot + np.where(rng.random(foot.shape) < 0.1, 4, 0)
    flat = np.column_stack([v.ravel() for v in (x, foot - 10, x + 9, foot, np.full(x.shape, 50.0))])
    assert measure_skew(marks_from(flat), 10.0) == pytest.approx(degrees, abs=0.15)


def test_letter_size_is_the_x_height_in_spite_of_capitals_and_specks() -> None:
    heights = [10] * 50 + [15] * 40 + [4] * 90 + [60] * 2
    rows = np.array([(0, 0, 0.8 * h, h, 0.4 * h * h) for h in heights], np.float64)
    assert letter_size(marks_from(rows)) == pytest.approx(10, abs=1)
    assert letter_size(marks_from(np.zeros((0, 5)))) == 0


def test_labels_count_from_one_in_the_order_of_the_marks() -> None:
    picture = np.zeros((8, 12), np.uint8)
    picture[1:3, 1:4] = 1
    picture[5:7, 6:11] = 1
    marks, labels = label(picture)
    assert len(marks) == 2
    for index in range(2):
        y, x = np.nonzero(labels == index + 1)
        assert (x.min(), y.min(), x.max() + 1, y.max() + 1) == (
            marks.x0[index],
            marks.y0[index],
            marks.x1[index],
            marks.y1[index],
        )
