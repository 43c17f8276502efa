"""`vlmcli serve`: from the command line to `ServeOptions` and into the server.

Checks that the extra is installed, reads the key, and ends as signals say: 130 or 143.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlmcli.cli import arguments as a
from vlmcli.cli import arguments_machine as m
from vlmcli.cli import signals
from vlmcli.cli.console import say, set_up_logging, take_stdout
from vlmcli.cli.ocr import first_line
from vlmcli.errors import MissingExtraError, UsageError
from vlmcli.options import OcrOptions, parse_size

if TYPE_CHECKING:
    from vlmcli.serve.settings import ServeOptions

_DEFAULTS = OcrOptions(inputs=())
_LIBRARIES = ("fastapi", "uvicorn", "prometheus_client")
_SERVER = "Server"

Host = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Address to listen at. Any but the loopback device needs a key.",
        rich_help_panel=_SERVER,
    ),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="0 is any free one.", rich_help_panel=_SERVER)
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File whose first line is the key that clients must show; or VLMCLI_API_KEY.",
        rich_help_panel=_SERVER,
        show_default=False,
    ),
]
AllowedRoot = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of the pictures that requests may name by file:// URLs. Default: none.",
        rich_help_panel=_SERVER,
        show_default=False,
    ),
]
MaxBody = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=parse_size,
        help="Of a request's body. Default: 32MiB.",
        rich_help_panel=_SERVER,
        show_default=False,
    ),
]
MaxImages = Annotated[
    int, typer.Option(min=1, metavar="N", help="Pictures of a request.", rich_help_panel=_SERVER)
]
MaxQueue = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Requests that are taken and not yet answered; more are told to come back (429).",
        rich_help_panel=_SERVER,
    ),
]
Drain = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long running requests may take when the server is told to end.",
        rich_help_panel=_SERVER,
    ),
]
MaxPixels = Annotated[
    int,
    typer.Option(
        min=10_000,
        metavar="N",
        help="Of a request's pictures together; larger ones are refused.",
        rich_help_panel=_SERVER,
    ),
]
MaxTokens = Annotated[
    int, typer.Option(min=1, metavar="N", help="Of an answer.", rich_help_panel=_SERVER)
]


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key_file: ApiKeyFile = None,
    allowed_root: AllowedRoot = None,
    max_body: MaxBody = None,
    max_images: MaxImages = 16,
    max_pixels: MaxPixels = _DEFAULTS.max_pixels,
    max_tokens: MaxTokens = 4096,
    max_queue: MaxQueue = 32,
    drain: Drain = 30.0,
    model: a.Model = _DEFAULTS.model,
    device: m.Device = _DEFAULTS.device,
    dtype: m.DtypeOption = "auto",
    kv_dtype: m.KvDtypeOption = "auto",
    vision_kv_dtype: m.VisionKvDtypeOption = "auto",
    max_memory: m.MaxMemory = _DEFAULTS.max_memory,
    vision_cache: m.VisionCache = _DEFAULTS.vision_cache,
    jobs: m.Jobs = _DEFAULTS.jobs,
    threads: m.Threads = _DEFAULTS.threads,
    retries: a.Retries = _DEFAULTS.retries,
    quiet: a.Quiet = _DEFAULTS.quiet,
    verbose: a.Verbose = _DEFAULTS.verbose,
) -> None:
    """Answer OpenAI's chat completions with the engine, on this machine."""
    _require_extra()
    from vlmcli.serve.settings import MAX_BODY, ServeOptions

    job = OcrOptions(
        inputs=(),
        model=model,
        max_pixels=max_pixels,
        device=device,
        dtype=dtype,
        kv_dtype=kv_dtype,
        vision_kv_dtype=vision_kv_dtype,
        text_layer="ignore",
        reuse="exact",
        max_memory=max_memory,
        vision_cache=vision_cache,
        retries=retries,
        jobs=jobs,
        threads=threads,
        cache=False,
    )
    options = ServeOptions(
        job=job,
        host=host,
        port=port,
        allowed_root=allowed_root,
        max_body=max_body or MAX_BODY,
        max_images=max_images,
        max_queue=max_queue,
        max_tokens=max_tokens,
        drain=drain,
        api_key=read_key(api_key_file),
    )
    take_stdout(is_needed=False)
    set_up_logging(verbose, quiet=quiet)
    _run(options, quiet=quiet)


def _run(options: "ServeOptions", *, quiet: bool) -> None:
    """Serve until a signal comes, and leave with its exit code.

    Raises:
        typer.Exit: always, unless an error ends the server.
    """
    from vlmcli.serve.service import Service

    service = Service(options)
    ended = signals.install_gentle(service.stop)
    if not quiet:
        say(f"vlmcli: {service.label} answers at {service.url}")
    service.run()
    raise typer.Exit(ended.exit_code or 0)


def _require_extra() -> None:
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"vlmcli serve needs {', '.join(missing)}", "serve")


def read_key(file: Path | None) -> str | None:
    """The key that clients must show: from the file if one was named, else the environment's.

    Raises:
        InputError: the file cannot be read.
        UsageError: the key is empty.
    """
    key = os.environ.get("VLMCLI_API_KEY")
    if file is not None:
        key = first_line(file, "key file").strip()
    if key is not None and not key.strip():
        raise UsageError("the API key is empty", remedy="put it into the file's first line")
    return key
