"""The losses: CTC on the draft head, dense classes on the columns, the decoder on its own draft.

One head in two decoder layers is shown where to look: at the byte of the draft that comes next.
Without that a decoder of this size takes very long to find out that it may copy. There is no
schedule and no data here. A loss on the draft bytes inside the prompt was given up: they are what
the head read, errors included, and learning to write them teaches those errors.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from data import Batch
from model import BLANK, END, VOCABULARY, Nano, collapse, normalise, pad_draft
from torch import Tensor

Mode = Literal["read", "write", "joint"]
POINTER_LAYERS = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Losses of one batch in nats: CTC a byte, dense a column, decoder and pointer a byte."""

    draft: Tensor
    dense: Tensor
    text: Tensor | None = None
    pointer: Tensor | None = None

    def reading(self) -> Tensor:
        """What tower and draft head minimise; the dense loss is help, not goal: half its weight."""
        return self.draft + 0.5 * self.dense

    def writing(self) -> Tensor:
        """What the decoder minimises; the pointer is help, not goal."""
        assert self.text is not None and self.pointer is not None
        return self.text + 0.3 * self.pointer


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
    drafts: Sequence[bytes],
    targets: Sequence[bytes],
    room: int,
    noise: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Text ids and labels [B, N] after <vision_end>: draft in `room` places, <draft_end>, line.

    Labels are -100 except where the line itself is predicted. `noise` of the line's input bytes
    are replaced, so that the decoder looks at the picture instead of trusting its own words.
    """
    length = room + 1 + max(map(len, targets))
    ids = torch.full((len(drafts), length), BLANK)
    labels = torch.full((len(drafts), length), -100)
    for row, (draft, target) in enumerate(zip(drafts, targets, strict=True)):
        line = torch.tensor(list(target), dtype=torch.long)
        hit = torch.rand(len(line), generator=generator) < noise
        other = torch.randint(32, 127, (len(line),), generator=generator)
        ids[row, : room + 1] = torch.tensor(pad_draft(draft, room))
        ids[row, room + 1 : room + 1 + len(line)] = torch.where(hit, other, line)
        labels[row, room : room + len(line)] = line
        labels[row, room + len(line)] = END
    return ids, labels


def pointer_targets(draft: bytes, target: bytes) -> list[int]:
    """For each byte of the line and its end: the place in the draft to copy from, -1 for none.

    Bytes that the draft lacks have no place; the end's is the draft's end.
    """
    places = [-1] * len(target) + [len(draft)]
    matcher = difflib.SequenceMatcher(None, draft, target, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal" or (tag == "replace" and i2 - i1 == j2 - j1):
            places[j1:j2] = range(i1, i2)
    return places


def pointer_loss(
    scores: Sequence[Tensor],
    drafts: Sequence[bytes],
    targets: Sequence[bytes],
    first: int,
    room: int,
) -> Tensor:
    """Cross-entropy of watched heads, scores [B, N, N], with the places that they should look at.

    `first` is the place of the text's first token among all N, `room` the draft's places.
    """
    if not scores:
        # A model with fewer layers than are watched: tests train such.
        return torch.zeros(())
    rows, queries, keys = [], [], []
    for row, (draft, target) in enumerate(zip(drafts, targets, strict=True)):
        for step, place in enumerate(pointer_targets(draft, target)):
            if 0 <= place < room:
                rows.append(row)
                queries.append(first + room + step)
                keys.append(first + place)
    device = scores[0].device
    row, query = torch.tensor(rows, device=device), torch.tensor(queries, device=device)
    wanted = torch.tensor(keys, device=device)
    span = torch.arange(scores[0].shape[-1], device=device)
    total = torch.zeros((), device=device)
    for score in scores:
        causal = score[row, query].float().masked_fill(span > query[:, None], -torch.inf)
        total = total + F.cross_entropy(causal, wanted)
    return total / len(scores)


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


def losses(
    model: Nano, batch: Batch, mode: Mode, generator: torch.Generator, *, settling: bool = False
) -> Losses:
    """One forward pass: `read` trains tower and heads, `write` the decoder alone, `joint` all.

    While `settling`, the dense loss trains its own head alone: an exported model has none, and what
    a new one sends back to a trained tower is noise.
    """
    device = model.column_head.weight.device
    pixels = normalise(torch.from_numpy(batch.pixels).to(device))
    with torch.set_grad_enabled(mode != "write" and torch.is_grad_enabled()):
        tokens, columns = model.visual(pixels)
        logits = model.draft_head(tokens)
        classes = model.column_head(columns.detach() if settling else columns)
        weight = torch.ones(VOCABULARY, device=device)
        weight[BLANK] = 0.2
        dense = torch.from_numpy(batch.dense).to(device)
        dense_loss = F.cross_entropy(classes.float().flatten(0, 1), dense.flatten(), weight)
        draft_loss = ctc(logits, batch.targets)
    if mode == "read":
        return Losses(draft=draft_loss, dense=dense_loss)
    # Reading is the longer lesson: the decoder gets every second line while both learn.
    stride = 2 if mode == "joint" and len(batch.targets) > 1 else 1
    targets = batch.targets[::stride]
    drafts = []
    for draft in greedy_drafts(logits[::stride].detach()):
        strength = float(torch.rand(1, generator=generator))
        drafts.append(corrupt(draft, max(0.0, strength - 0.4) * 0.12, generator))
    room = model.config.draft_length
    ids, labels = decoder_inputs(drafts, targets, room, 0.02, generator)
    model.watch(POINTER_LAYERS)
    written = model.decode(tokens[::stride], ids.to(device))
    pointer = pointer_loss(model.pointers(), drafts, targets, tokens.shape[1] + 2, room)
    model.watch(())
    text_loss = F.cross_entropy(
        written.float().flatten(0, 1), labels.to(device).flatten(), ignore_index=-100
    )
    return Losses(draft=draft_loss, dense=dense_loss, text=text_loss, pointer=pointer)
