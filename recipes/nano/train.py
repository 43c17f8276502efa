"""Trains the nano reader within a time budget: `python train.py --minutes 120 --out run/`.

Resumable at any moment from OUT/checkpoint.pt (--resume), on CPU or CUDA (bf16 autocast where the
processor computes in it).
The curriculum follows the minutes already trained, so two runs of one seed see the same lines in
the same order but as many of them as the machine manages. It does not evaluate: evaluate.py does.
Several data workers were given up: one renders ten times faster than two cores can learn.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import queue
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import cv2
import torch
from data import Batch, LineGenerator, batches
from export import load_into
from model import BLANK, Nano, NanoConfig, look_back
from objective import POINTER_LAYERS, Mode, losses

torch.set_num_interop_threads(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of the schedule up to fraction `until` of the budget."""

    until: float
    mode: Mode
    longest: int


STAGES = (
    Stage(until=0.03, mode="read", longest=24),
    Stage(until=0.27, mode="read", longest=44),
    Stage(until=0.35, mode="write", longest=44),
    Stage(until=0.43, mode="read", longest=60),
    Stage(until=0.63, mode="write", longest=70),
    Stage(until=0.85, mode="joint", longest=70),
    Stage(until=1.00, mode="joint", longest=90),
)


# For a run that goes on from a trained model (--init).
CONTINUED = (
    Stage(until=0.35, mode="read", longest=64),
    Stage(until=0.75, mode="joint", longest=72),
    Stage(until=1.00, mode="joint", longest=90),
)


SETTLING_STEPS = 400  # of a run that goes on from an exported model


def stage_at(fraction: float, stages: Sequence[Stage] = STAGES) -> Stage:
    """The stage that holds at `fraction` of the budget."""
    return next((stage for stage in stages if fraction < stage.until), stages[-1])


def learning_rate(peak: float, step: int, fraction: float, flat: float = 0.15) -> float:
    """Warm-up over 150 steps, flat until `flat` of the budget, then linear to nothing."""
    left = min(1.0, max(0.0, 1.0 - fraction) / (1.0 - flat) + 0.002)
    return peak * min(1.0, (step + 1) / 150) * left


class Average:
    """Exponential moving average of the weights; its decay grows to 0.995 with the steps."""

    def __init__(self, model: Nano) -> None:
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: Nano, step: int) -> None:
        """Move the average towards the model's weights of now."""
        decay = min(0.995, (1 + step) / (10 + step))
        ours = list(self.weights.values())
        torch._foreach_lerp_(ours, [p.detach() for p in model.parameters()], 1 - decay)


def _worker(
    out: multiprocessing.Queue[Batch], longest: Synchronized[int], seed: int, tokens: int
) -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    generator = LineGenerator(seed)
    while True:
        for batch in batches(generator, longest.value, tokens, BLANK):
            out.put(batch)


@dataclass
class Run:
    """Everything that a checkpoint keeps."""

    model: Nano
    average: Average
    optimiser: torch.optim.Optimizer
    seed: int
    step: int = 0
    seconds: float = 0.0
    lines: int = 0
    characters: int = 0
    resumes: int = 0

    def save(self, path: Path) -> None:
        """Write the checkpoint beside `path` and move it there, so that one is always whole."""
        state = {
            "config": asdict(self.model.config),
            "model": self.model.state_dict(),
            "average": self.average.weights,
            "optimiser": self.optimiser.state_dict(),
        }
        numbers = ("seed", "step", "seconds", "lines", "characters", "resumes")
        state.update({name: getattr(self, name) for name in numbers})
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def restore(self, path: Path) -> None:
        """Take up a checkpoint that `save` wrote."""
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        device = next(self.model.parameters()).device
        self.average.weights = {k: v.to(device) for k, v in state["average"].items()}
        for name in ("seed", "step", "seconds", "lines", "characters"):
            setattr(self, name, state[name])
        self.resumes = state["resumes"] + 1


def build_run(args: argparse.Namespace) -> Run:
    """A new run, or the one that --resume finds in the output folder."""
    torch.manual_seed(args.seed)
    config = NanoConfig(**json.loads(args.config)) if args.config else NanoConfig()
    model = Nano(config)
    if args.init:
        load_into(model, Path(args.init))
    else:
        look_back(model, [layer for layer in POINTER_LAYERS if layer < config.depth])
    model.to(args.device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=args.peak, betas=(0.9, 0.98), weight_decay=0.02, fused=True
    )
    run = Run(model=model, average=Average(model), optimiser=optimiser, seed=args.seed)
    checkpoint = Path(args.out) / "checkpoint.pt"
    if args.resume and checkpoint.exists():
        run.restore(checkpoint)
    return run


def computes_bf16(device: torch.device) -> bool:
    """Whether bf16 is faster than fp32: a CPU that has to emulate it takes ten times as long."""
    if device.type != "cpu":
        return True
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def train_step(
    run: Run, batch: Batch, mode: Mode, rate: float, *, settling: bool = False
) -> dict[str, float]:
    """One optimiser step; returns the losses in nats. `settling`: see `losses`."""
    for group in run.optimiser.param_groups:
        group["lr"] = 1.5 * rate if mode == "write" else rate  # the decoder alone bears more
    device = next(run.model.parameters()).device
    chance = torch.Generator().manual_seed(run.seed * 1_000_003 + run.step)
    with torch.autocast(device.type, torch.bfloat16, enabled=computes_bf16(device)):
        parts = losses(run.model, batch, mode, chance, settling=settling)
    wanted = {
        "read": parts.reading,
        "write": parts.writing,
        "joint": lambda: parts.reading() + parts.writing(),
    }[mode]()
    run.optimiser.zero_grad(set_to_none=True)
    wanted.backward()
    norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    if math.isfinite(float(norm)):
        run.optimiser.step()
        run.average.update(run.model, run.step)
    run.step += 1
    run.lines += len(batch.targets)
    run.characters += sum(map(len, batch.targets))
    named = {"draft": parts.draft, "dense": parts.dense}
    named |= {"text": parts.text, "pointer": parts.pointer}
    values = {name: loss.item() for name, loss in named.items() if loss is not None}
    return values


def train(run: Run, args: argparse.Namespace) -> None:
    """Train until the budget is spent, saving every --save-minutes and at the end."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    budget = args.minutes * 60
    stages, flat = (CONTINUED, 0.2) if args.init else (STAGES, 0.15)
    context = multiprocessing.get_context("spawn")
    longest = context.Value("i", stage_at(run.seconds / budget, stages).longest)
    inbox: multiprocessing.Queue[Batch] = context.Queue(12)
    seed = run.seed + 7919 * (run.resumes + 1)
    worker = context.Process(
        target=_worker, args=(inbox, longest, seed, args.batch_tokens), daemon=True
    )
    worker.start()
    smooth: dict[str, float] = {}
    try:
        batch = _next(inbox, worker)
        last = saved = time.monotonic()  # the clock starts when the worker has read its sources
        with (out / "log.jsonl").open("a", encoding="utf-8") as log:
            while run.seconds < budget:
                fraction = run.seconds / budget
                stage = stage_at(fraction, stages)
                longest.value = stage.longest
                rate = learning_rate(args.peak, run.step, fraction, flat)
                settling = bool(args.init) and run.step < SETTLING_STEPS
                values = train_step(run, batch, stage.mode, rate, settling=settling)
                batch = _next(inbox, worker)
                for name, value in values.items():
                    smooth[name] = 0.97 * smooth.get(name, value) + 0.03 * value
                now = time.monotonic()
                run.seconds += now - last
                last = now
                if run.step % args.log_steps == 0:
                    record = {name: round(value, 4) for name, value in smooth.items()}
                    record |= {"step": run.step, "seconds": round(run.seconds), "lines": run.lines}
                    record |= {"characters": run.characters}
                    print(json.dumps(record | {"mode": stage.mode}), file=log, flush=True)
                if now - saved > args.save_minutes * 60:
                    run.save(out / "checkpoint.pt")
                    saved = now
    finally:
        run.save(out / "checkpoint.pt")
        worker.terminate()
        worker.join()


def _next(inbox: multiprocessing.Queue[Batch], worker: Any) -> Batch:
    while True:
        try:
            return inbox.get(timeout=30)
        except queue.Empty:
            if not worker.is_alive():
                raise RuntimeError("the data worker died; its traceback is above") from None


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, required=True, help="training time in all")
    parser.add_argument("--out", required=True, help="folder for checkpoint.pt and log.jsonl")
    parser.add_argument("--resume", action="store_true", help="go on from OUT/checkpoint.pt")
    parser.add_argument("--init", help="exported folder to go on from; also with --resume")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--batch-tokens", type=int, default=420, help="visual tokens a batch")
    parser.add_argument("--save-minutes", type=float, default=3.0)
    parser.add_argument("--log-steps", type=int, default=25)
    parser.add_argument("--config", help="JSON of NanoConfig fields that differ from the default")
    return parser.parse_args(arguments)


def _stop(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    """Entry point; a termination signal ends the run in order, its checkpoint saved."""
    args = parse()
    signal.signal(signal.SIGTERM, _stop)
    torch.set_num_threads(args.threads)
    train(build_run(args), args)


if __name__ == "__main__":
    main()
