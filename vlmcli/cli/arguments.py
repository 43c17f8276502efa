"""Every option of the command line, declared once: name, help text, panel and parser.

Defaults stand in `options.OcrOptions` alone; here an option that was not given is None or empty.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from vlmcli.errors import UsageError
from vlmcli.options import (
    DRAFT_SOURCES,
    Format,
    ProgressMode,
    ReuseMode,
    ServerImage,
    TextLayerMode,
    draft_sources,
    parse_size,
)

_READING = "Reading"
_MACHINE = "Machine"
_RUNNING = "Running"
_SERVER = "Server"

FORMATS: tuple[Format, ...] = get_args(Format)
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
KvDtype = Literal["auto", "float32", "bfloat16", "float16", "int8"]


def _device(text: str) -> str:
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?", text) is None:
        raise UsageError(f"not a device: {text!r}", remedy="give auto, cpu, cuda or cuda:N")
    return text


def _drafts(text: str) -> str:
    draft_sources(text)
    return text


def parse_format(text: str) -> Format:
    """An output format by name.

    Raises:
        UsageError: there is no such format.
    """
    for name in FORMATS:
        if name == text:
            return name
    raise UsageError(f"not a format: {text!r}", remedy=f"choose one of {', '.join(FORMATS)}")


def format_option(formats: Sequence[Format]) -> Any:
    """`--format` of a command that writes these formats."""
    return typer.Option(
        "--format",
        "-f",
        metavar="|".join(formats),
        autocompletion=lambda: list(formats),
        help="Output format; may be repeated. Default: text.",
        show_default=False,
    )


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="PDF or image files, directories (read recursively), or - for stdin.",
        show_default=False,
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="A file for all documents; a directory (exists, ends with /, or has no suffix while "
        "there are several documents) for one file each. Default: stdout.",
        show_default=False,
    ),
]
Formats = Annotated[list[str] | None, format_option(FORMATS)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing outputs.")]
Resume = Annotated[
    bool,
    typer.Option("--resume/--no-resume", help="Go on with an interrupted run of the same command."),
]

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|PATH",
        envvar="VLMCLI_MODEL",
        help="Built-in model or directory of a checkpoint.",
        rich_help_panel=_READING,
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Have the pages read by an OpenAI-compatible server, as in http://127.0.0.1:8000/v1; "
        "--model is its name there. Key: VLMCLI_SERVER_API_KEY.",
        rich_help_panel=_SERVER,
        show_default=False,
    ),
]
ServerConcurrency = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Pages with the server at a time. Default: 4.",
        rich_help_panel=_SERVER,
        show_default=False,
    ),
]
ServerPrompt = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="What the server is asked about every page. Default: to write down its text.",
        rich_help_panel=_SERVER,
        show_default=False,
    ),
]
ServerImageOption = Annotated[
    ServerImage,
    typer.Option(
        "--server-image",
        help="How pages are sent: without loss, or smaller.",
        rich_help_panel=_SERVER,
    ),
]
Pages = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Pages to read, from 1, as in 1,3-5,7-end. Default: all.",
        rich_help_panel=_READING,
        show_default=False,
    ),
]
Password = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        envvar="VLMCLI_PASSWORD",
        help="Password of encrypted PDFs. Other users can see it in the process list: prefer the "
        "variable or a file.",
        rich_help_panel=_READING,
        show_default=False,
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File whose first line is the password.",
        rich_help_panel=_READING,
        show_default=False,
    ),
]
TextLayer = Annotated[
    TextLayerMode,
    typer.Option(
        help="A page's own text: used where it is sound (auto), never (ignore), always and no "
        "model (only), or as a draft that the model verifies (draft).",
        rich_help_panel=_READING,
    ),
]
Dpi = Annotated[
    int,
    typer.Option(
        min=36,
        max=1200,
        help="Resolution for rendering PDF pages; images keep their own.",
        rich_help_panel=_READING,
    ),
]
MaxPixels = Annotated[
    int,
    typer.Option(
        min=10_000,
        metavar="N",
        help="Larger pages are read at a lower resolution and marked downscaled.",
        rich_help_panel=_READING,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Most tokens of one answer. Default: what the model allows.",
        rich_help_panel=_READING,
        show_default=False,
    ),
]
Reuse = Annotated[
    ReuseMode,
    typer.Option(
        help="Which repeated pages are not read again: none (off), equal pixels (exact), also "
        "those proven equal (verified) or much alike (similar).",
        rich_help_panel=_READING,
    ),
]
Drafts = Annotated[
    str,
    typer.Option(
        metavar="auto|off|LIST",
        parser=_drafts,
        help=f"Sources of drafted text, some of {','.join(DRAFT_SOURCES)}. Drafts save time and "
        "never change a text.",
        rich_help_panel=_READING,
    ),
]

Device = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda[:N]",
        parser=_device,
        help="Where the model runs.",
        rich_help_panel=_MACHINE,
    ),
]
DtypeOption = Annotated[
    Dtype, typer.Option("--dtype", help="Number format of the model.", rich_help_panel=_MACHINE)
]
KvDtypeOption = Annotated[
    KvDtype,
    typer.Option(
        "--kv-dtype",
        help="Number format of the KV cache. int8 saves memory and changes some texts.",
        rich_help_panel=_MACHINE,
    ),
]
VisionKvDtypeOption = Annotated[
    KvDtype,
    typer.Option(
        "--vision-kv-dtype",
        help="Number format of the KV of images; auto is that of --kv-dtype.",
        rich_help_panel=_MACHINE,
    ),
]
MaxMemory = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=parse_size,
        help="Refuse jobs that need more memory, as in 4GiB; exit 6.",
        rich_help_panel=_MACHINE,
        show_default=False,
    ),
]
VisionCache = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=parse_size,
        help="Memory for keeping image results within the run, as in 512MiB.",
        rich_help_panel=_MACHINE,
        show_default=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        metavar="N",
        help="Processes that render pages. Default: by the machine.",
        rich_help_panel=_MACHINE,
        show_default=False,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Threads of the model. Default: by the machine.",
        rich_help_panel=_MACHINE,
        show_default=False,
    ),
]
Cache = Annotated[
    bool,
    typer.Option(
        "--cache/--no-cache",
        help="Keep results on disk and use those of earlier runs.",
        rich_help_panel=_MACHINE,
    ),
]

PageTimeout = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        metavar="SECONDS",
        help="Give up a page after this time; its record says timeout.",
        rich_help_panel=_RUNNING,
        show_default=False,
    ),
]
Retries = Annotated[
    int,
    typer.Option(min=0, help="Further attempts at a page that failed.", rich_help_panel=_RUNNING),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Refuse damaged files instead of repairing them.", rich_help_panel=_RUNNING
    ),
]
FailFast = Annotated[
    bool,
    typer.Option(
        "--fail-fast",
        help="Stop at the first page or document that fails.",
        rich_help_panel=_RUNNING,
    ),
]
Progress = Annotated[
    ProgressMode,
    typer.Option(
        help="On stderr: drawn on a terminal (auto, rich), one JSON event a page (json), or none.",
        rich_help_panel=_RUNNING,
    ),
]
Stats = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write the run's figures as JSON.",
        rich_help_panel=_RUNNING,
        show_default=False,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Errors only.", rich_help_panel=_RUNNING)
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        metavar="",
        help="Say more; twice for details.",
        rich_help_panel=_RUNNING,
        show_default=False,
    ),
]
