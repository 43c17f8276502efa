"""Answers chats with a page-reading checkpoint: turns of text and pictures, streamed as they come.

The prompt is the family's own chat format. Of a family that does not talk in ChatML only the format
of one question about one picture is known: it is refused everything else. Texts of users may not
hold the model's control tokens: they would speak in somebody else's name. No loop guard: who asks
decides about temperatures and further attempts. Refuses tools and several answers to one chat.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vlmcli.chat import Chat, FinishReason, Progress, Turn, Usage
from vlmcli.documents.prepared import PreparedPage
from vlmcli.engine.engine import Engine
from vlmcli.engine.models.chatml import ChatML
from vlmcli.engine.models.registry import find_family
from vlmcli.engine.request import (
    ImageInput,
    PlaceholderRange,
    Request,
    RequestOutput,
    SamplingParams,
)
from vlmcli.engine.views import lay_out
from vlmcli.errors import UsageError
from vlmcli.readers.pages import Pixels
from vlmcli.readers.shortage import memory_errors_translated, release_device


@dataclass(slots=True)
class _Live:
    """A chat in the engine: how much of its text has been handed out, and what ends it."""

    stop: tuple[str, ...]
    num_shown: int = 0


@dataclass(slots=True)
class _Prompt:
    """A prompt that grows: token ids, pictures, and where they stand."""

    tokens: list[int] = field(default_factory=list)
    images: list[ImageInput] = field(default_factory=list)
    placeholders: list[PlaceholderRange] = field(default_factory=list)


class ChatReader:
    """A `chat.Answerer` on our own engine.

    Args:
        engine: loaded; used by nobody else.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._family = find_family(engine.model_config.model_type)
        self._format = self._family.chat_for(engine.encode)
        self._chatml = ChatML.find(self._format)
        self._live: dict[int, _Live] = {}

    def check(self, chat: Chat) -> None:
        """Refuse texts with control tokens, and turns that the model's format has no place for.

        Raises:
            UsageError: there are some.
        """
        if not all(map(self._engine.is_plain, _texts(chat.turns))):
            raise UsageError("a text holds a control token of the model")
        if self._chatml is None and not _is_one_question(chat.turns):
            raise UsageError("this model answers one message of the user, with one picture in it")

    def submit(self, key: int, chat: Chat, pictures: Sequence[PreparedPage]) -> None:
        """Queue a chat.

        Raises:
            UsageError: as for `check`, or the prompt leaves no room for an answer.
            PageError: the model cannot take a picture of this size, or never that many tokens.
            OutOfMemoryError: there is no room for it; it has not been taken.
        """
        self.check(chat)
        pixels = [page.picture for page in pictures]
        with memory_errors_translated():
            prompt = self._prompt(chat.turns, pixels)
            room = self._engine.model_config.text.max_position_embeddings - len(prompt.tokens)
            if room < 1:
                raise UsageError(
                    f"the prompt has {len(prompt.tokens)} tokens, more than the model can take"
                )
            sampling = chat.sampling
            self._engine.add_request(
                Request(
                    request_id=str(key),
                    prompt_token_ids=prompt.tokens,
                    images=tuple(prompt.images),
                    placeholders=tuple(prompt.placeholders),
                    sampling=SamplingParams(
                        max_tokens=min(sampling.max_tokens, room),
                        temperature=sampling.temperature,
                        top_p=sampling.top_p,
                        seed=sampling.seed,
                        logprobs=False,
                    ),
                )
            )
        self._live[key] = _Live(stop=sampling.stop)

    def step(self) -> Sequence[Progress]:
        """One engine step; what it added.

        Raises:
            OutOfMemoryError: the step has not been done.
        """
        with memory_errors_translated():
            outputs = self._engine.step()
        return [self._take(output) for output in outputs]

    def abort(self, key: int) -> None:
        """Forget a chat."""
        if self._live.pop(key, None) is not None:
            self._engine.abort_request(str(key))

    def has_work(self) -> bool:
        """Whether a chat is unanswered."""
        return bool(self._live)

    def drop_caches(self) -> None:
        """Give up embeddings that no chat needs, and what torch keeps of a GPU."""
        self._engine.drop_caches()
        release_device(self._engine.config.device)

    def stats(self) -> dict[str, float]:
        """The engine's counters."""
        return self._engine.stats()

    def close(self) -> None:
        """Forget all chats."""
        for key in list(self._live):
            self.abort(key)

    def _take(self, output: RequestOutput) -> Progress:
        key = int(output.request_id)
        live = self._live[key]
        text, is_stopped = cut_at(output.text, live.stop)
        is_over = output.finished or is_stopped
        # What may be the beginning of a stop string is held back until it is known.
        end = len(text) if is_over else len(text) - held_back(text, live.stop)
        shown, live.num_shown = live.num_shown, max(end, live.num_shown)
        usage = Usage(prompt=output.num_prompt_tokens, completion=len(output.token_ids))
        if not is_over:
            return Progress(key=key, text=text[shown:end])
        del self._live[key]
        if not output.finished:
            self._engine.abort_request(output.request_id)
        is_cut = output.finish_reason == "length" and not is_stopped
        reason: FinishReason = "length" if is_cut else "stop"
        return Progress(key=key, text=text[shown:end], finish=reason, usage=usage)

    def _prompt(self, turns: Sequence[Turn], pictures: Sequence[Pixels | None]) -> _Prompt:
        if self._chatml is not None:
            return self._conversation(self._chatml, turns, pictures)
        prompt = _Prompt()
        prompt.tokens += self._engine.encode(self._format.before)
        self._add_picture(prompt, pictures[0])
        question = "\n".join(_texts(turns))
        prompt.tokens += self._engine.encode(self._format.after.format(question=question))
        return prompt

    def _conversation(
        self, form: ChatML, turns: Sequence[Turn], pictures: Sequence[Pixels | None]
    ) -> _Prompt:
        """All turns; text between two pictures is encoded in one piece."""
        prompt = _Prompt()
        text = "" if turns[0].role == "system" else form.system
        for turn in turns:
            text += form.opening(turn.role)
            for part in turn.parts:
                if isinstance(part, str):
                    text += part
                    continue
                prompt.tokens += self._engine.encode(text + form.picture[0])
                self._add_picture(prompt, pictures[part.index])
                text = form.picture[1]
            text += form.CLOSING
        prompt.tokens += self._engine.encode(text + form.opening("assistant"))
        return prompt

    def _add_picture(self, prompt: _Prompt, picture: Pixels | None) -> None:
        assert picture is not None, "a page reader needs the picture"
        config = self._engine.model_config
        laid_out = lay_out(
            self._family.parts(picture, config),
            self._engine.encode,
            image_token_id=config.image_token_id,
            offset=len(prompt.tokens),
        )
        prompt.images += laid_out.images
        prompt.placeholders += laid_out.placeholders
        prompt.tokens += laid_out.token_ids


def _texts(turns: Sequence[Turn]) -> Iterator[str]:
    return (part for turn in turns for part in turn.parts if isinstance(part, str))


def _is_one_question(turns: Sequence[Turn]) -> bool:
    """Whether it is a message of the user with exactly one picture."""
    pictures = [part for turn in turns for part in turn.parts if not isinstance(part, str)]
    return [turn.role for turn in turns] == ["user"] and len(pictures) == 1


def cut_at(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the first of the stop strings, and whether there was one."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def held_back(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of the text that may be the beginning of a stop string."""
    longest = 0
    for stop in stops:
        for length in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:length]):
                longest = length
                break
    return longest
