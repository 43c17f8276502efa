"""Runs requests on the engine and watches for loops: stop, try again warmer, cut at last.

The first attempt is greedy. A request that begins to repeat itself is aborted at once and started
again with some temperature; when the attempts are used up, its text is cut where the loop began.
Knows requests and tokens, no pages.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vlmcli.answering import Answer
from vlmcli.engine.engine import Engine
from vlmcli.engine.request import Request, RequestOutput
from vlmcli.loops import Loop, LoopSearch, temperature_of
from vlmcli.readers.shortage import release_device
from vlmcli.results import DraftCount, Seconds, TokenCounts, add_seconds, add_tokens

Build = Callable[[str, float, int], Request]
"""Makes the request of one attempt from its id, temperature and seed."""


@dataclass(slots=True)
class _Ticket:
    build: Build
    search: LoopSearch
    attempt: int = 1
    tokens: TokenCounts = field(default_factory=TokenCounts)
    seconds: Seconds = field(default_factory=Seconds)


class Guard:
    """An engine behind the loop guard. Tickets name requests over all their attempts.

    Args:
        engine: loaded; used by nobody else.
        retries: attempts after the first.
    """

    def __init__(self, engine: Engine, *, retries: int) -> None:
        self.engine = engine
        self._retries = retries
        self._tickets: dict[int, _Ticket] = {}
        self._num_tickets = 0

    def start(self, build: Build) -> int:
        """Begin a request; returns its ticket.

        Raises:
            RequestTooLargeError: it can never fit.
        """
        number = self._num_tickets + 1
        self.engine.add_request(build(_request_id(number, 1), 0.0, 1))
        self._num_tickets = number
        self._tickets[number] = _Ticket(build=build, search=LoopSearch(self.engine.decode))
        return number

    def abort(self, ticket: int) -> None:
        """Stop a request; it gives no answer."""
        attempt = self._tickets.pop(ticket).attempt
        self.engine.abort_request(_request_id(ticket, attempt))

    def has_work(self) -> bool:
        """Whether an answer is outstanding."""
        return bool(self._tickets)

    def drop_caches(self) -> None:
        """Give up what only saves time, and what torch keeps of a GPU without using it."""
        self.engine.drop_caches()
        release_device(self.engine.config.device)

    def step(self) -> list[tuple[int, Answer]]:
        """One engine step; the answers that it completed, by ticket."""
        answers = []
        for output in self.engine.step():
            number = int(output.request_id.partition(".")[0])
            answer = self._take(number, self._tickets[number], output)
            if answer is not None:
                del self._tickets[number]
                answers.append((number, answer))
        return answers

    def _take(self, number: int, ticket: _Ticket, output: RequestOutput) -> Answer | None:
        loop = ticket.search.look(output.token_ids, is_cut=output.finish_reason == "length")
        if not output.finished and loop is None:
            return None
        _charge(ticket, output, is_looped=loop is not None)
        if loop is None:
            is_cut = output.finish_reason == "length"
            return _answer(ticket, output.text, output.logprobs, is_truncated=is_cut)
        if not output.finished:
            self.engine.abort_request(output.request_id)
        return self._try_again_or_cut(number, ticket, output, loop)

    def _try_again_or_cut(
        self, number: int, ticket: _Ticket, output: RequestOutput, loop: Loop
    ) -> Answer | None:
        if ticket.attempt <= self._retries:
            ticket.attempt += 1
            ticket.search = LoopSearch(self.engine.decode)
            temperature = temperature_of(ticket.attempt)
            request_id = _request_id(number, ticket.attempt)
            self.engine.add_request(ticket.build(request_id, temperature, ticket.attempt))
            return None
        text = self.engine.decode(output.token_ids[: loop.keep])
        return _answer(ticket, text, output.logprobs[: loop.keep], is_looped=True)


def _request_id(number: int, attempt: int) -> str:
    return f"{number}.{attempt}"


def _answer(
    ticket: _Ticket,
    text: str,
    logprobs: Sequence[float],
    *,
    is_looped: bool = False,
    is_truncated: bool = False,
) -> Answer:
    return Answer(
        text=text.strip(),
        confidence=mean_probability(logprobs),
        is_looped=is_looped,
        is_truncated=is_truncated,
        attempts=ticket.attempt,
        tokens=ticket.tokens,
        seconds=ticket.seconds,
    )


def _charge(ticket: _Ticket, output: RequestOutput, *, is_looped: bool) -> None:
    """Book what an ended attempt took.

    A loop counts up to where it was noticed, and no drafts: what came behind depends on chance.
    """
    attempt = TokenCounts(
        visual=output.num_visual_tokens,
        prompt=output.num_prompt_tokens - output.num_visual_tokens,
        output=ticket.search.num_checked if is_looped else len(output.token_ids),
        drafted=0 if is_looped else output.num_drafted,
        accepted=0 if is_looped else output.num_accepted,
        sources=() if is_looped else _sources(output),
    )
    ticket.tokens = add_tokens(ticket.tokens, attempt)
    seconds = output.seconds
    ticket.seconds = add_seconds(
        ticket.seconds,
        Seconds(encode=seconds.encode, prefill=seconds.prefill, decode=seconds.decode),
    )


def _sources(output: RequestOutput) -> tuple[DraftCount, ...]:
    return tuple(
        DraftCount(name=name, guessed=guessed, right=right)
        for name, (guessed, right) in sorted(output.agreement.items())
        if guessed
    )


def mean_probability(logprobs: Sequence[float]) -> float | None:
    """Geometric mean of the probabilities, 0 to 1; None without tokens."""
    if not logprobs:
        return None
    return math.exp(sum(logprobs) / len(logprobs))
