"""Conversations of several turns, for families whose format of one question is ChatML.

That format stands in the family's file alone; here the turns are taken out of it. Refuses families
with other marks of turns: theirs cannot be seen from one question.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from vlmcli.engine.models.registry import ChatFormat


@dataclass(frozen=True, slots=True)
class ChatML:
    """Turns between ChatML's marks, pictures between the family's own.

    Attributes:
        system: what stands at the beginning where no system message is given.
        picture: what stands before and behind a picture.
    """

    CLOSING: ClassVar[str] = "<|im_end|>\n"
    """The end of a turn."""

    system: str
    picture: tuple[str, str]

    @classmethod
    def find(cls, chat: ChatFormat) -> Self | None:
        """What a format of one question about one picture is made of; None if not of ChatML."""
        system, user, mark = chat.before.partition(cls.opening("user"))
        answer = "{question}" + cls.CLOSING + cls.opening("assistant")
        if not user or not chat.after.endswith(answer):
            return None
        return cls(system=system, picture=(mark, chat.after.removesuffix(answer)))

    @staticmethod
    def opening(role: str) -> str:
        """The beginning of a turn of `system`, `user` or `assistant`."""
        return f"<|im_start|>{role}\n"
