"""What the server asks of whatever answers chats, and what it gets back.

Plain data and one Protocol, without torch. A chat is turns of text and pictures; an answerer knows
it by an integer key, works on many at once and hands out text as soon as it is certain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from vlmcli.documents.prepared import PreparedPage
from vlmcli.errors import VlmcliError

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class PicturePart:
    """The place of a picture in a turn: its index among the pictures of the chat."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message: texts and pictures in their order; no text stands next to another."""

    role: Role
    parts: tuple[str | PicturePart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the answer is to be made; None is a value that was not given.

    `stop` are strings that end the answer and are no part of it.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One conversation to be continued by one answer."""

    turns: tuple[Turn, ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a chat: the prompt's, pictures included, and the answer's."""

    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What has been added to an answer.

    Attributes:
        key: of the chat.
        text: further text; may be empty.
        finish: why the answer is over: `stop` where it is complete, `length` where it was cut; None
            while it goes on.
        error: why there is no answer, or no more of it; the chat is over then.
        usage: of the whole chat, once it is over.
    """

    key: int
    text: str = ""
    finish: FinishReason | None = None
    error: VlmcliError | None = None
    usage: Usage = Usage()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.finish is not None or self.error is not None


class Answerer(Protocol):
    """Answers many chats at once; `step` advances all of them a little."""

    def check(self, chat: Chat) -> None:
        """Refuse a chat before its pictures are drawn.

        Raises:
            UsageError: the model cannot be asked this.
        """

    def submit(self, key: int, chat: Chat, pictures: Sequence[PreparedPage]) -> None:
        """Take a chat with its pictures.

        Raises:
            UsageError, PageError: it cannot be answered.
            OutOfMemoryError: there is no room; it has not been taken.
        """

    def step(self) -> Sequence[Progress]:
        """Advance the work; what has been added to which answer.

        Raises:
            OutOfMemoryError: nothing has been advanced.
        """

    def abort(self, key: int) -> None:
        """Forget a chat; nothing of it is returned later. Unknown keys are ignored."""

    def has_work(self) -> bool:
        """Whether a chat is unanswered."""

    def drop_caches(self) -> None:
        """Give up whatever only saves time."""

    def stats(self) -> dict[str, float]:
        """Counters since the start, by name."""

    def close(self) -> None:
        """Release the model."""
