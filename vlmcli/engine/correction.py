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
"""Nats that a change may cost: from 3 to 8 real and drawn pages read alike."""
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


def steps_of(logits: Tensor) -> Steps:
    """The likeliest bytes of each step.

    Args:
        logits: [T, vocabulary]; ids from 256 up are no bytes.
    """
    likely = logits.float().log_softmax(dim=-1)
    nothing = likely[:, _NUM_BYTES:].logsumexp(dim=-1)
    best = likely[:, :_NUM_BYTES].topk(_KEPT, dim=-1)
    return Steps(_costs(nothing), best.indices.to(torch.uint8).cpu().numpy(), _costs(best.values))


def _costs(likely: Tensor) -> npt.NDArray[np.uint8]:
    return likely.mul(-_GRAIN).round().clamp(0, 255).to(torch.uint8).cpu().numpy()


def split_steps(steps: Steps, counts: Sequence[int]) -> list[Steps]:
    """The steps of each picture, whose `counts` steps lie one behind the other."""
    ends = np.cumsum(counts)[:-1]
    parts = (np.split(part, ends) for part in (steps.nothing, steps.ids, steps.costs))
    return [Steps(*(part.copy() for part in one)) for one in zip(*parts, strict=True)]


def corrected(text: str, draft: str, steps: Steps) -> str:
    """The decoder's text, with the draft's wording where the head cannot believe a change.

    Args:
        text: what the decoder wrote.
        draft: what it had in its prompt, the head's best path.
        steps: of the same picture.
    """
    if text == draft or not len(steps.nothing):
        return text
    matcher = SequenceMatcher(None, text, draft, autojunk=False)
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    readings = [text[:a] + draft[c:d] + text[b:] for _, a, b, c, d in changes]
    own, *others = _likelihoods([text, *readings], steps)
    result, done = "", 0
    for (_, a, b, c, d), likelihood in zip(changes, others, strict=True):
        # A text with more letters than there are steps is impossible, however it is mended.
        is_undone = not likelihood - own <= _LEEWAY and _UNKNOWN not in draft[c:d]
        result += text[done:a] + (draft[c:d] if is_undone else text[a:b])
        done = b
    return result + text[done:]


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
