"""Guesses at the next tokens, from texts that may resemble the answer.

A `Drafter` follows, for one sequence, every source it was given (a text layer, a similar page's
text, the draft head's reading) and the sequence's own output. It knows where each source stands,
how often it has been right lately, and so how far ahead a draft is worth its rows in the forward
pass: nothing at all for a source that is useless. It never decides which tokens are kept;
`verify.py` does, and there a wrong draft costs time and changes nothing. Given up: trees of
alternatives, one draft a step.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vlmcli.engine.alignment import MAX_SUFFIX, SuffixIndex, align_nearby
from vlmcli.engine.request import DraftSource

SELF_SOURCE = "ngram"
DRAFT_HEAD_SOURCE = "draft-head"
DRAFT_HEAD_WEIGHT = 0.9

_PRIOR_TOKENS = 8.0
"""Weight of what is believed at the start, in observed tokens."""
_MEMORY_TOKENS = 64.0
"""Observed tokens after which older ones count less."""
_MAX_RATE = 0.995
_SELF_WEIGHT = 0.4
_NGRAM = 4
_CLEAR_RUN = 2
"""Agreeing tokens behind which a single difference is taken for just that."""
_ALIGN_EVERY = 16
"""Differences in a row after which a source is aligned at least."""
_MAX_LOCAL_DISTANCE = 3
TURN_ROWS = 6.0
"""What a sequence costs in a pass beside its rows, in rows: lines in full batches take 3 % less
time and 40 % fewer turns than without it (built-in model, CPU)."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Drafted tokens and the index of the source they came from."""

    source: int
    token_ids: list[int]


NO_DRAFT = Draft(-1, [])


class AcceptanceRates:
    """What earlier sequences have taught about each source's share of right tokens.

    Shared by all drafters of an engine. Affects how far drafts reach and thereby time, never
    tokens.
    """

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, float]] = {}

    def prior(self, name: str, weight: float) -> tuple[float, float]:
        """Right and wrong tokens to start from, `_PRIOR_TOKENS` in all."""
        right, wrong = self._counts.get(name, (0.0, 0.0))
        right += weight * _PRIOR_TOKENS
        wrong += (1.0 - weight) * _PRIOR_TOKENS
        scale = _PRIOR_TOKENS / (right + wrong)
        return right * scale, wrong * scale

    def record(self, name: str, right: int, wrong: int) -> None:
        """Add what one sequence saw; only the last thousand tokens or so are remembered."""
        old_right, old_wrong = self._counts.get(name, (0.0, 0.0))
        total = old_right + old_wrong + right + wrong
        scale = min(1.0, 16 * _MEMORY_TOKENS / total) if total else 1.0
        self._counts[name] = ((old_right + right) * scale, (old_wrong + wrong) * scale)


class _Source:
    """One text, the place in it where the output stands, and its record so far."""

    __slots__ = (
        "accepted",
        "cursor",
        "drafted",
        "index",
        "misses",
        "name",
        "num_right",
        "num_wrong",
        "right",
        "run",
        "text",
        "tokens",
        "wrong",
    )

    def __init__(self, name: str, text: npt.NDArray[np.int64], prior: tuple[float, float]) -> None:
        self.name = name
        self.text = text
        self.tokens: list[int] = text.tolist()
        self.cursor = 0
        self.run = _CLEAR_RUN
        self.misses = 0
        self.right, self.wrong = prior
        self.num_right = self.num_wrong = 0
        self.drafted = self.accepted = 0
        self.index: SuffixIndex | None = None

    @property
    def rate(self) -> float:
        return min(_MAX_RATE, self.right / (self.right + self.wrong))

    def peek(self, limit: int) -> list[int]:
        return self.tokens[self.cursor : self.cursor + limit]

    def advance(self, output: npt.NDArray[np.int64], num_new: int) -> None:
        """Compare what was foreseen with the newest tokens and move behind them.

        The state afterwards depends on the output alone, not on how it was cut into steps.
        """
        done = len(output) - num_new
        while done < len(output):
            new = output[done:]
            ahead = self.text[self.cursor : self.cursor + len(new)]
            equal = ahead == new[: len(ahead)]
            num_equal = len(ahead) if equal.all() else int(equal.argmin())
            self._count(num_equal, int(num_equal < len(ahead)))
            self.cursor += num_equal
            self.run += num_equal
            done += num_equal
            if done < len(output):
                done += 1
                self.misses = 0 if self.run else self.misses + 1
                self._realign(output[:done])
                self.run = 0

    def _count(self, right: int, wrong: int) -> None:
        self.num_right += right
        self.num_wrong += wrong
        self.right += right
        self.wrong += wrong
        total = self.right + self.wrong
        if total > _MEMORY_TOKENS:
            self.right *= _MEMORY_TOKENS / total
            self.wrong *= _MEMORY_TOKENS / total

    def _realign(self, output: npt.NDArray[np.int64]) -> None:
        """Find the place again after the newest token differed from what was foreseen.

        One fresh difference behind a long agreement has three readings, told apart by the newest
        token: the text has one token too many, the output doubles its last one, or one replaced
        the other. Anything less clear is aligned, ever more rarely while nothing agrees, since a
        useless source must not cost much; a look into the index is cheap.
        """
        text, place = self.text, self.cursor
        if self.run >= _CLEAR_RUN and place < len(text):
            newest = output[-1]
            if place + 1 < len(text) and text[place + 1] == newest:
                self.cursor = place + 2
            elif len(output) < 2 or output[-2] != newest:
                self.cursor = place + 1
            return
        self.cursor = min(place + 1, len(text))
        if not self.misses & (self.misses - 1) or self.misses % _ALIGN_EVERY == 0:
            self.cursor, distance = align_nearby(text, output, self.cursor)
            if distance <= min(_MAX_LOCAL_DISTANCE, len(output) // 3):
                return
        if self.index is None:
            self.index = SuffixIndex(_NGRAM)
            self.index.extend(self.tokens)
        found = self.index.find(self.tokens, output[-MAX_SUFFIX:].tolist(), self.cursor)
        if found is not None:
            self.cursor = found


class _SelfSource(_Source):
    """The sequence's own output as a source: what followed the last time these tokens came."""

    __slots__ = ()

    def __init__(self, prior: tuple[float, float]) -> None:
        super().__init__(SELF_SOURCE, np.empty(0, dtype=np.int64), prior)
        self.cursor = -1

    def peek(self, limit: int) -> list[int]:
        """The continuation, repeated periodically where it runs into the present."""
        if self.cursor < 0:
            return []
        ahead = self.tokens[self.cursor : self.cursor + limit]
        while len(ahead) < limit:
            ahead += ahead[: limit - len(ahead)]
        return ahead

    def advance(self, output: npt.NDArray[np.int64], num_new: int) -> None:
        """Take the newest tokens into the text, token by token: it is what is drafted from."""
        if self.index is None:
            self.index = SuffixIndex(_NGRAM)
        tokens = self.tokens
        for token in output[len(output) - num_new :].tolist():
            is_right = self.cursor >= 0 and tokens[self.cursor] == token
            if self.cursor >= 0:
                self._count(int(is_right), int(not is_right))
            tokens.append(token)
            self.index.extend(tokens)
            if is_right:
                self.cursor += 1
            else:
                found = self.index.find(tokens, tokens[-MAX_SUFFIX:], len(tokens))
                self.cursor = -1 if found is None else found


class Drafter:
    """All draft sources of one sequence.

    Args:
        sources: texts that came with the request.
        stop_token_id: appended to each of them, so that a perfect draft also ends the sequence.
        rates: what is known about the sources from other sequences.
        own_output: whether the sequence's own output is a source too.
    """

    __slots__ = ("_rates", "_sources", "_stop_token_id")

    def __init__(
        self,
        sources: Iterable[DraftSource] = (),
        *,
        stop_token_id: int | None = None,
        rates: AcceptanceRates | None = None,
        own_output: bool = True,
    ) -> None:
        self._rates = rates or AcceptanceRates()
        self._stop_token_id = stop_token_id
        self._sources: list[_Source] = []
        if own_output:
            self._sources.append(_SelfSource(self._rates.prior(SELF_SOURCE, _SELF_WEIGHT)))
        for source in sources:
            self.add(source)

    def add(self, source: DraftSource) -> None:
        """Take another source. It is taken to start where the output starts."""
        stop = () if self._stop_token_id is None else (self._stop_token_id,)
        text = np.array([*source.token_ids, *stop], dtype=np.int64)
        prior = self._rates.prior(source.name, source.weight)
        self._sources.append(_Source(source.name, text, prior))

    def propose(self, limit: int, overhead: float) -> Draft:
        """The next tokens according to the source that is right most often.

        Args:
            limit: tokens at most.
            overhead: fixed cost of a forward pass that falls on this sequence, in rows: large for a
                lone sequence, small in a full batch.
        """
        best = NO_DRAFT
        best_rate = 0.0
        for i, source in enumerate(self._sources):
            rate = source.rate
            if rate > best_rate:
                ahead = source.peek(min(limit, best_length(rate, overhead)))
                if ahead:
                    best, best_rate = Draft(i, ahead), rate
        return best

    def observe(
        self, draft: Draft, num_accepted: int, output: npt.NDArray[np.int64], num_new: int
    ) -> None:
        """Follow what was generated.

        Args:
            draft: what was verified in this step.
            num_accepted: its tokens that were kept.
            output: int64 [n] everything generated so far, the newest tokens included.
            num_new: tokens that are new since the last call.
        """
        if draft.token_ids:
            used = self._sources[draft.source]
            used.drafted += len(draft.token_ids)
            used.accepted += num_accepted
        for source in self._sources:
            source.advance(output, num_new)

    def close(self) -> None:
        """Tell the other sequences what was learnt here; once, at the end."""
        for source in self._sources:
            self._rates.record(source.name, source.num_right, source.num_wrong)

    def agreement(self) -> dict[str, tuple[int, int]]:
        """By source name: output tokens that it had a guess for, and right guesses among them.

        Depends on the sources and the output alone: not on draft lengths, batches or budgets.
        """
        out: dict[str, tuple[int, int]] = {}
        for source in self._sources:
            guessed, right = out.get(source.name, (0, 0))
            num_guessed = source.num_right + source.num_wrong
            out[source.name] = (guessed + num_guessed, right + source.num_right)
        return out

    def counts(self) -> dict[str, tuple[int, int]]:
        """Verified and accepted draft tokens by source name, unused sources left out."""
        out: dict[str, tuple[int, int]] = {}
        for source in self._sources:
            if source.drafted:
                drafted, accepted = out.get(source.name, (0, 0))
                out[source.name] = (drafted + source.drafted, accepted + source.accepted)
        return out

    def statistics(self) -> dict[str, int]:
        """`agreement` and `counts` as one flat mapping, for adding up over sequences."""
        out: dict[str, int] = {}
        for name, (guessed, right) in self.agreement().items():
            out |= {f"drafts.{name}.guessed": guessed, f"drafts.{name}.right": right}
        for name, (drafted, accepted) in self.counts().items():
            out |= {f"drafts.{name}.drafted": drafted, f"drafts.{name}.accepted": accepted}
        return out


@lru_cache(maxsize=4096)
def _best_length(rate_steps: int, overhead_steps: int) -> int:
    rate, overhead = rate_steps / 200, overhead_steps / 4
    expected, reach, length = 1.0, rate, 0
    while length < 1024 and reach * (overhead + 1 + length) > expected:
        length += 1
        expected += reach
        reach *= rate
    return length


def best_length(rate: float, overhead: float) -> int:
    """Draft length with the most tokens per cost.

    With probability `rate` that a token is right given that all before it were, a draft of k tokens
    yields E = 1 + rate + … + rate^k tokens for overhead + 1 + k rows. One more row pays as long as
    the chance that it is reached exceeds what a row yields on average.

    Args:
        rate: from 0 to 1.
        overhead: fixed cost of the pass for one sequence, in rows.
    """
    return _best_length(round(rate * 200), round(overhead * 4))
