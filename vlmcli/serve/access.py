"""Who may ask: the key, compared in constant time, and the names by which the server is asked.

A server on the loopback device without a key is for programs of this machine. A web page in its
user's browser is none of these, though it runs here: so the `Host` field must name the loopback
device (else a page could bind its own name to it), and bodies must say that they are JSON (which a
browser sends to strangers only after asking).
"""

import hmac
from collections.abc import Mapping

from vlmcli.serve.faults import ApiError
from vlmcli.serve.settings import ServeOptions

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class Access:
    """Decides about requests from their header fields.

    Args:
        options: the server's key and host.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._key = options.api_key.encode() if options.api_key is not None else None
        self._names = _LOCAL_NAMES | {options.host.lower()}

    def check(self, headers: Mapping[str, str]) -> None:
        """Let a request pass, or not.

        Raises:
            ApiError: 401 without the right key; 403 under another host's name.
        """
        if self._key is not None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            is_right = hmac.compare_digest(given.strip().encode(), self._key)
            if scheme.lower() != "bearer" or not is_right:
                raise ApiError(401, "wrong or missing API key", code="invalid_api_key")
        elif host_name(headers.get("host", "")) not in self._names:
            raise ApiError(403, "this server answers to local names only", code="wrong_host")


def host_name(value: str) -> str:
    """The name in a `Host` field, without the port, in lower case."""
    value = value.strip().lower()
    if value.startswith("["):
        return value.partition("]")[0] + "]"
    return value.partition(":")[0]


def require_json(headers: Mapping[str, str]) -> None:
    """Refuse bodies of another type.

    Raises:
        ApiError: 415.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "the body must be application/json", code="unsupported_media_type")
