"""`vlmcli ocr`: from the command line to `OcrOptions` and into the pipeline.

Checks what can be checked without opening anything, takes stdout, and imports the pipeline last.
"""

import os
from pathlib import Path

import typer

from vlmcli.cli import arguments as a
from vlmcli.cli import arguments_machine as m
from vlmcli.cli import arguments_server as s
from vlmcli.cli.console import set_up_logging, take_stdout
from vlmcli.cli.formats import chosen_formats, odd_name
from vlmcli.cli.progress import make_reporter
from vlmcli.errors import InputError, UsageError
from vlmcli.memory.address_space import TO_DRAW, require
from vlmcli.options import OcrOptions, parse_quantisations
from vlmcli.outputs.targets import STDOUT_NAMES

_DEFAULTS = OcrOptions(inputs=())


def ocr(
    inputs: a.Inputs,
    output: a.Output = _DEFAULTS.output,
    formats: a.Formats = None,
    pdfa: a.Pdfa = _DEFAULTS.pdfa,
    overwrite: a.Overwrite = _DEFAULTS.overwrite,
    resume: a.Resume = _DEFAULTS.resume,
    model: a.Model = _DEFAULTS.model,
    engine: a.Engine = _DEFAULTS.engine,
    task: a.Task = _DEFAULTS.task,
    pages: a.Pages = _DEFAULTS.pages,
    password: a.Password = None,
    password_file: a.PasswordFile = None,
    text_layer: a.TextLayer = _DEFAULTS.text_layer,
    dpi: a.Dpi = _DEFAULTS.dpi,
    max_pixels: a.MaxPixels = _DEFAULTS.max_pixels,
    frame_interval: a.FrameInterval = _DEFAULTS.frame_interval,
    max_tokens: a.MaxTokens = _DEFAULTS.max_tokens,
    reuse: a.Reuse = _DEFAULTS.reuse,
    drafts: a.Drafts = _DEFAULTS.drafts,
    device: m.Device = _DEFAULTS.device,
    dtype: m.DtypeOption = "auto",
    kv_dtype: m.KvDtypeOption = "auto",
    vision_kv_dtype: m.VisionKvDtypeOption = "auto",
    quantize: m.QuantizeOption = None,
    server: s.Server = _DEFAULTS.server,
    server_concurrency: s.ServerConcurrency = _DEFAULTS.server_concurrency,
    server_prompt: s.ServerPrompt = _DEFAULTS.server_prompt,
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
    quiet: a.Quiet = _DEFAULTS.quiet,
    verbose: a.Verbose = _DEFAULTS.verbose,
    recipe: a.Recipe = None,
    print_recipe: a.PrintRecipe = False,
    config: a.Config = None,
    no_config: a.NoConfig = False,
) -> None:
    """Read documents: every page's text, in order, on stdout or into files."""
    run(
        OcrOptions(
            inputs=tuple(inputs),
            output=output,
            formats=chosen_formats(formats, output, inputs),
            pdfa=pdfa,
            model=model,
            engine=engine,
            task=task,
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
            text_layer=text_layer,
            drafts=drafts,
            reuse=reuse,
            max_tokens=max_tokens,
            server=server,
            server_concurrency=server_concurrency,
            server_prompt=server_prompt,
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


def run(options: OcrOptions) -> None:
    """Run the job and leave with its exit code.

    Raises:
        typer.Exit: always, unless an error or a signal ends the job.
    """
    _check(options)
    stdout = take_stdout(is_needed=options.output in STDOUT_NAMES)
    set_up_logging(options.verbose, quiet=options.quiet)
    reporter = make_reporter(options)
    closing, is_news = "", False
    try:
        if warning := odd_name(options):
            reporter.warning(warning)
        require(TO_DRAW, "opening documents")
        from vlmcli.pipeline import run_ocr

        summary = run_ocr(options, stdout=stdout, reporter=reporter)
        closing = "\n".join([summary.line(), *summary.details()])
        is_news = summary.was_finished
    except KeyboardInterrupt as error:
        if options.output not in STDOUT_NAMES:
            error.add_note("run the same command with --resume to go on")
        raise
    finally:
        reporter.finish(closing, is_news=is_news)
    raise typer.Exit(summary.exit_code)


def _check(options: OcrOptions) -> None:
    """Refuse what contradicts itself before anything is opened."""
    if any(not item for item in options.inputs):
        raise UsageError("an input's name is empty")
    if options.ray_workers is not None and options.ray is None:
        raise UsageError("--ray-workers needs --ray", remedy="add --ray local, or an address")
    if options.pdfa and "pdf" not in options.formats:
        raise UsageError("--pdfa is about searchable PDFs", remedy="add -f pdf, or --no-pdfa")
    if options.inputs.count("-") > 1:
        raise UsageError("standard input can be read once only", remedy="give - once")


def read_password(password: str | None, file: Path | None) -> str | None:
    """The password: from the file if one was named, which beats the environment's."""
    if file is None:
        return password
    if password is not None and password != os.environ.get("VLMCLI_PASSWORD"):
        raise UsageError(
            "a password was given twice", remedy="give --password-file or --password, not both"
        )
    return first_line(file, "password file")


def first_line(file: Path, what: str) -> str:
    """The line, without its end, that a file with a secret begins with.

    Args:
        file: to read.
        what: it is called in messages.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with file.open(encoding="utf-8") as stream:
            return stream.readline().rstrip("\r\n")
    except FileNotFoundError as error:
        raise InputError(f"no such {what}: {file}", code="missing") from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the {what} {file}: {error}") from error
