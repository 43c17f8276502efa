"""`vlmcli plan`: from the command line to a `PlanRequest`, and from its plan to the exit code.

What planning needs is imported when it runs, since every other command imports this file too.
"""

from dataclasses import replace
from typing import Annotated

import typer

from vlmcli.answers import load_schema
from vlmcli.cli import arguments as a
from vlmcli.cli import arguments_machine as m
from vlmcli.cli.ask import AnswerSchema, checked_questions
from vlmcli.cli.console import say, take_stdout
from vlmcli.cli.ocr import read_password
from vlmcli.errors import ExitCode, UsageError
from vlmcli.memory.address_space import TO_DRAW, require
from vlmcli.options import (
    ASK_REUSE,
    DEFAULT_DPI,
    DEFAULT_FRAME_INTERVAL,
    DEFAULT_MAX_PIXELS,
    DEFAULT_MODEL,
    OcrOptions,
    parse_quantisations,
)

_DEFAULTS = OcrOptions(inputs=())
_MEMORY = "Memory"

PlanInputs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[INPUT...]",
        help="PDF, image or video files, directories, or - for stdin. Default: one A4 page.",
        show_default=False,
    ),
]
EstimateMemory = Annotated[
    bool,
    typer.Option(
        "--estimate-memory/--no-estimate-memory",
        help="Predict the peak; the only thing to plan so far.",
        rich_help_panel=_MEMORY,
    ),
]
Look = Annotated[
    bool,
    typer.Option(
        "--look",
        help="Draw up to 24 pages, to say how many have a sound text layer, are blank or are to be "
        "read.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")]
DeviceMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE|auto",
        help="Memory of the GPU to plan for, as in 24GiB; auto asks the one in this machine.",
        rich_help_panel=_MEMORY,
        show_default=False,
    ),
]
PlanQuestions = Annotated[
    list[str] | None,
    typer.Option(
        "--question",
        "-q",
        metavar="TEXT",
        help="Plan what ask would do with this question; may be repeated.",
        show_default=False,
    ),
]
PlanFormats = Annotated[list[str] | None, a.format_option(a.FORMATS, "text")]
PagesInFlight = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        metavar="N",
        help="Most pages at a time; fewer are planned where more do not fit. Default: by the "
        "device.",
        rich_help_panel=_MEMORY,
        show_default=False,
    ),
]


def plan(
    inputs: PlanInputs = None,
    estimate_memory: EstimateMemory = True,
    as_json: AsJson = False,
    look: Look = False,
    formats: PlanFormats = None,
    question: PlanQuestions = None,
    answer_schema: AnswerSchema = None,
    model: a.Model = DEFAULT_MODEL,
    engine: a.Engine = "native",
    pages: a.Pages = None,
    password: a.Password = None,
    password_file: a.PasswordFile = None,
    strict: a.Strict = False,
    text_layer: a.TextLayer = _DEFAULTS.text_layer,
    dpi: a.Dpi = DEFAULT_DPI,
    max_pixels: a.MaxPixels = DEFAULT_MAX_PIXELS,
    frame_interval: a.FrameInterval = DEFAULT_FRAME_INTERVAL,
    max_tokens: a.MaxTokens = None,
    device: m.Device = "auto",
    device_memory: DeviceMemory = None,
    max_memory: m.MaxMemory = None,
    dtype: m.DtypeOption = "auto",
    kv_dtype: m.KvDtypeOption = "auto",
    vision_kv_dtype: m.VisionKvDtypeOption = "auto",
    quantize: m.QuantizeOption = None,
    vision_cache: m.VisionCache = None,
    pages_in_flight: PagesInFlight = None,
    jobs: m.Jobs = None,
    ray_workers: m.RayWorkers = None,
    reuse: a.Reuse = "verified",
    drafts: a.Drafts = "auto",
    cache: m.Cache = True,
    recipe: a.Recipe = None,
    print_recipe: a.PrintRecipe = False,
    config: a.Config = None,
    no_config: a.NoConfig = False,
) -> None:
    """Predict memory and tokens of a job before anything is rendered or loaded."""
    if not estimate_memory:
        raise UsageError("nothing to plan", remedy="leave out --no-estimate-memory")
    stdout = take_stdout(is_needed=True)
    require(TO_DRAW, "opening documents")
    from vlmcli.cli.plan_job import make_plan
    from vlmcli.cli.plan_view import plan_json, plan_table
    from vlmcli.memory.request import PlanRequest
    from vlmcli.outputs.base import encode

    questions = checked_questions(question or [])
    job = OcrOptions(
        inputs=tuple(inputs or ()),
        question=questions,
        answer_schema=None if answer_schema is None else load_schema(answer_schema),
        formats=tuple(map(a.parse_format, formats)) if formats else _DEFAULTS.formats,
        model=model,
        engine=engine,
        pages=pages,
        dpi=dpi,
        max_pixels=max_pixels,
        frame_interval=frame_interval,
        max_tokens=max_tokens,
        device=device,
        max_memory=max_memory,
        dtype=dtype,
        kv_dtype=kv_dtype,
        vision_kv_dtype=vision_kv_dtype,
        quantize=parse_quantisations(quantize or ()),
        vision_cache=vision_cache,
        jobs=jobs,
        reuse=ASK_REUSE if questions else reuse,
        cache=cache,
        drafts=drafts,
        # As `ask` does.
        text_layer="ignore" if questions else text_layer,
    )
    request = replace(
        PlanRequest.of(job),
        device_memory=device_memory,
        pages_in_flight=pages_in_flight,
        ray_workers=ray_workers,
    )
    secret = read_password(password, password_file)
    done = make_plan(request, password=secret, strict=strict, look=look)
    for warning in done.warnings:
        say(f"vlmcli: warning: {warning}")
    show = plan_json if as_json else plan_table
    text = show(done.plan, done.cap_source, done.cluster, done.ahead)
    stdout.write(encode(text))
    raise typer.Exit(ExitCode.OK if done.plan.fits else ExitCode.WILL_NOT_FIT)
