"""Measures a checkpoint: character error on held-out fonts, by damage and by kind of text.

    python evaluate.py run/checkpoint.pt [--lines 200] [--crops FOLDER]

`--crops` adds real line crops: FOLDER holds NAME.png (one line each, any height) beside NAME.txt.
Whole pages through line finding are compare.py's business. Beam search was given up: the decoder
already re-reads the draft, and greedy decoding is what vlmcli does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from data import LINE_HEIGHT, LineGenerator, SyntheticLine, pack
from export import load_checkpoint, load_into
from measures import auroc, calibration_error, edit_distance
from model import BLANK, END, Nano, normalise, pad_draft
from objective import greedy_drafts
from torch import Tensor

# name: (kind of text, damage)
SETS: dict[str, tuple[str | None, str | None]] = {
    "held-out clean": ("prose", "clean"),
    "held-out print": ("prose", "print"),
    "held-out grey": ("prose", "grey"),
    "held-out typescript": ("prose", "typescript"),
    "held-out low": ("prose", "low"),
    "records clean": ("record", "clean"),
    "records grey": ("record", "grey"),
    "accents clean": ("other", "clean"),
    "everything": (None, None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A line read: the head's bytes, the decoder's, and the mean probability of the latter."""

    draft: bytes
    line: bytes
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of one set: character error rates in percent, share of lines read exactly.

    `auroc` says how well confidence tells lines with errors from lines without (1 is perfectly,
    0.5 not at all; nan where only one sort occurs). `ece` is the expected calibration error of
    confidence as the probability that a character is right, in percent (Guo et al., 2017).
    """

    lines: int
    draft_cer: float
    cer: float
    exact: float
    auroc: float
    ece: float


@torch.no_grad()
def write_line(model: Nano, tokens: Tensor, draft: bytes) -> tuple[bytes, float]:
    """Greedy decoding of one line, verified against its own draft: whole stretches a step.

    Returns the bytes and their mean probability.
    """
    prompt = pad_draft(draft, model.config.draft_length)
    guess, written, odds = [*draft, END], list[int](), list[float]()
    limit = len(draft) + 32
    while len(written) < limit and END not in written:
        text = torch.tensor([prompt + written + guess])
        logits = model.decode(tokens, text)[0, len(prompt) + len(written) - 1 :]
        best = logits.float().softmax(-1).max(-1)
        picked, likely = best.indices.tolist(), best.values.tolist()
        accepted = 0
        while accepted < len(guess) and picked[accepted] == guess[accepted]:
            accepted += 1
        written += picked[: accepted + 1]
        odds += likely[: accepted + 1]
        guess = _realign(draft, written)
    if END in written:
        written = written[: written.index(END)]
    line = bytes(token for token in written if token < 256)
    return line, sum(odds[: len(written) + 1]) / max(1, len(odds[: len(written) + 1]))


def _realign(draft: bytes, written: list[int]) -> list[int]:
    """What is left of the draft after `written`: the tail behind the best match of its end."""
    tail = bytes(token for token in written[-3:] if token < 256)
    centre = len(written)
    for size in (3, 2, 1):
        places = [
            place
            for place in range(max(0, centre - 8), min(len(draft), centre + 8))
            if draft[max(0, place - size) : place] == tail[-size:]
        ]
        if places:
            best = min(places, key=lambda place: abs(place - centre))
            return [*draft[best:], END]
    return [*draft[centre:], END]


@torch.no_grad()
def read(model: Nano, lines: Sequence[np.ndarray]) -> list[Reading]:
    """Read each crop, uint8 (28, width)."""
    results = []
    for pixels in lines:
        line = SyntheticLine(pixels=pixels, text="", centres=(), profile="", family="")
        batch = pack([line], BLANK)
        tokens, _ = model.visual(normalise(torch.from_numpy(batch.pixels)))
        draft = greedy_drafts(model.draft_head(tokens))[0]
        written, confidence = write_line(model, tokens, draft)
        results.append(Reading(draft=draft, line=written, confidence=confidence))
    return results


def score(model: Nano, lines: Sequence[tuple[np.ndarray, str]]) -> Score:
    """Read the lines and compare with their texts."""
    readings = read(model, [pixels for pixels, _ in lines])
    total = sum(len(text) for _, text in lines)
    draft_errors = 0
    errors: list[int] = []
    for (_, text), reading in zip(lines, readings, strict=True):
        draft_errors += edit_distance(text, reading.draft.decode(errors="replace"))
        errors.append(edit_distance(text, reading.line.decode(errors="replace")))
    confidences = [reading.confidence for reading in readings]
    right = [
        max(0.0, 1 - wrong / len(text)) for (_, text), wrong in zip(lines, errors, strict=True)
    ]
    return Score(
        lines=len(lines),
        draft_cer=100 * draft_errors / total,
        cer=100 * sum(errors) / total,
        exact=100 * sum(wrong == 0 for wrong in errors) / len(lines),
        auroc=auroc(confidences, [wrong > 0 for wrong in errors]),
        ece=100 * calibration_error(confidences, right),
    )


def synthetic_set(name: str, count: int, seed: int) -> list[tuple[np.ndarray, str]]:
    """Lines of up to 80 characters in fonts never trained on."""
    kind, profile = SETS[name]
    generator = LineGenerator(seed, held_out=True)
    drawn = (generator.draw(80, kind=kind, profile=profile) for _ in range(count))
    return [(line.pixels, line.text) for line in drawn]


def crops_set(folder: Path) -> list[tuple[np.ndarray, str]]:
    """Real crops with transcriptions from a folder of NAME.png and NAME.txt."""
    pairs = []
    for path in sorted(folder.glob("*.png")):
        grey = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        width = max(8, round(grey.shape[1] * LINE_HEIGHT / grey.shape[0]))
        way = cv2.INTER_AREA if grey.shape[0] > LINE_HEIGHT else cv2.INTER_CUBIC
        pixels = cv2.resize(grey, (width, LINE_HEIGHT), interpolation=way)
        pairs.append((pixels, path.with_suffix(".txt").read_text(encoding="utf-8").strip()))
    return pairs


def load(path: Path) -> Nano:
    """A training checkpoint's averaged weights, or an exported folder."""
    if path.is_file():
        return load_checkpoint(path)
    model = Nano()
    load_into(model, path)
    return model.eval()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--lines", type=int, default=200, help="lines a set")
    parser.add_argument("--seed", type=int, default=20_000)
    parser.add_argument("--crops", type=Path, help="folder of real crops with transcriptions")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = load(args.checkpoint)
    results: dict[str, dict[str, float]] = {}
    for name in args.sets:
        lines = synthetic_set(name, args.lines, args.seed)
        results[name] = _show(name, score(model, lines))
    if args.crops:
        results["crops"] = _show("crops", score(model, crops_set(args.crops)))
    print(json.dumps({"sets": results}))


def _show(name: str, result: Score) -> dict[str, float]:
    print(
        f"{name:22} {result.lines:5} lines  draft CER {result.draft_cer:6.2f} %  "
        f"CER {result.cer:6.2f} %  exact {result.exact:5.1f} %  "
        f"AUROC {result.auroc:.2f}  ECE {result.ece:.1f} %",
        flush=True,
    )
    return asdict(result)


if __name__ == "__main__":
    main()
