"""The settings of a server, resolved once, and what makes them unsafe. Plain data."""

import ipaddress
import socket
from dataclasses import dataclass, field
from pathlib import Path

from vlmcli.errors import UsageError
from vlmcli.options import OcrOptions
from vlmcli.paths import is_folder

MAX_BODY = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `vlmcli serve` was asked to do. Sizes in bytes, times in seconds.

    Attributes:
        job: model, device and memory, as for a job of `ocr`; its inputs are empty.
        allowed_root: folder of the files that requests may name; None for none.
        max_body: of a request.
        max_images: pictures of a request.
        max_queue: requests that are taken and not yet answered.
        max_tokens: of an answer.
        drain: how long running requests may take when the server is told to end.
        api_key: what clients have to show; never printed.
    """

    job: OcrOptions
    host: str = "127.0.0.1"
    port: int = 8000
    allowed_root: Path | None = None
    max_body: int = MAX_BODY
    max_images: int = 16
    max_queue: int = 32
    max_tokens: int = 4096
    drain: float = 30.0
    api_key: str | None = field(default=None, repr=False)


def require_safe(options: ServeOptions) -> None:
    """Check that strangers cannot reach the server without a key.

    Raises:
        UsageError: they could; or the allowed root is no folder.
    """
    if options.api_key is None and not is_loopback(options.host):
        raise UsageError(
            f"{options.host} can be reached from other machines, and there is no API key",
            remedy="give --api-key-file FILE or VLMCLI_API_KEY, or leave --host out",
        )
    if options.allowed_root is not None and not is_folder(options.allowed_root):
        raise UsageError(f"--allowed-root is no folder: {options.allowed_root}")


def is_loopback(host: str) -> bool:
    """Whether a name or address stands for this machine alone.

    Raises:
        UsageError: there is no such host.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"no such host: {host!r} ({error.strerror})") from error
    return all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in found)
