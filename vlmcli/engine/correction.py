"""What the draft head has against the decoder's reading of a line: changes that it cannot believe.

Where the draft stands in the prompt, the decoder's answer is the draft with changes. Most mend it;
some come from losing the place in the line (a word twice, a letter lost) or from trusting the
language more than the picture. The draft head has no such habits, so each change is weighed by the
likelihood of the whole line under the head's steps (the forward sums of CTC: Graves et al. 2006),
and one that makes the picture far less likely is undone. Never adds what neither of them read.
Given up: weighing with the decoder's own likelihood of both, which costs passes and gains less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

_NUM_BYTES = 256
_KEPT = 3
"""Bytes whose probability is remembered, at every step."""
_GRAIN = 16.0
"""Parts of a nat in which costs are stored: 255 of them are 16 nats."""
_UNLIKELY = 8.0
"""Nats that any other byte costs at least."""
_LEEWAY = 5.0
"""Nats that a change of the decoder's may cost: from 3 to 8 real and drawn pages read alike."""
_LEEWAY_OF_SEVERAL = 1.0
"""Nats that another wording must gain in several views; from 0 to 3 they read alike."""
_PRIOR_OF_A_WORD = 3.5
"""Nats a view that a word of the language may cost where a string stood that is none."""
_UNKNOWN = "�"


@dataclass(frozen=True, slots=True)
class Steps:
    """What the head says at each of T steps, as costs: -ln p in sixteenths, at most 255."""

    nothing: npt.NDArray[np.uint8]
    """[T], no byte."""
    ids: npt.NDArray[np.uint8]
    """[T, 3], the likeliest bytes."""
    costs: npt.NDArray[np.uint8]
    """[T, 3], theirs, cheapest first."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A line's text, and ln p of it by what the draft head says of the line."""

    text: str
    likelihood: float


def split_steps(logits: Tensor, counts: Sequence[int]) -> list[Steps]:
    """What the head says of each of several pictures.

    Args:
        logits: [T, vocabulary]; ids from 256 up are no bytes.
        counts: steps of each picture, which lie one behind the other; their sum is T.
    """
    likely = logits.float().log_softmax(dim=-1)
    nothing = likely[:, _NUM_BYTES:].logsumexp(dim=-1)
    kept = likely[:, :_NUM_BYTES].topk(_KEPT, dim=-1)
    ids = kept.indices.to(torch.uint8).cpu().numpy()
    ends = np.cumsum(counts)[:-1]
    parts = (np.split(part, ends) for part in (_costs(nothing), ids, _costs(kept.values)))
    return [Steps(*(part.copy() for part in one)) for one in zip(*parts, strict=True)]


def _costs(likely: Tensor) -> npt.NDArray[np.uint8]:
    return likely.mul(-_GRAIN).round().clamp(0, 255).to(torch.uint8).cpu().numpy()


def weighed(text: str, draft: str, views: Sequence[Steps]) -> Weighed:
    """A text, changed towards a draft where the views of the line make its wording likelier.

    The decoder's text is weighed against the draft in its prompt, by the one view that both are of:
    a change of the decoder's that it cannot believe is undone. What several views say together
    is weighed against the draft of the last one. Its likelihood is that of the best view.

    Args:
        text: what was read so far.
        draft: the head's best path in the last view.
        views: the head's steps of the same line, once for each picture of it.
    """
    if not all(len(view.nothing) for view in views):
        return Weighed(text, 0.0)
    leeway = _LEEWAY if len(views) == 1 else _LEEWAY_OF_SEVERAL
    matcher = SequenceMatcher(None, text, draft, autojunk=False)
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    readings = [text, *(text[:a] + draft[c:d] + text[b:] for _, a, b, c, d in changes)]
    likely = _in_each(readings, views)
    totals = [sum(likely[reading]) for reading in readings]
    result, done = "", 0
    for (_, a, b, c, d), total in zip(changes, totals[1:], strict=True):
        # A text with more letters than there are steps is impossible, however it is mended.
        is_taken = not total - totals[0] <= leeway and _UNKNOWN not in draft[c:d]
        result += text[done:a] + (draft[c:d] if is_taken else text[a:b])
        done = b
    result += text[done:]
    return _rated(result, likely, views)


def respelled(
    text: str, changes: Sequence[tuple[int, int, str]], views: Sequence[Steps]
) -> Weighed:
    """A text with those suggested changes that the views of the line nearly believe.

    Of changes that overlap, the likeliest counts.

    Args:
        text: what was read.
        changes: start, stop, and what could stand there.
        views: the head's steps of the line, once for each picture of it, at least one.
    """
    readings = [text, *(text[:start] + other + text[stop:] for start, stop, other in changes)]
    likely = _in_each(readings, views)
    totals = [sum(likely[reading]) for reading in readings]
    least = totals[0] - _PRIOR_OF_A_WORD * len(views)
    taken: list[tuple[int, int, str]] = []
    for total, change in sorted(zip(totals[1:], changes, strict=True), reverse=True):
        is_free = all(change[1] <= start or stop <= change[0] for start, stop, _ in taken)
        if total > least and is_free:
            taken.append(change)
    result = text
    for start, stop, other in sorted(taken, reverse=True):
        result = result[:start] + other + result[stop:]
    return _rated(result, likely, views)


def _rated(text: str, likely: dict[str, tuple[float, ...]], views: Sequence[Steps]) -> Weighed:
    """A text with its likelihood in the best view; `likely` holds what is known already."""
    return Weighed(text, max((likely if text in likely else _in_each([text], views))[text]))


def _in_each(texts: Sequence[str], views: Sequence[Steps]) -> dict[str, tuple[float, ...]]:
    """ln p of each text in every view."""
    each = [_likelihoods(texts, view) for view in views]
    return dict(zip(texts, zip(*each, strict=True), strict=True))


def _likelihoods(texts: Sequence[str], steps: Steps) -> list[float]:
    """ln p of each text: the sum over all paths of steps that spell it."""
    written = [text.encode() for text in texts]
    used = sorted(set(b"".join(written)))
    column = np.full(_NUM_BYTES, len(used) + 1, np.int64)
    column[used] = np.arange(1, len(used) + 1)
    count = len(steps.nothing)
    table = np.empty((count, len(used) + 2), np.float32)
    table[:] = np.maximum(steps.costs[:, -1:], _UNLIKELY * _GRAIN)
    table[np.arange(count)[:, None], column[steps.ids]] = steps.costs
    table[:, 0] = steps.nothing
    likely = torch.from_numpy(table[:, :-1] / -_GRAIN)
    losses = F.ctc_loss(
        likely[:, None].expand(count, len(written), -1),
        torch.from_numpy(column[list(b"".join(written))]),
        torch.full((len(written),), count),
        torch.tensor([len(line) for line in written]),
        blank=0,
        reduction="none",
    )
    return (-losses).tolist()
