"""From the JSON of a chat completion request to a `Chat`; refuses what it does not understand.

A parameter that is silently ignored is a wrong answer: unknown ones are refused by name, and those
that the engine does not have are taken only at the value that changes nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vlmcli.chat import Chat, PicturePart, Role, Sampling, Turn
from vlmcli.serve.faults import ApiError, bad_request

_KNOWN = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens"),
        *("temperature", "top_p", "seed", "stop"),
    }
)
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "store": (False,),
}
"""Parameters that the engine does not have, with the values that ask for nothing."""
_NOT_READ = frozenset({"user", "metadata", "safety_identifier"})
"""Labels for the books of whoever runs the server; they ask for nothing."""
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_MOST_MESSAGES = 256
_MOST_STOPS, _LONGEST_STOP = 4, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a request may ask for at the most."""

    max_images: int
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request, understood. `pictures` are URLs, in the order of the messages."""

    model: str
    chat: Chat
    pictures: tuple[str, ...]
    stream: bool
    include_usage: bool


def parse_body(body: bytes | bytearray, limits: Limits) -> ChatRequest:
    """Read a request's body.

    Raises:
        ApiError: it is no JSON, or not a request that can be served; names the field.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is no JSON: {error}", code="invalid_json") from error
    if not isinstance(data, dict):
        raise bad_request("the body must be a JSON object")
    given = {name: value for name, value in data.items() if value is not None}
    _refuse_unknown(given)
    model = given.get("model")
    if not isinstance(model, str) or not model:
        raise bad_request("name the model", param="model")
    turns, pictures = _messages(given.get("messages"))
    if len(pictures) > limits.max_images:
        message = f"{len(pictures)} pictures, at most {limits.max_images} are taken"
        raise bad_request(message, param="messages", code="too_many_images")
    stream = _boolean(given, "stream")
    return ChatRequest(
        model=model,
        chat=Chat(turns=turns, sampling=_sampling(given, limits)),
        pictures=tuple(pictures),
        stream=stream,
        include_usage=_include_usage(given, stream=stream),
    )


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name in _KNOWN or name in _NOT_READ:
            continue
        if name not in _NEUTRAL:
            message = f"unknown parameter: {name}"
            raise bad_request(message, param=name, code="unknown_parameter")
        if value not in _NEUTRAL[name]:
            message = f"{name} is not supported; leave it out"
            raise bad_request(message, param=name, code="unsupported_parameter")


def _sampling(given: Mapping[str, Any], limits: Limits) -> Sampling:
    names = [name for name in ("max_completion_tokens", "max_tokens") if name in given]
    if len(names) == 2:
        raise bad_request("give max_tokens or max_completion_tokens, not both", param=names[0])
    most = limits.max_tokens
    if names:
        most = _integer(given, names[0], least=1)
        if most > limits.max_tokens:
            message = f"{names[0]} is {most}, at most {limits.max_tokens} are answered"
            raise bad_request(message, param=names[0], code="too_many_tokens")
    top_p = _number(given, "top_p", 1.0, least=0.0, most=1.0)
    if top_p == 0:
        raise bad_request("top_p must be more than 0", param="top_p")
    return Sampling(
        max_tokens=most,
        temperature=_number(given, "temperature", 0.0, least=0.0, most=2.0),
        top_p=top_p,
        seed=_integer(given, "seed", least=None) if "seed" in given else None,
        stop=_stops(given.get("stop")),
    )


def _stops(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    is_good = isinstance(stops, list) and len(stops) <= _MOST_STOPS
    if not is_good or not all(
        isinstance(one, str) and 0 < len(one) <= _LONGEST_STOP for one in stops
    ):
        message = f"stop must be up to {_MOST_STOPS} strings of 1 to {_LONGEST_STOP} characters"
        raise bad_request(message, param="stop")
    return tuple(stops)


def _include_usage(given: Mapping[str, Any], *, stream: bool) -> bool:
    options = given.get("stream_options", {})
    if not isinstance(options, dict):
        raise bad_request("stream_options must be an object", param="stream_options")
    if options and not stream:
        raise bad_request("stream_options need stream: true", param="stream_options")
    unknown = options.keys() - {"include_usage"}
    if unknown:
        raise bad_request(
            f"unknown parameter: stream_options.{min(unknown)}",
            param="stream_options",
            code="unknown_parameter",
        )
    return _boolean(options, "include_usage")


def _messages(value: Any) -> tuple[tuple[Turn, ...], list[str]]:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_MESSAGES:
        message = f"messages must be a list of 1 to {_MOST_MESSAGES}"
        raise bad_request(message, param="messages")
    pictures: list[str] = []
    turns = tuple(_turn(number, message, pictures) for number, message in enumerate(value))
    if turns[-1].role != "user":
        raise bad_request("the last message must be the user's", param="messages")
    if any(turn.role == "system" for turn in turns[1:]):
        raise bad_request("a system message must be the first", param="messages")
    return turns, pictures


def _turn(number: int, message: Any, pictures: list[str]) -> Turn:
    place = f"messages[{number}]"
    if not isinstance(message, dict):
        raise bad_request(f"{place} must be an object", param=place)
    _refuse_keys(message, {"role", "content", "name"}, place)
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise bad_request(f"{place}.role must be one of {', '.join(_ROLES)}", param=f"{place}.role")
    content = message.get("content")
    if isinstance(content, str):
        return Turn(role=role, parts=(content,))
    if not isinstance(content, list) or not content:
        raise bad_request(f"{place}.content must be a text or a list of parts", param=place)
    parts: list[str | PicturePart] = []
    for index, item in enumerate(content):
        part = _part(f"{place}.content[{index}]", item, role, pictures)
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    return Turn(role=role, parts=tuple(parts))


def _part(place: str, item: Any, role: Role, pictures: list[str]) -> str | PicturePart:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "text" and isinstance(item.get("text"), str):
        _refuse_keys(item, {"type", "text"}, place)
        return str(item["text"])
    if kind != "image_url":
        raise bad_request(f"{place} must be of type text or image_url", param=place)
    if role != "user":
        raise bad_request(f"{place}: only messages of the user have pictures", param=place)
    image = item.get("image_url")
    if not isinstance(image, dict) or not isinstance(image.get("url"), str):
        raise bad_request(f"{place}.image_url.url must be a text", param=place)
    _refuse_keys(item, {"type", "image_url"}, place)
    _refuse_keys(image, {"url", "detail"}, f"{place}.image_url")
    if image.get("detail") not in (None, "auto", "high"):
        raise bad_request(f"{place}: pictures are read in full detail", param=f"{place}.image_url")
    pictures.append(image["url"])
    return PicturePart(len(pictures) - 1)


def _refuse_keys(given: Mapping[str, Any], known: set[str], place: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        name = f"{place}.{unknown[0]}"
        raise bad_request(f"unknown parameter: {name}", param=name, code="unknown_parameter")


def _boolean(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise bad_request(f"{name} must be true or false", param=name)
    return value


def _integer(given: Mapping[str, Any], name: str, *, least: int | None) -> int:
    value = given[name]
    is_good = isinstance(value, int) and not isinstance(value, bool)
    if not is_good or abs(value) >= 1 << 63 or (least is not None and value < least):
        raise _out_of_range(name, "a whole number" + (f" from {least}" if least else ""))
    return int(value)


def _number(
    given: Mapping[str, Any], name: str, default: float, *, least: float, most: float
) -> float:
    value = given.get(name, default)
    is_good = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_good or not least <= value <= most:
        raise _out_of_range(name, f"a number from {least:g} to {most:g}")
    return float(value)


def _out_of_range(name: str, what: str) -> ApiError:
    return bad_request(f"{name} must be {what}", param=name)
