"""`vlmcli bench gpu`: what only a GPU can prove, as one command.

Kernels against the reference; steps with captured graphs against the same steps without; memory
against the plan; decoding of one page against the bandwidth of the card's memory; many pages
against `transformers`. Random weights in bfloat16: what they say means nothing, but both runtimes
must say much the same. Assumes that nobody else uses the card.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from vlmcli.bench.checkpoints import Shape, write_checkpoint
from vlmcli.bench.page_peer import PagePeer
from vlmcli.bench.pages import page_picture
from vlmcli.bench.planned import planned
from vlmcli.bench.requests import endless, page_questions
from vlmcli.engine.config import EngineConfig, ModelConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.request import Request, RequestOutput
from vlmcli.engine.tokenizer import load_tokenizer
from vlmcli.errors import MissingExtraError, UsageError
from vlmcli.options import DEFAULT_DPI

_QUESTION = "Read the page."
_WARM_UP_TOKENS = 8
_COPY_BYTES = 1 << 30
_COPIES = 10
Say = Callable[[str], None]
T = TypeVar("T")


def run(shape: Shape, *, num_pages: int, max_tokens: int, device: str, say: Say) -> dict[str, Any]:
    """Measure; `say` gets the figures line by line.

    Returns:
        `card` and versions; `kernels_met`; and what `measure` returns.

    Raises:
        UsageError: there is no such CUDA device.
        MissingExtraError: there is no Triton.
    """
    place = _require_cuda(device)
    from vlmcli.bench.gpu_kernels import Sizes, compare_kernels

    triton_version = version("triton")
    properties = torch.cuda.get_device_properties(place)
    say(f"{properties.name}, torch {torch.__version__}, Triton {triton_version}")
    kernels = compare_kernels(place, Sizes())
    for one in kernels:
        verdict = "ok" if one.is_met else "TOO LARGE"
        say(f"  {one.name:<34} error {one.error:.2e} of {one.allowed:.2e} {verdict}")
    with tempfile.TemporaryDirectory(prefix="vlmcli-bench-") as folder:
        path = write_checkpoint(Path(folder), shape, lively=True, dtype=torch.bfloat16)
        found = measure(path, num_pages=num_pages, max_tokens=max_tokens, device=device, say=say)
    return {
        "card": properties.name,
        "torch": torch.__version__,
        "triton": triton_version,
        "cuda": torch.version.cuda,
        "kernels_met": all(one.is_met for one in kernels),
        "kernels": {one.name: [one.error, one.allowed] for one in kernels},
        **found,
    }


def measure(
    path: Path,
    *,
    num_pages: int,
    max_tokens: int,
    device: str,
    say: Say,
    dtype: str = "bfloat16",
    dpi: int = DEFAULT_DPI,
) -> dict[str, Any]:
    """Everything that needs a model. On a CPU, where only the code is tried, ratios mean nothing.

    Returns:
        `plan_ratio` (planned over taken), `graphs_ratio` (seconds without graphs over seconds
        with), `graphs_agree` and `transformers_agree` (share of tokens that are equal),
        `decode_tokens_per_s` of one page alone, `bandwidth_share` of what memory allows,
        `pages_ratio` (transformers' seconds over ours), and the figures that these are made of.
    """
    place = torch.device(device)
    height, width = page_picture(0, dpi=dpi).shape
    plan, config = planned([(width, height)] * num_pages, path, max_tokens, device, dtype)
    ours = _measure_ours(path, config, num_pages, max_tokens, place, dpi)
    peer = PagePeer(path, ours.model_config.image_token_id, place, ours.dtype)
    prompts = [request.prompt_token_ids for request in ours.work]
    pictures = [request.images[0].pixels for request in ours.work]
    peer.answer(prompts[:1], pictures[:1], _WARM_UP_TOKENS)
    theirs, peer_seconds = _timed(place, lambda: peer.answer(prompts, pictures, max_tokens))
    found = {
        "pages": num_pages,
        "tokens": max_tokens,
        "visual_tokens": ours.work[0].placeholders[0].length,
        "planned_bytes": plan.peak_bytes,
        "taken_bytes": ours.taken_bytes,
        "plan_ratio": _ratio(plan.peak_bytes, ours.taken_bytes),
        "seconds": round(ours.seconds, 3),
        "plain_seconds": round(ours.plain_seconds, 3),
        "transformers_seconds": round(peer_seconds, 3),
        "graphs_ratio": _ratio(ours.plain_seconds, ours.seconds),
        "graphs_agree": _agreement(ours.tokens, ours.plain_tokens),
        "decode_tokens_per_s": round(ours.decode_rate, 2),
        "bandwidth_share": _ratio(ours.decode_rate, ours.decode_limit),
        "pages_ratio": _ratio(peer_seconds, ours.seconds),
        "transformers_agree": _agreement(ours.tokens, theirs),
    }
    for name, value in found.items():
        say(f"  {name:<22} {value}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ours:
    """What the engine did: with captured graphs, and (`plain`) without."""

    model_config: ModelConfig
    dtype: torch.dtype
    work: list[Request]
    tokens: list[tuple[int, ...]]
    plain_tokens: list[tuple[int, ...]]
    seconds: float
    plain_seconds: float
    taken_bytes: int
    decode_rate: float
    decode_limit: float
    """Tokens a second of one page alone, and as many as the card can read the numbers for."""


def _measure_ours(
    path: Path, config: EngineConfig, num_pages: int, max_tokens: int, place: torch.device, dpi: int
) -> _Ours:
    _reset_peak(place)
    runner = ModelRunner.from_checkpoint(path, replace(config, enable_graphs=True))
    tokenizer = load_tokenizer(path)
    engine = Engine(runner, tokenizer, runner.config)
    pages = page_questions(engine, num_pages, [_QUESTION], max_tokens, dpi=dpi)
    work = [endless(request, max_tokens) for request in pages]
    _warm_up(engine, work[0])
    outputs, seconds = _timed(place, lambda: engine.generate(work))
    taken = _taken_bytes(place)
    rate = _decode_rate(engine, work[0], place)
    limit = _bandwidth(place) / _bytes_per_token(runner, work[0], max_tokens)
    runner.config = replace(runner.config, enable_graphs=False)
    engine = Engine(runner, tokenizer, runner.config)
    _warm_up(engine, work[0])
    plain, plain_seconds = _timed(place, lambda: engine.generate(work))
    return _Ours(
        model_config=runner.model_config,
        dtype=runner.dtype,
        work=work,
        tokens=[output.token_ids for output in outputs],
        plain_tokens=[output.token_ids for output in plain],
        seconds=seconds,
        plain_seconds=plain_seconds,
        taken_bytes=taken,
        decode_rate=rate,
        decode_limit=limit,
    )


def _require_cuda(device: str) -> torch.device:
    if not torch.cuda.is_available():
        raise UsageError(
            "bench gpu needs a CUDA device, and torch finds none",
            remedy="run it where nvidia-smi lists a card, with a torch that is built for CUDA",
        )
    place = torch.device(device)
    if place.type != "cuda" or (place.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"bench gpu cannot run on {device}", remedy="give cuda or cuda:N")
    if find_spec("triton") is None:
        raise MissingExtraError(
            "bench gpu compares Triton kernels, and Triton is not installed", "gpu"
        )
    torch.cuda.set_device(place.index or 0)
    return place


def _warm_up(engine: Engine, request: Request) -> None:
    """Every kind of step once; what the request leaves in caches is given up."""
    engine.generate([endless(replace(request, request_id="warm-up"), _WARM_UP_TOKENS)])
    engine.drop_caches()


def _timed(place: torch.device, work: Callable[[], T]) -> tuple[T, float]:
    _wait(place)
    started = time.perf_counter()
    found = work()
    _wait(place)
    return found, time.perf_counter() - started


def _wait(place: torch.device) -> None:
    if place.type == "cuda":
        torch.cuda.synchronize(place)


def _reset_peak(place: torch.device) -> None:
    if place.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place)


def _taken_bytes(place: torch.device) -> int:
    """Most that tensors took, and what is in use outside of torch's allocator: context, graphs."""
    if place.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(place)
    outside = total - free - torch.cuda.memory_reserved(place)
    return int(torch.cuda.max_memory_allocated(place)) + int(outside)


def _decode_rate(engine: Engine, request: Request, place: torch.device) -> float:
    """Tokens a second behind the first one of a page that is alone."""
    engine.add_request(replace(request, request_id="alone"))
    while not engine.step():
        pass
    outputs, seconds = _timed(place, lambda: list(_steps(engine)))
    return len(outputs) / seconds


def _steps(engine: Engine) -> Iterator[RequestOutput]:
    while engine.has_unfinished():
        yield from engine.step()


def _bytes_per_token(runner: ModelRunner, request: Request, num_tokens: int) -> float:
    """What a decode step of one page must read: the decoder's weights and half-grown KV.

    Of an embedding that is not the output layer as well one row is read, which is nothing.
    """
    model = cast(torch.nn.Module, runner.model)
    tied = runner.model_config.text.tie_word_embeddings
    weights = sum(
        value.nbytes
        for name, value in model.named_parameters()
        if not name.startswith("visual.") and (tied or "embed_tokens" not in name)
    )
    context = len(request.prompt_token_ids) + num_tokens / 2
    return weights + context * runner.bytes_per_block() / runner.config.block_size


def _bandwidth(place: torch.device) -> float:
    """Bytes a second that the device's memory moves in a large copy, read and written."""
    num_bytes = _COPY_BYTES if place.type == "cuda" else _COPY_BYTES >> 6
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=place)
    target = torch.empty_like(source).copy_(source)

    def copy() -> None:
        for _ in range(_COPIES):
            target.copy_(source)

    _, seconds = _timed(place, copy)
    return 2 * _COPIES * num_bytes / seconds


def _ratio(value: float, unit: float) -> float | None:
    """Rounded; None where nothing was measured to divide by."""
    return round(value / unit, 4) if unit else None


def _agreement(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> float:
    """Share of tokens that are equal, place by place."""
    pairs = [
        pair
        for one, other in zip(ours, theirs, strict=True)
        for pair in zip(one, other, strict=True)
    ]
    return round(sum(one == other for one, other in pairs) / len(pairs), 4)
