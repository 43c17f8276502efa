"""Which pages are marked because the built-in model was unsure of them."""

from hypothesis import given
from hypothesis import strategies as st

from vlmcli.joining import doubts
from vlmcli.results import Line

MARKED = ("low-confidence",)


def line(confidence, length=10):
    return Line(bbox=(0, 0, 9, 9), text="x" * length, confidence=confidence)


lines = st.lists(st.builds(line, st.none() | st.floats(0, 1), st.integers(0, 60)), max_size=20)


def test_characters_count_and_not_lines():
    noise = [line(0.2, 2)] * 9
    assert doubts(noise) == MARKED
    assert doubts([*noise, line(0.98, 60)]) == ()
    assert doubts([line(0.98, 2)] * 9 + [line(0.2, 60)]) == MARKED


def test_what_has_no_confidence_is_not_doubted():
    assert doubts([]) == doubts([line(None)] * 3) == doubts([line(0.1, 0)]) == ()


@given(lines, st.integers(1, 60))
def test_a_sure_line_more_never_makes_a_page_doubtful(found, length):
    if doubts([*found, line(1.0, length)]):
        assert doubts(found)
    if doubts(found):
        assert doubts([*found, line(0.0, length)]) == MARKED
