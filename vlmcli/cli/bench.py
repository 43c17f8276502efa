"""`vlmcli bench`: comparisons that anybody can repeat; a table, then one line of JSON, last."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vlmcli.cli import arguments as a
from vlmcli.cli import arguments_machine as m
from vlmcli.errors import UsageError
from vlmcli.options import DEFAULT_MODEL

app = typer.Typer(
    help="Measure: engine against transformers, memory against page count, what reuse and drafts "
    "save, what a GPU does.",
    no_args_is_help=True,
)


@app.command()
def memory(
    pages: Annotated[str, typer.Option(metavar="N,N", help="Page counts to compare.")] = "50,1000",
    max_memory: m.MaxMemory = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the longest job's memory as a PNG."),
    ] = None,
    overwrite: a.Overwrite = False,
) -> None:
    """Peak memory of a short and a long job on distinct scanned pages. Linux only."""
    from vlmcli.bench import memory as bench

    _show(
        lambda say: bench.run(
            _counts(pages), say, max_memory=max_memory, plot=plot, overwrite=overwrite
        )
    )


@app.command()
def plan(
    device: m.Device = "cpu",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Jobs that have these words in their name, as in 'nano 50'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    measured: Annotated[
        bool, typer.Option("--probe", help="Plan with this machine's coefficients.")
    ] = False,
) -> None:
    """Planned against measured peak memory, job by job. Linux only."""
    from vlmcli.bench import plan as bench

    cases = bench.choose(only or ())
    _show(lambda say: bench.run(cases, device, say, probe=measured))


@app.command()
def probe(
    model: a.Model = DEFAULT_MODEL,
    device: m.Device = "cpu",
    dtype: m.DtypeOption = "auto",
) -> None:
    """Measure what this machine adds to a model's shapes; later plans use it. Linux only."""
    from vlmcli.bench import probe as bench

    _show(lambda say: bench.run(model, device, dtype, say))


@app.command()
def engine(
    lines: Annotated[int, typer.Option(min=1, help="Text lines that a line reader reads.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Threads of both runtimes.")] = 1,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME|DIR",
            help="Built-in model or a checkpoint; or random weights that are written for the "
            "occasion: random-qwen2-vl (210 million), random-smolvlm (shape of SmolVLM-256M).",
        ),
    ] = "nano",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Tiny random weights, short answers: no figures to go by."),
    ] = False,
) -> None:
    """Our engine against transformers' generate: same weights, same work, same tokens.

    A page reader reads pages one at a time and sixteen unlike ones together, with answers of 20 to
    400 tokens. Page readers: Linux only.
    """
    from vlmcli.bench import engine as bench

    _show(lambda say: bench.run(model, num_lines=lines, quick=quick, threads=threads, say=say))


@app.command()
def drafts(
    pages: Annotated[int, typer.Option(min=1, help="Pages of each document.")] = 4,
    lines: Annotated[int, typer.Option(min=3, max=48, help="Lines of a page.")] = 40,
    size: Annotated[
        Literal["small", "mid"],
        typer.Option(help="Random checkpoint: 20 or 210 million parameters."),
    ] = "mid",
    max_tokens: Annotated[int, typer.Option(min=2, help="Tokens of its answers.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Times to read each document each way.")] = 2,
) -> None:
    """Tokens per forward pass with drafts and without: text layers, old texts. Linux only."""
    from vlmcli.bench import drafts as bench
    from vlmcli.bench.reuse import SIZES

    _show(lambda say: bench.run(pages, lines, rounds, SIZES[size], max_tokens, say))


@app.command()
def repeats(
    equal: Annotated[int, typer.Option(min=2, help="Copies of one page.")] = 200,
    frames: Annotated[int, typer.Option(min=2, help="Frames of a screen recording.")] = 300,
    distinct: Annotated[int, typer.Option(min=1, help="Pages that differ.")] = 40,
    rounds: Annotated[int, typer.Option(min=1, help="Times to read those each way.")] = 3,
) -> None:
    """What reuse saves on pages that repeat, and costs on pages that do not. Linux only."""
    from vlmcli.bench import repeats as bench

    _show(lambda say: bench.run(equal, frames, distinct, rounds, say))


@app.command()
def reuse(
    size: Annotated[
        Literal["small", "mid"],
        typer.Option(help="Random checkpoint: 20 or 210 million parameters."),
    ] = "mid",
    pages: Annotated[int, typer.Option(min=1, help="Pages.")] = 2,
    questions: Annotated[int, typer.Option(min=1, max=6, help="Questions per page.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=2, help="Tokens of an answer.")] = 32,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the model.")] = 1,
) -> None:
    """Several questions per page: no cache, embeddings, prefix KV, drafts. Linux only."""
    from vlmcli.bench import reuse as bench

    _show(
        lambda say: bench.run(
            bench.SIZES[size],
            num_pages=pages,
            num_questions=questions,
            max_tokens=max_tokens,
            threads=threads,
            say=say,
        )
    )


@app.command()
def server(
    pages: Annotated[int, typer.Option(min=1, help="Pages.")] = 8,
    size: Annotated[
        Literal["tiny", "small", "mid"],
        typer.Option(help="Random checkpoint: 0.7, 20 or 210 million parameters."),
    ] = "tiny",
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a page's answer.")] = 64,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Pages that are with a server at a time.")
    ] = 4,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Starts another server, as in 'vllm serve {model} --port {port}'.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Another server that runs already.", show_default=False),
    ] = None,
) -> None:
    """The same pages read here, by `vlmcli serve`, and by another server. Linux only."""
    from vlmcli.bench import checkpoints
    from vlmcli.bench import server as bench

    if start is not None and url is not None:
        raise UsageError("--start and --url name two other servers", remedy="give one of them")
    shapes = {
        "tiny": checkpoints.TINY,
        "small": checkpoints.SMALL,
        "mid": checkpoints.REUSE,
    }
    _show(
        lambda say: bench.run(
            shapes[size],
            num_pages=pages,
            max_tokens=max_tokens,
            concurrency=concurrency,
            start=start,
            url=url,
            say=say,
        )
    )


@app.command()
def gpu(
    size: Annotated[
        Literal["small", "mid", "3b"],
        typer.Option(help="Random checkpoint: 20, 210 or 4,000 million parameters."),
    ] = "3b",
    pages: Annotated[int, typer.Option(min=1, help="A4 pages that are read together.")] = 16,
    max_tokens: Annotated[int, typer.Option(min=16, help="Tokens of each page's answer.")] = 1000,
    device: Annotated[str, typer.Option(metavar="cuda[:N]", help="The card.")] = "cuda",
) -> None:
    """What a GPU must prove: kernels, graphs, plan, decoding, and pages against transformers."""
    from vlmcli.bench import checkpoints
    from vlmcli.bench import gpu as bench

    shapes = {
        "small": checkpoints.SMALL,
        "mid": checkpoints.REUSE,
        "3b": checkpoints.THREE_BILLION,
    }
    _show(
        lambda say: bench.run(
            shapes[size], num_pages=pages, max_tokens=max_tokens, device=device, say=say
        )
    )


def _show(run: Callable[[Callable[[str], None]], dict[str, Any]]) -> None:
    result = run(typer.echo)
    typer.echo(json.dumps(result))


def _counts(text: str) -> list[int]:
    try:
        counts = [int(item) for item in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise UsageError(f"not a list of page counts: {text!r}", remedy="write --pages 50,1000")
    return counts
