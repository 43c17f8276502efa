"""The JSON of answers: whole ones, and the pieces of streamed ones, as OpenAI's API shapes them."""

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from vlmcli.chat import FinishReason, Usage
from vlmcli.serve.faults import ApiError

DONE = "data: [DONE]\n\n"
"""The last event of a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What all pieces of one answer have in common.

    `label` is the model's name with its revision; it stands as `system_fingerprint`, since equal
    requests have equal answers exactly where it is the same.
    """

    model: str
    label: str
    number: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, finish: FinishReason, usage: Usage) -> dict[str, Any]:
        """The answer in one piece."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(usage)}

    def first_piece(self) -> str:
        """The event that opens a stream."""
        return self._piece({"role": "assistant", "content": ""}, None)

    def piece(self, text: str) -> str:
        """An event with more text."""
        return self._piece({"content": text}, None)

    def last_piece(self, finish: FinishReason) -> str:
        """The event that says why the answer is over."""
        return self._piece({}, finish)

    def usage_piece(self, usage: Usage) -> str:
        """The event with the tokens, for clients that ask for it."""
        head = self._head("chat.completion.chunk")
        return event({**head, "choices": [], "usage": _usage(usage)})

    def _piece(self, delta: dict[str, Any], finish: FinishReason | None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.number,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.label,
        }


def event(data: dict[str, Any]) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def error_event(error: ApiError) -> str:
    """The event that ends a stream which cannot go on."""
    return event(error.body())


def model_object(name: str, label: str, created: int) -> dict[str, Any]:
    """A model as `/v1/models` lists it."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vlmcli",
        "revision": label,
    }


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }
