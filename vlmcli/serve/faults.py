"""What a client is told when its request cannot be served: OpenAI's error shape with a status.

A leaf; knows no framework.
"""

from typing import Any

from vlmcli.errors import InputError, PageError, UsageError, VlmcliError

RETRY_SECONDS = 1
"""What a client is asked to wait where nothing better is known."""


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        message: one sentence that names what is wrong.
        code: short and stable, for programs.
        param: the field of the request that is at fault.
        retry_after: seconds after which another try makes sense; None where it makes none.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """`type` of the error object."""
        if self.status in (401, 403):
            return "authentication_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's API shapes it."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> dict[str, str]:
        """Header fields that belong to it."""
        found = {}
        if self.retry_after is not None:
            found["Retry-After"] = str(self.retry_after)
        if self.status == 401:
            found["WWW-Authenticate"] = "Bearer"
        return found


def bad_request(message: str, *, param: str | None = None, code: str = "bad_request") -> ApiError:
    """A request that is wrong in itself."""
    return ApiError(400, message, code=code, param=param)


class BusyError(VlmcliError):
    """There is no room now, or the server is about to end; a later try may succeed."""

    code = "busy"


_OURS = ("worker-died", "timeout", "read")
"""Codes of page faults for which the picture need not be to blame."""


def as_api_error(error: VlmcliError) -> ApiError:
    """What a fault of a picture or a chat means to the client."""
    if isinstance(error, BusyError):
        return ApiError(503, str(error), code=error.code, retry_after=RETRY_SECONDS)
    is_theirs = isinstance(error, UsageError | InputError | PageError) and error.code not in _OURS
    return ApiError(400 if is_theirs else 500, str(error), code=error.code)
