"""`vlmcli ask`: `ocr`'s job with questions: every page is asked all of them, one after the other.

From the command line to `OcrOptions`; the run itself, its journal and its exit codes are `ocr`'s.
"""

from typing import Annotated

import typer

from vlmcli.answers import load_schema
from vlmcli.cli import arguments as a
from vlmcli.cli import arguments_machine as m
from vlmcli.cli import arguments_server as s
from vlmcli.cli.formats import chosen_formats
from vlmcli.cli.ocr import read_password, run
from vlmcli.errors import UsageError
from vlmcli.options import ASK_REUSE, Format, OcrOptions, parse_quantisations

_DEFAULTS = OcrOptions(inputs=())
_FORMATS: tuple[Format, ...] = ("text", "jsonl")

Questions = Annotated[
    list[str],
    typer.Option(
        "--question",
        "-q",
        metavar="TEXT",
        help="What every page is asked; may be repeated. The page is encoded and its part of the "
        "prompt computed once for all questions. The built-in model only reads lines: whatever "
        "it is asked, it answers with the page's text.",
        show_default=False,
    ),
]
Formats = Annotated[list[str] | None, a.format_option(_FORMATS)]
AnswerSchema = Annotated[
    str | None,
    typer.Option(
        "--answer-schema",
        metavar="FILE|JSON",
        help="JSON Schema that a page's answers, each a JSON object, must satisfy together. What "
        "does not is asked for again, --retries times; records have the object as data.",
        show_default=False,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet/--no-quiet", help="Errors only.", rich_help_panel="Running")
]


def ask(
    inputs: a.Inputs,
    question: Questions,
    answer_schema: AnswerSchema = None,
    output: a.Output = _DEFAULTS.output,
    formats: Formats = None,
    overwrite: a.Overwrite = _DEFAULTS.overwrite,
    resume: a.Resume = _DEFAULTS.resume,
    model: a.Model = _DEFAULTS.model,
    engine: a.Engine = _DEFAULTS.engine,
    pages: a.Pages = _DEFAULTS.pages,
    password: a.Password = None,
    password_file: a.PasswordFile = None,
    dpi: a.Dpi = _DEFAULTS.dpi,
    max_pixels: a.MaxPixels = _DEFAULTS.max_pixels,
    frame_interval: a.FrameInterval = _DEFAULTS.frame_interval,
    max_tokens: a.MaxTokens = _DEFAULTS.max_tokens,
    drafts: a.Drafts = _DEFAULTS.drafts,
    device: m.Device = _DEFAULTS.device,
    dtype: m.DtypeOption = "auto",
    kv_dtype: m.KvDtypeOption = "auto",
    vision_kv_dtype: m.VisionKvDtypeOption = "auto",
    quantize: m.QuantizeOption = None,
    server: s.Server = _DEFAULTS.server,
    server_concurrency: s.ServerConcurrency = _DEFAULTS.server_concurrency,
    server_image: s.ServerImageOption = _DEFAULTS.server_image,
    max_memory: m.MaxMemory = _DEFAULTS.max_memory,
    vision_cache: m.VisionCache = _DEFAULTS.vision_cache,
    jobs: m.Jobs = _DEFAULTS.jobs,
    threads: m.Threads = _DEFAULTS.threads,
    ray: m.Ray = _DEFAULTS.ray,
    ray_workers: m.RayWorkers = _DEFAULTS.ray_workers,
    cache: m.Cache = _DEFAULTS.cache,
    page_timeout: a.PageTimeout = _DEFAULTS.page_timeout,
    retries: a.Retries = _DEFAULTS.retries,
    strict: a.Strict = _DEFAULTS.strict,
    fail_fast: a.FailFast = _DEFAULTS.fail_fast,
    progress: a.Progress = _DEFAULTS.progress,
    stats: a.Stats = _DEFAULTS.stats,
    quiet: Quiet = _DEFAULTS.quiet,
    verbose: a.Verbose = _DEFAULTS.verbose,
    recipe: a.Recipe = None,
    print_recipe: a.PrintRecipe = False,
    config: a.Config = None,
    no_config: a.NoConfig = False,
) -> None:
    """Put questions to the pages of documents; every page answers all of them."""
    run(
        OcrOptions(
            inputs=tuple(inputs),
            question=checked_questions(question),
            answer_schema=None if answer_schema is None else load_schema(answer_schema),
            output=output,
            formats=chosen_formats(formats, output, inputs, _FORMATS),
            model=model,
            engine=engine,
            pages=pages,
            password=read_password(password, password_file),
            dpi=dpi,
            max_pixels=max_pixels,
            frame_interval=frame_interval,
            device=device,
            dtype=dtype,
            kv_dtype=kv_dtype,
            vision_kv_dtype=vision_kv_dtype,
            quantize=parse_quantisations(quantize or ()),
            text_layer="ignore",
            drafts=drafts,
            reuse=ASK_REUSE,
            max_tokens=max_tokens,
            server=server,
            server_concurrency=server_concurrency,
            server_image=server_image,
            max_memory=max_memory,
            vision_cache=vision_cache,
            page_timeout=page_timeout,
            retries=retries,
            jobs=jobs,
            threads=threads,
            ray=ray,
            ray_workers=ray_workers,
            resume=resume,
            cache=cache,
            overwrite=overwrite,
            strict=strict,
            fail_fast=fail_fast,
            progress=progress,
            stats=stats,
            quiet=quiet,
            verbose=verbose,
            config=not no_config,
        )
    )


def checked_questions(questions: list[str]) -> tuple[str, ...]:
    """The questions without blanks around them.

    Raises:
        UsageError: one of them is empty.
    """
    texts = tuple(text.strip() for text in questions)
    if not all(texts):
        raise UsageError("a question is empty")
    return texts
