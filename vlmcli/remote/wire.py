"""The JSON of requests to a server, and what its answers hold. Pure; no connection."""

import base64
import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vlmcli.options import ServerImage

JPEG_QUALITY = 92
_PNG_LEVEL = 3
"""Of nine: higher levels take three times as long and save a few percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one event of a stream adds, or a whole answer.

    Attributes:
        text: further text.
        finish: the reason why the answer is over; None while it goes on.
        prompt_tokens: None where the server does not say. So is `output_tokens`.
        error: what went wrong, in the server's words.
    """

    text: str = ""
    finish: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    error: str | None = None


def picture_url(pixels: npt.NDArray[np.uint8], kind: ServerImage) -> str:
    """A picture, uint8 (H, W, 3) RGB, as a data URL: PNG without loss, or JPEG at quality 92."""
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if kind == "png":
        image.save(file, "PNG", compress_level=_PNG_LEVEL)
    else:
        image.save(file, "JPEG", quality=JPEG_QUALITY)
    return f"data:image/{kind};base64,{base64.b64encode(file.getbuffer()).decode('ascii')}"


def request_body(
    *, model: str, picture: str, prompt: str, max_tokens: int, attempt: int, temperature: float
) -> bytes:
    """A streamed chat completion about one picture; further attempts have seeds of their own."""
    content = [
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "text", "text": prompt},
    ]
    data: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if attempt > 1:
        data["seed"] = attempt
    return json.dumps(data).encode()


def parse_piece(raw: str | bytes) -> Piece:
    """An event's data, or the body of an answer that was not streamed.

    Raises:
        ValueError: it is no JSON object.
    """
    data = json.loads(raw)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    if data.get("error"):
        return Piece(error=error_text(data))
    text, finish = "", None
    choices = data.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            part = choice.get("delta") or choice.get("message") or {}
            found = part.get("content") if isinstance(part, dict) else None
            text += found if isinstance(found, str) else ""
            finish = choice.get("finish_reason") or finish
    usage = data.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return Piece(
        text=text,
        finish=None if finish is None else str(finish),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
    )


def error_text(data: Any, limit: int = 300) -> str:
    """What a server says went wrong, in one line."""
    error = data.get("error", data) if isinstance(data, dict) else data
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return " ".join(str(error).split())[:limit]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
