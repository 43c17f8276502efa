"""Errors of one page: characters, words, and words whatever their order.

Before comparing, both texts are brought into Unicode's composed form (NFC) and runs of white space
become one space; on request case or punctuation is ignored. Edit distances are Levenshtein's, by
rapidfuzz.
"""

import unicodedata
from collections import Counter
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from vlmcli.evaluation.pages import PagePair


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """What does not count as a difference, besides composition and white space."""

    ignore_case: bool = False
    ignore_punctuation: bool = False

    def apply(self, text: str) -> str:
        """The text as it is compared."""
        text = unicodedata.normalize("NFC", text)
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = "".join(" " if unicodedata.category(c)[0] == "P" else c for c in text)
        return " ".join(text.split())

    def __str__(self) -> str:
        more = [
            name
            for name, wanted in (
                ("case ignored", self.ignore_case),
                ("punctuation ignored", self.ignore_punctuation),
            )
            if wanted
        ]
        return ", ".join(["NFC", "white space collapsed", *more])


@dataclass(frozen=True, slots=True, kw_only=True)
class PageErrors:
    """Counts of one page. Rates are of pooled counts, so that long pages weigh more."""

    document: str
    page: int
    characters: int
    """Of the truth, as are `words`."""
    character_errors: int
    words: int
    word_errors: int
    text_words: int
    """Of the prediction."""
    common_words: int
    """Words that both have, order left aside."""
    is_missing: bool = False

    @property
    def cer(self) -> float:
        """Character errors over the truth's characters."""
        return rate(self.character_errors, self.characters)


def page_errors(pair: PagePair, normalisation: Normalisation) -> PageErrors:
    """Count what is wrong with a page."""
    truth, text = normalisation.apply(pair.truth), normalisation.apply(pair.text)
    true_words, words = truth.split(), text.split()
    return PageErrors(
        document=pair.document,
        page=pair.page,
        characters=len(truth),
        character_errors=Levenshtein.distance(truth, text),
        words=len(true_words),
        word_errors=Levenshtein.distance(true_words, words),
        text_words=len(words),
        common_words=(Counter(true_words) & Counter(words)).total(),
        is_missing=pair.is_missing,
    )


def rate(errors: float, total: float) -> float:
    """Errors over the total; an empty truth makes any error a whole one."""
    return errors / total if total else float(errors > 0)


def f1(common: float, truth: float, text: float) -> float:
    """Harmonic mean of recall and precision of words; 1 where neither side has any."""
    return 2 * common / (truth + text) if truth + text else 1.0
