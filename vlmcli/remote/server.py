"""Who is there: asks a server for its models before a job begins, and names a dead one at once."""

from dataclasses import dataclass
from typing import Any, Literal

from vlmcli.checkpoint import LineSpec
from vlmcli.errors import ModelError, UnreachableError
from vlmcli.options import DEFAULT_MODEL, OcrOptions
from vlmcli.remote.endpoint import Endpoint, api_key, headers, parse_endpoint, without_key

CONNECT_SECONDS = 1.5
"""A server that is there accepts a connection well within that."""
_ANSWER_SECONDS = 10.0
"""For the list of models, once connected: a busy server may be late."""
_NO_LIST = (404, 405, 501)
_NO_LINES = LineSpec(height=0, max_width=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that answered, and the model that will read there; a `checkpoint.ReadingModel`.

    `revision` is what the list of models says beyond the name, if anything: `vlmcli serve` does.
    """

    endpoint: Endpoint
    model: str
    revision: str = ""

    @property
    def label(self) -> str:
        """`model` of page records: name and place."""
        return f"{self.model}@{self.endpoint.place}"

    @property
    def identity(self) -> str:
        """Model, URL, and the revision as far as it is known."""
        return f"{self.model} {self.endpoint.base} {self.revision}".rstrip()

    @property
    def reads(self) -> Literal["lines", "page"]:
        """Whole pages."""
        return "page"

    @property
    def line(self) -> LineSpec:
        """No lines are cut out."""
        return _NO_LINES

    @property
    def model_type(self) -> str:
        """Unknown from here."""
        return "server"


def find_server(options: OcrOptions) -> Server:
    """Ask the server which models it has.

    `--model` names one; without it, the server's only one is taken. (`nano` is the default of local
    reading: on a server it counts as named where the server has one of that name.)

    Raises:
        UsageError: the URL is none.
        UnreachableError: nobody answers there, or something that is no such server.
        ModelError: it is not clear which model is meant, or the server does not have it.
    """
    assert options.server is not None
    endpoint = parse_endpoint(options.server)
    listed = _models(endpoint)
    name = _choose(options.model, listed, endpoint)
    entry = (listed or {}).get(name, {})
    return Server(endpoint=endpoint, model=name, revision=str(entry.get("revision") or ""))


def _choose(asked: str, listed: dict[str, dict[str, Any]] | None, endpoint: Endpoint) -> str:
    is_named = asked != DEFAULT_MODEL
    if listed is None:
        if is_named:
            return asked
        remedy = "name one with --model"
        if not endpoint.base.endswith("/v1"):
            remedy = f"correct the path of --server, on most servers it is /v1, or {remedy}"
        raise ModelError(f"{endpoint.base} does not list its models", remedy=remedy)
    if asked in listed or (is_named and f"{asked}:latest" in listed):
        return asked
    if not is_named and len(listed) == 1:
        return next(iter(listed))
    names = ", ".join(sorted(listed)[:10]) or "none"
    what = f"has no model {asked!r}" if is_named else f"has {len(listed)} models"
    raise ModelError(f"{endpoint.base} {what}", remedy=f"name one with --model: {names}")


def _models(endpoint: Endpoint) -> dict[str, dict[str, Any]] | None:
    """The models by name; None where the server gives no list.

    Raises:
        UnreachableError: see `find_server`.
    """
    import httpx2

    key = api_key(endpoint)
    timeout = httpx2.Timeout(_ANSWER_SECONDS, connect=CONNECT_SECONDS)
    try:
        with httpx2.Client(
            headers=headers(key), timeout=timeout, trust_env=not endpoint.is_local
        ) as client:
            answer = client.get(f"{endpoint.base}/models")
            data = answer.json() if answer.is_success else None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        cause = str(error) or type(error).__name__
        raise UnreachableError(
            f"no server answers at {endpoint.base}: {without_key(cause, key)}",
            remedy="start it, or correct --server",
        ) from error
    except ValueError as error:
        raise _no_server(endpoint) from error
    if answer.status_code in (401, 403):
        raise UnreachableError(
            f"{endpoint.base} refuses the API key ({answer.status_code})",
            remedy="set VLMCLI_SERVER_API_KEY",
        )
    if answer.status_code in _NO_LIST:
        return None
    if data is None:
        raise UnreachableError(
            f"{endpoint.base} answers {answer.status_code} {answer.reason_phrase}".rstrip(),
            remedy="see whether the server has started, or correct --server",
        )
    return _by_name(data, endpoint)


def _by_name(data: Any, endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise _no_server(endpoint)
    known = [entry for entry in entries if isinstance(entry, dict)]
    return {entry["id"]: entry for entry in known if isinstance(entry.get("id"), str)}


def _no_server(endpoint: Endpoint) -> UnreachableError:
    return UnreachableError(
        f"{endpoint.base} answers, but is no OpenAI-compatible server",
        remedy="correct --server; its path usually ends with /v1",
    )
