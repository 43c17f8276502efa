"""Reading by somebody else's engine: pages go to any OpenAI-compatible server.

Importing this package does no work; `find_server` asks who is there, `load_remote` brings the
client. Neither torch nor a model of ours is loaded.
"""

from typing import TYPE_CHECKING

from vlmcli.options import OcrOptions
from vlmcli.reading import Reader

if TYPE_CHECKING:
    from vlmcli.remote.server import Server

DEFAULT_CONCURRENCY = 4


def num_pages_at_once(options: OcrOptions) -> int:
    """Pages that are with the server at a time; 0 in a job without one."""
    if options.server is None or options.text_layer == "only":
        return 0
    return options.server_concurrency or DEFAULT_CONCURRENCY


def load_remote(server: "Server", options: OcrOptions) -> Reader:
    """A reader that asks the server."""
    from vlmcli.remote.reader import RemoteReader

    return RemoteReader(server, options, num_pages=num_pages_at_once(options))
