"""Where a cluster is: what `--ray` was given, and whether anybody answers there.

Standard library only. Ray itself waits a minute or two for an address at which there is nothing, so
the question is put before Ray is even imported. Knows no tokens and does no handshake of Ray's:
that something answers as Ray's servers do is all that is found out.
"""

import os
import re
import socket
from dataclasses import dataclass

from vlmcli.errors import UnreachableError, UsageError

ANSWER_SECONDS = 3.0
"""For a connection, and again for the first bytes: more than another continent takes."""
_REMEDY = "give local, auto, HOST:PORT as `ray status` shows it, or ray://HOST:PORT"
_START = "start one with `ray start --head`, or give --ray local"
_HOST_AND_PORT = re.compile(r"(?:ray://)?(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})")
# RFC 9113, 3.4: what a client says first, with empty settings; a server answers with its own.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_SETTINGS = 4
_FRAME_HEAD = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A cluster's address. `host` is empty for `local`, and for `auto`, which Ray resolves."""

    text: str
    host: str = ""
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether a cluster is started on this machine and ends with the job."""
        return self.text == "local"


def parse_address(text: str) -> Address:
    """The address that `--ray` was given; `auto` is what RAY_ADDRESS says, if that is set.

    Raises:
        UsageError: it is none.
    """
    if text == "auto":
        text = os.environ.get("RAY_ADDRESS", "") or text
    if text in ("local", "auto"):
        return Address(text=text)
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise UsageError(f"not the address of a Ray cluster: {text!r}", remedy=_REMEDY)
    return Address(text=text, host=match["host"].strip("[]"), port=int(match["port"]))


def require_answer(address: Address, seconds: float = ANSWER_SECONDS) -> None:
    """See to it that a server answers at an address, in HTTP/2 as Ray's do.

    With `RAY_USE_TLS` a connection is enough, since what is said in it is encrypted.

    Raises:
        UnreachableError: it does not, within `seconds` for either step.
    """
    if not address.host:
        return
    try:
        with socket.create_connection((address.host, address.port), seconds) as connection:
            is_encrypted = os.environ.get("RAY_USE_TLS", "0") not in ("", "0")
            if not is_encrypted and not _speaks_http2(connection):
                raise UnreachableError(
                    f"what answers at {address.text} is not a Ray cluster", remedy=_REMEDY
                )
    except TimeoutError as error:
        raise no_cluster(address, f"no answer within {seconds:g} s") from error
    except OSError as error:
        raise no_cluster(address, error.strerror or str(error)) from error


def no_cluster(address: Address, cause: str) -> UnreachableError:
    """The error for an address at which there is no cluster."""
    return UnreachableError(f"no Ray cluster at {address.text}: {cause}", remedy=_START)


def _speaks_http2(connection: socket.socket) -> bool:
    connection.sendall(_PREFACE)
    head = b""
    while len(head) < _FRAME_HEAD:
        more = connection.recv(_FRAME_HEAD - len(head))
        if not more:
            return False
        head += more
    return head[3] == _SETTINGS
