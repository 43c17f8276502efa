"""Words that a misread one may have been: near, in the same capitals, and only where of use."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vlmcli.checkpoint import built_in_path
from vlmcli.errors import ModelError
from vlmcli.readers.spelling import Words, suggestions

LIST = (
    "darkness",
    "difficult",
    "don't",
    "mass",
    "night",
    "screech",
    "the",
    "under",
    "unsure",
    "way",
)
WORDS = Words(LIST)
letters = st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=8)


def distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        before, row = row, [i]
        for j, b in enumerate(second, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
    return row[-1]


@given(st.lists(letters, unique=True), st.lists(letters))
def test_a_word_is_known_if_it_is_in_the_list(listed: list[str], asked: list[str]) -> None:
    assert Words(listed).known(asked + listed) == [w for w in asked + listed if w in listed]


@given(st.sampled_from(LIST), st.integers(0, 20), st.sampled_from("abcdefghijklmnopqrstuvwxyz10"))
def test_a_word_with_one_wrong_letter_leads_to_the_right_one(
    word: str, place: int, letter: str
) -> None:
    place %= len(word)
    wrong = word[:place] + letter + word[place + 1 :]
    assume(wrong not in LIST)
    assume(word[place] != "'")  # a lost apostrophe is not looked for
    text = f"the night {wrong} way"
    found = suggestions(text, WORDS)
    assert (10, 10 + len(wrong), word) in found
    assert all(text[start:stop] not in LIST for start, stop, _ in found)


@given(st.lists(st.one_of(st.sampled_from(LIST), letters), max_size=8).map(" ".join))
def test_what_is_suggested_is_a_word_one_letter_away(text: str) -> None:
    for start, stop, other in suggestions(text, WORDS):
        assert other in LIST
        assert text[start:stop] not in LIST
        assert distance(text[start:stop], other) == 1


def test_names_are_known_and_only_long_ones_are_suggested_for_what_is_like_a_name() -> None:
    words = Words(["the", "night", "mercy", "Mary", "Mrs", "Joseph"])
    assert words.known(["mary", "mrs", "joseph", "mercy", "josepn"]) == [
        *("mary", "mrs", "joseph", "mercy")
    ]
    said = suggestions("the night Mrs Mary the Mry Josepn josepn JOSEPN Mercv", words)
    assert [other for _, _, other in said] == ["Joseph", "JOSEPH", "Mercy"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UNDEB THE NIGHT", ["UNDER"]),
        ("Darkmess under the night", ["Darkness"]),
        ("screech in the darkmess.", ["darkness"]),
        ("the night UnSure", ["unsure", "Unsure"]),
        ("the night don’l", ["don’t"]),
        ("the nigh7 way", ["night"]),
        # Words of the list, abbreviations, identifiers, and what is no word of three letters.
        ("under the NIGHT Mass", []),
        ("the night WAI", []),
        ("the night n1gh7 w4y2 1600", []),
        ("the night th x", []),
        # Too little of the line is in the list's language to judge by it.
        ("die Nacht mit darkmess the", []),
        ("die darkmess", []),
        ("darkmess", []),
        ("", []),
    ],
)
def test_capitals_apostrophes_and_figures(text: str, expected: list[str]) -> None:
    assert [other for _, _, other in suggestions(text, WORDS)] == expected


def test_a_list_that_cannot_be_read_is_the_models_fault(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"words\.txt"):
        Words.load(tmp_path / "words.txt")
    (tmp_path / "words.txt").write_bytes(b"\xffa\n")
    with pytest.raises(ModelError, match=r"words\.txt"):
        Words.load(tmp_path / "words.txt")


def test_the_built_in_list_is_sorted_lower_case_and_comes_with_its_licence() -> None:
    listed = (built_in_path() / "words.txt").read_text(encoding="ascii").splitlines()
    assert listed == sorted(set(listed)) and len(listed) > 50_000
    assert all(word[1:] == word[1:].lower() and len(word) >= 3 for word in listed)
    assert not {word.lower() for word in listed if word[0].isupper()} & set(listed)
    licence = (built_in_path() / "words.copyright").read_text(encoding="utf-8")
    assert "Permission to use, copy, modify, distribute and sell these word" in licence
