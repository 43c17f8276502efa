"""Where a server is and how it is addressed: URL, key, proxies. Opens no connection.

Keys come from the environment alone and stay here and in the header of requests. A URL that holds a
password or a query is refused, because URLs stand in records, journals and messages.
"""

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from vlmcli.errors import UsageError

_TAILS = ("/chat/completions", "/models")
_EXAMPLE = "give it as in http://127.0.0.1:8000/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible API.

    Attributes:
        base: its URL without a slash at the end; `/models` and `/chat/completions` follow.
        place: host and port.
        is_local: whether it is on this machine.
        is_private: whether nobody in between can listen: TLS, or this machine.
    """

    base: str
    place: str
    is_local: bool
    is_private: bool


def parse_endpoint(url: str) -> Endpoint:
    """The endpoint that a URL names; without a path it is `/v1`.

    Raises:
        UsageError: it is no URL of HTTP, or holds what is to be kept secret.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise UsageError(f"not a server's URL: {error}", remedy=_EXAMPLE) from error
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            "a server's URL may hold no password, query or fragment",
            remedy="put the key into VLMCLI_SERVER_API_KEY",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"not a server's URL: {url!r}", remedy=_EXAMPLE)
    path = parts.path.rstrip("/")
    for tail in _TAILS:
        path = path.removesuffix(tail)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    is_local = _is_local(parts.hostname)
    return Endpoint(
        base=f"{parts.scheme}://{place}{path or '/v1'}",
        place=place,
        is_local=is_local,
        is_private=is_local or parts.scheme == "https",
    )


def api_key(endpoint: Endpoint) -> str | None:
    """The key to show: VLMCLI_SERVER_API_KEY, which is meant for this server, wherever it is.

    Else OPENAI_API_KEY, which is meant for OpenAI: only where nobody in between can read it.
    """
    own = os.environ.get("VLMCLI_SERVER_API_KEY", "").strip()
    if own:
        return own
    general = os.environ.get("OPENAI_API_KEY", "").strip()
    return general if general and endpoint.is_private else None


def headers(key: str | None) -> dict[str, str]:
    """Header fields of every request."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def without_key(text: str, key: str | None) -> str:
    """A message of a server, which may have repeated what it was sent."""
    return text if key is None else text.replace(key, "***")


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
