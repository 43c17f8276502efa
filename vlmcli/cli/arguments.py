"""Options that commands share, declared once: name, help text, panel and parser.

Those about the machine and about servers are in files of their own beside this one.
Defaults stand in `options.OcrOptions` alone; here an option that was not given is None or empty.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from vlmcli.errors import UsageError
from vlmcli.options import (
    DRAFT_READERS,
    DRAFT_SOURCES,
    EngineName,
    Format,
    ProgressMode,
    ReuseMode,
    TaskName,
    TextLayerMode,
    draft_sources,
)
from vlmcli.recipes.named import recipe_names

_READING = "Reading"
_RUNNING = "Running"
_FILES = "Options from files"

FORMATS: tuple[Format, ...] = get_args(Format)


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


def format_option(
    formats: Sequence[Format], default: str = "by the suffix after -o, else text"
) -> Any:
    """`--format` of a command that writes these formats; `default` is for its help."""
    return typer.Option(
        "--format",
        "-f",
        metavar="|".join(formats),
        autocompletion=lambda: list(formats),
        help=f"Output format; may be repeated. Default: {default}.",
        show_default=False,
    )


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="PDF, image or video files, directories (read recursively), or - for stdin.",
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
        "there are several documents) for one file each. Without -f the suffix of a file says "
        "the format: .md, .jsonl, .hocr, .html (hOCR), .xml (ALTO), .pdf; any other is text. "
        "Default: stdout.",
        show_default=False,
    ),
]
Formats = Annotated[list[str] | None, format_option(FORMATS)]
Pdfa = Annotated[
    bool,
    typer.Option(
        "--pdfa/--no-pdfa",
        help="Make -f pdf PDF/A-2b (3b with attachments); a PDF that cannot become that is "
        "refused before anything is read.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing outputs.")]
Resume = Annotated[
    bool,
    typer.Option("--resume/--no-resume", help="Go on with an interrupted run of the same command."),
]

Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME|FILE",
        help="Options from a recipe: "
        + ", ".join(recipe_names())
        + ", or a TOML file. Options on the "
        "command line and VLMCLI_* variables beat it.",
        autocompletion=recipe_names,
        show_default=False,
        rich_help_panel=_FILES,
    ),
]
PrintRecipe = Annotated[
    bool,
    typer.Option(
        "--print-recipe",
        help="Print the options that would be in effect as a recipe, and end.",
        rich_help_panel=_FILES,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="This configuration file alone. Default: vlmcli.toml or pyproject.toml of the "
        "project, under that ~/.config/vlmcli/config.toml.",
        show_default=False,
        rich_help_panel=_FILES,
    ),
]
NoConfig = Annotated[
    bool,
    typer.Option("--no-config", help="No configuration file.", rich_help_panel=_FILES),
]

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|PATH",
        envvar="VLMCLI_MODEL",
        help="Built-in model, rapidocr, or a checkpoint: its directory, or its name on the hub.",
        rich_help_panel=_READING,
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        help="What runs a checkpoint: our own engine, or transformers, which knows more "
        "families and is slower.",
        rich_help_panel=_READING,
    ),
]
Task = Annotated[
    TaskName,
    typer.Option(
        help="What a model that reads pages whole is asked for, in its family's own words. All but "
        "text are for the model, whatever the page's own text layer says.",
        rich_help_panel=_READING,
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
FrameInterval = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=1_000_000,
        metavar="SECONDS",
        help="Videos: a page for what is on display every so many seconds.",
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
        help=f"Sources of drafted text, some of {','.join(DRAFT_SOURCES)}; or also one of "
        f"{' and '.join(DRAFT_READERS)}, which reads every page first for a model that reads pages "
        "whole. Drafts save time and never change a text.",
        rich_help_panel=_READING,
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
        "--strict/--no-strict",
        help="Refuse damaged files instead of repairing them.",
        rich_help_panel=_RUNNING,
    ),
]
FailFast = Annotated[
    bool,
    typer.Option(
        "--fail-fast/--no-fail-fast",
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
    bool, typer.Option("--quiet/--no-quiet", "-q", help="Errors only.", rich_help_panel=_RUNNING)
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
