"""The losses: CTC on the draft head, dense classes on the columns, the decoder on its own draft.

It holds no schedule and no data. A loss on the draft bytes inside the prompt was given up: they
are what the head read, errors included, and learning to write them teaches those errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from data import Batch
from model import BLANK, DRAFT_END, END, VOCABULARY, Nano, collapse, normalise
from torch import Tensor

Mode = Literal["read", "write", "joint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Losses of one batch in nats: CTC a byte, dense a column, the decoder a byte."""

    draft: Tensor
    dense: Tensor
    text: Tensor | None

    def total(self) -> Tensor:
        """What is minimised; the dense loss is help, not goal, hence its weight."""
        total = self.draft + 0.5 * self.dense
        return total if self.text is None else total + self.text


def greedy_drafts(logits: Tensor) -> list[bytes]:
    """Best CTC path of each line, logits [B, steps, VOCABULARY]."""
    return [collapse(steps) for steps in logits.argmax(-1).tolist()]


def corrupt(draft: bytes, rate: float, generator: torch.Generator) -> bytes:
    """Replace, drop or double about `rate` of the bytes, as a bad scan would."""
    if rate <= 0 or not draft:
        return draft
    draws = torch.rand(len(draft), 2, generator=generator).tolist()
    result = bytearray()
    for byte, (hit, what) in zip(draft, draws, strict=True):
        if hit >= rate:
            result.append(byte)
        elif what < 0.6:
            result.append(
                draft[int(what * 1e6) % len(draft)] if what < 0.3 else 97 + int(what * 43)
            )
        elif what < 0.8:
            result += bytes((byte, byte))
    return bytes(result)


def decoder_inputs(
    drafts: Sequence[bytes], targets: Sequence[bytes], noise: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Text ids and labels [B, N] after <vision_end>: draft, <draft_end>, line, <im_end>.

    Labels are -100 except where the line itself is predicted. `noise` of the line's input bytes
    are replaced, so that the decoder looks at the picture instead of trusting its own words.
    """
    length = max(len(d) + len(t) + 1 for d, t in zip(drafts, targets, strict=True))
    ids = torch.full((len(drafts), length), BLANK)
    labels = torch.full((len(drafts), length), -100)
    for row, (draft, target) in enumerate(zip(drafts, targets, strict=True)):
        line = torch.tensor(list(target), dtype=torch.long)
        hit = torch.rand(len(line), generator=generator) < noise
        other = torch.randint(32, 127, (len(line),), generator=generator)
        first = len(draft)
        ids[row, :first] = torch.tensor(list(draft), dtype=torch.long)
        ids[row, first] = DRAFT_END
        ids[row, first + 1 : first + 1 + len(line)] = torch.where(hit, other, line)
        labels[row, first : first + len(line)] = line
        labels[row, first + len(line)] = END
    return ids, labels


def ctc(logits: Tensor, targets: Sequence[bytes]) -> Tensor:
    """CTC loss in nats a byte, over the whole batch; lines too wide for their steps count zero."""
    log_probs = logits.float().log_softmax(-1).transpose(0, 1)
    lengths = torch.tensor([len(target) for target in targets])
    flat = torch.tensor([byte for target in targets for byte in target], dtype=torch.long)
    steps = torch.full((len(targets),), log_probs.shape[0], dtype=torch.long)
    summed = F.ctc_loss(
        log_probs, flat, steps, lengths, blank=BLANK, reduction="sum", zero_infinity=True
    )
    return summed / max(1, int(lengths.sum()))


def losses(model: Nano, batch: Batch, mode: Mode, generator: torch.Generator) -> Losses:
    """One forward pass: `read` trains tower and heads, `write` the decoder alone, `joint` all."""
    device = model.column_head.weight.device
    pixels = normalise(torch.from_numpy(batch.pixels).to(device))
    with torch.set_grad_enabled(mode != "write" and torch.is_grad_enabled()):
        tokens, columns = model.visual(pixels)
        logits = model.draft_head(tokens)
        classes = model.column_head(columns)
        weight = torch.ones(VOCABULARY, device=device)
        weight[BLANK] = 0.2
        dense = torch.from_numpy(batch.dense).to(device)
        dense_loss = F.cross_entropy(classes.float().flatten(0, 1), dense.flatten(), weight)
        draft_loss = ctc(logits, batch.targets)
    if mode == "read":
        return Losses(draft=draft_loss, dense=dense_loss, text=None)
    # Reading is the longer lesson: the decoder gets every second line while both learn.
    stride = 2 if mode == "joint" and len(batch.targets) > 1 else 1
    targets = batch.targets[::stride]
    drafts = []
    for draft in greedy_drafts(logits[::stride].detach()):
        strength = float(torch.rand(1, generator=generator))
        drafts.append(corrupt(draft, max(0.0, strength - 0.4) * 0.12, generator))
    ids, labels = decoder_inputs(drafts, targets, 0.04, generator)
    written = model.decode(tokens[::stride], ids.to(device))
    text_loss = F.cross_entropy(
        written.float().flatten(0, 1), labels.to(device).flatten(), ignore_index=-100
    )
    return Losses(draft=draft_loss, dense=dense_loss, text=text_loss)
