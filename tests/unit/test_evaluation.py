"""Error rates are what their definitions say; intervals hold them; equal runs do not differ."""

import unicodedata
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from vlmcli.evaluation.measures import Normalisation, page_errors
from vlmcli.evaluation.page import comparison_page
from vlmcli.evaluation.pages import PagePair, pair_up
from vlmcli.evaluation.statistics import compare, summarise

texts = st.text("ab é.\n", max_size=30)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=8)
FEW = settings(max_examples=40, deadline=None)


def errors_of(text: str, truth: str, **normalisation):
    pair = PagePair(document="d", page=1, text=text, truth=truth)
    return page_errors(pair, Normalisation(**normalisation))


def distance(first, second) -> int:
    """Levenshtein's, by the textbook."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


@FEW
@given(texts, texts)
def test_counts_are_their_definitions(text, truth):
    clean, true = " ".join(text.split()), " ".join(truth.split())
    found = errors_of(text, truth)
    assert found.character_errors == distance(true, clean)
    assert found.word_errors == distance(true.split(), clean.split())
    assert found.common_words == (Counter(true.split()) & Counter(clean.split())).total()
    assert (found.characters, found.words) == (len(true), len(true.split()))


def test_what_does_not_count():
    assert errors_of(unicodedata.normalize("NFD", "né  \n à"), "né à").character_errors == 0
    assert errors_of("ABC", "abc").character_errors == 3
    assert errors_of("ABC", "abc", ignore_case=True).character_errors == 0
    assert errors_of("a, b", "a b.", ignore_punctuation=True).character_errors == 0
    assert errors_of("", "").cer == 0
    assert errors_of("x", "").cer == 1


@FEW
@given(pairs)
def test_pooled_rates_lie_in_their_intervals_and_equal_runs_are_equal(some):
    pages = [errors_of(text, truth) for text, truth in some]
    summary = summarise(pages)
    total = sum(page.characters for page in pages)
    errors = sum(page.character_errors for page in pages)
    assert summary.cer.value == (errors / total if total else float(errors > 0))
    for measure in (summary.cer, summary.wer, summary.word_f1):
        assert measure.low <= measure.high
    assert summarise(pages) == summary, "the same pages give the same numbers"
    same = compare(pages, pages)
    assert (same.difference.value, same.better_pages, same.worse_pages) == (0, 0, 0)
    assert same.p_value == 1


def test_a_run_that_is_better_on_every_page_is_found_better():
    truth = "the quick brown fox"
    worse = [errors_of("the quack brown fax", truth) for _ in range(20)]
    better = [errors_of("the quick brown fax", truth) for _ in range(20)]
    found = compare(worse, better)
    assert found.difference.high < 0
    assert found.p_value < 0.01
    assert (found.better_pages, found.worse_pages) == (20, 0)
    assert compare(better, worse).difference.low > 0


@FEW
@given(
    st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(1, 4)), texts, min_size=1),
    st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(1, 4)), texts, min_size=1),
)
def test_every_page_of_the_truth_is_compared_once(predicted, true):
    one_each = len({name for name, _ in predicted}) == len({name for name, _ in true}) == 1
    names = {name: next(iter(true))[0] if one_each else name for name, _ in predicted}
    known = {(names[name], page): text for (name, page), text in predicted.items()}
    if not known.keys() & true.keys():
        return
    found = pair_up(predicted, true)
    assert [(pair.document, pair.page) for pair in found] == list(true)
    for pair in found:
        key = pair.document, pair.page
        assert (pair.truth, pair.text) == (true[key], known.get(key, ""))
        assert pair.is_missing == (key not in known)


def test_the_page_of_differences_escapes_and_marks():
    pair = PagePair(document="<d>", page=1, text="a <b> d", truth="a <b> c")
    text = comparison_page([(page_errors(pair, Normalisation()), pair)], "t")
    assert "<b>" not in text
    assert "<del>c</del>" in text
    assert "<ins>d</ins>" in text
