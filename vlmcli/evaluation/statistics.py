"""Pooled rates with their uncertainty, and whether one of two runs is better.

Pages are drawn anew with replacement (bootstrap, Efron 1979, percentile intervals); two runs are
compared page by page by changing the signs of their differences at random (paired permutation
test). Seeded: the same pages give the same numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vlmcli.evaluation.measures import PageErrors, f1, rate

_RESAMPLES = 2000
_SEED = 1
_BATCH = 200
"""Resamples at a time: their memory grows with the pages."""
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A rate and the interval that holds 95 % of it over resampled pages."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """For JSON."""
        return {name: round(getattr(self, name), 5) for name in ("value", "low", "high")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All pages together."""

    num_pages: int
    num_missing: int
    cer: Measure
    wer: Measure
    word_f1: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The second run's character error rate less the first one's."""

    difference: Measure
    p_value: float
    better_pages: int
    """Pages that the second run reads better; the rest of those that differ it reads worse."""
    worse_pages: int


def summarise(pages: Sequence[PageErrors]) -> Summary:
    """Pooled rates over the pages, of which there is at least one."""
    return Summary(
        num_pages=len(pages),
        num_missing=sum(page.is_missing for page in pages),
        cer=_measure(rate, _counts(pages, ("character_errors", "characters"))),
        wer=_measure(rate, _counts(pages, ("word_errors", "words"))),
        word_f1=_measure(f1, _counts(pages, ("common_words", "words", "text_words"))),
    )


def compare(first: Sequence[PageErrors], second: Sequence[PageErrors]) -> Comparison:
    """Whether the second run differs from the first, on the same pages in the same order."""
    before = _counts(first, ("character_errors", "characters"))
    after = _counts(second, ("character_errors", "characters"))
    change = after[:, 0] - before[:, 0]
    observed = abs(int(change.sum()))
    random = np.random.default_rng(_SEED)
    extreme = 0
    for _ in range(_RESAMPLES // _BATCH):
        signs = random.choice(np.array([-1, 1]), size=(_BATCH, len(change)))
        extreme += int((np.abs(signs @ change) >= observed).sum())
    return Comparison(
        difference=_measure(_signed_rate, np.stack((change, before[:, 1]), axis=1)),
        p_value=(extreme + 1) / (_RESAMPLES + 1),
        better_pages=int((change < 0).sum()),
        worse_pages=int((change > 0).sum()),
    )


def _signed_rate(errors: float, total: float) -> float:
    """As `measures.rate`, for a difference that may be negative."""
    return errors / max(1, total)


def _counts(pages: Sequence[PageErrors], names: Sequence[str]) -> Counts:
    """[pages, names]."""
    return np.array([[getattr(page, name) for name in names] for page in pages], dtype=np.int64)


def _resampled(counts: Counts) -> Counts:
    """[resamples, names]: sums over as many pages, drawn with replacement."""
    random = np.random.default_rng(_SEED)
    sums = []
    for _ in range(_RESAMPLES // _BATCH):
        drawn = random.integers(0, len(counts), size=(_BATCH, len(counts)))
        sums.append(counts[drawn].sum(axis=1))
    return np.concatenate(sums)


def _measure(formula: Callable[..., float], counts: Counts) -> Measure:
    """`formula` of the pooled counts [pages, its arguments]."""
    values = [formula(*row) for row in _resampled(counts).tolist()]
    low, high = np.percentile(values, (2.5, 97.5))
    value = formula(*counts.sum(axis=0).tolist())
    return Measure(value=value, low=float(low), high=float(high))
