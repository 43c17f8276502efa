"""From logits to tokens, all rows at once, the same for a row alone and among others.

Greedy rows take the largest logit. Rows with a temperature draw by inverting the cumulative
distribution at a number between 0 and 1 that is a pure function of the request's seed and the index
of the token, so batching, preemption and drafts cannot change a draw. Given up: other samplers.
"""

import hashlib
from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt
import torch

from vlmcli.engine.request import Request
from vlmcli.engine.step import ScheduledSequence

_Floats = npt.NDArray[np.float64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def choose_tokens(
    items: Seq[ScheduledSequence], logits: torch.Tensor
) -> tuple[list[int], list[float]]:
    """Tokens for all rows of a decoder batch.

    Args:
        items: sequences that want logits, in batch order.
        logits: fp32 [R, vocab]; every item has one row for its last known token and one for each
            drafted token.

    Returns:
        R token ids, and R log-probabilities or none where nobody wants them.
    """
    if not items:
        return [], []
    num_rows = np.array([1 + len(item.draft.token_ids) for item in items])
    params = [item.sequence.request.sampling for item in items]
    temperatures = np.array([p.temperature for p in params], dtype=np.float32)
    chosen, logprobs = sample(
        logits,
        np.repeat(temperatures, num_rows),
        np.repeat(np.array([p.top_p for p in params], dtype=np.float32), num_rows),
        _uniforms(items, num_rows) if temperatures.any() else np.zeros(int(num_rows.sum())),
        logprobs=any(p.logprobs for p in params),
    )
    return chosen.tolist(), [] if logprobs is None else logprobs.tolist()


def derive_seed(request: Request, engine_seed: int) -> int:
    """64 bits: the request's own seed, or one derived from its id and the engine's seed."""
    if request.sampling.seed is not None:
        return request.sampling.seed % (1 << 64)
    text = f"{engine_seed}\0{request.request_id}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def uniform(seeds: npt.NDArray[np.uint64], steps: npt.NDArray[np.uint64]) -> _Floats:
    """Numbers in [0, 1), one for each pair of seed and step.

    SplitMix64 (Steele, Lea and Flood, 2014) as a counter-based generator, its finaliser applied to
    the seed first so that nearby seeds have unrelated streams.

    Args:
        seeds: uint64 [n].
        steps: uint64 [n] index of the token that is drawn.

    Returns:
        float64 [n], multiples of 2^-53.
    """
    bits = _mix(_mix(seeds + _GOLDEN) + (steps + np.uint64(1)) * _GOLDEN)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def sample(
    logits: torch.Tensor,
    temperatures: npt.NDArray[np.float32],
    top_ps: npt.NDArray[np.float32],
    uniforms: _Floats,
    *,
    logprobs: bool,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32] | None]:
    """Choose one token per row.

    Args:
        logits: fp32 [R, vocab].
        temperatures: float32 [R]; rows with 0 are greedy.
        top_ps: float32 [R].
        uniforms: float64 [R] in [0, 1); greedy rows ignore theirs.
        logprobs: whether log-probabilities are wanted.

    Returns:
        int64 [R] token ids, and float32 [R] natural log-probabilities under the unmodified
        distribution or None.
    """
    chosen = logits.argmax(dim=-1)
    drawn = np.flatnonzero(temperatures > 0)
    if len(drawn):
        rows = torch.from_numpy(drawn).to(logits.device)
        chosen[rows] = _draw(
            logits[rows],
            _column(temperatures[drawn], logits),
            _column(top_ps[drawn], logits),
            _column(uniforms[drawn], logits),
        )
    if not logprobs:
        return chosen.cpu().numpy(), None
    picked = logits.gather(-1, chosen[:, None])[:, 0] - logits.logsumexp(dim=-1)
    return chosen.cpu().numpy(), picked.cpu().numpy()


def _column(values: npt.NDArray[np.generic], like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))[:, None].to(like.device)


def _draw(
    logits: torch.Tensor, temperatures: torch.Tensor, top_ps: torch.Tensor, uniforms: torch.Tensor
) -> torch.Tensor:
    """Inverse-CDF draw from the nucleus: logits [n, vocab], the others [n, 1], gives int64 [n]."""
    probs = torch.softmax(logits / temperatures, dim=-1)
    probs, order = probs.sort(dim=-1, descending=True, stable=True)
    before = probs.cumsum(dim=-1) - probs
    probs = probs.masked_fill(before >= top_ps, 0.0)
    total = probs.cumsum(dim=-1)
    place = torch.searchsorted(total, uniforms * total[:, -1:], right=True)
    last = (probs > 0).sum(dim=-1, keepdim=True) - 1
    return order.gather(-1, place.minimum(last))[:, 0]


def _uniforms(items: Seq[ScheduledSequence], num_rows: npt.NDArray[np.int64]) -> _Floats:
    """One number per row, from the request's seed and the index of the row's token."""
    seeds = np.array([item.sequence.seed for item in items], dtype=np.uint64)
    first = np.array([item.sequence.num_output_tokens for item in items], dtype=np.int64)
    starts = np.cumsum(num_rows) - num_rows
    steps = np.arange(int(num_rows.sum())) + np.repeat(first - starts, num_rows)
    return uniform(np.repeat(seeds, num_rows), steps.astype(np.uint64))
