"""The options of reading on a server, declared once."""

from typing import Annotated

import typer

from vlmcli.options import ServerImage

_SERVER = "Server"

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
