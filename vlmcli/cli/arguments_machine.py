"""The options of what a job runs on, declared once."""

import re
from typing import Annotated, Literal

import typer

from vlmcli.errors import UsageError
from vlmcli.options import QUANTISATIONS, parse_size

_MACHINE = "Machine"

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
KvDtype = Literal["auto", "float32", "bfloat16", "float16", "int8"]


def _device(text: str) -> str:
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?", text) is None:
        raise UsageError(f"not a device: {text!r}", remedy="give auto, cpu, cuda or cuda:N")
    return text


def _ray(text: str) -> str:
    # Brings the package along, which every command would import at its start.
    from vlmcli.cluster.address import parse_address

    parse_address(text)
    return text


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
QuantizeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--quantize",
        metavar="LIST",
        help=f"Round matrices of the model while loading, some of {','.join(QUANTISATIONS)}; may "
        "be repeated. Saves memory, not time, and changes some texts.",
        rich_help_panel=_MACHINE,
        show_default=False,
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
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="local|auto|HOST:PORT",
        parser=_ray,
        help="Have a Ray cluster read the pages: one that is started here (local), the one that "
        "runs here (auto), or the one at an address, also ray://HOST:PORT.",
        rich_help_panel=_MACHINE,
        show_default=False,
    ),
]
RayWorkers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Models on the cluster. Default: one for each GPU, or for every four processors.",
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
