"""Answers chats with a model that only reads lines: the text of the pictures, whatever is asked.

Each picture is read as `vlmcli ocr` reads a page: blank or not, lines found and cut out by a page
worker, every line a request to the engine behind the loop guard, the texts joined in reading order.
The texts of several pictures have a form feed between them, as on the command line. Such a model
cannot be asked anything, so the texts of the messages are not looked at, and sampling parameters
that would change something are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vlmcli.assemble import PageIdentity, prepared_record, read_record
from vlmcli.chat import Chat, FinishReason, Progress, Usage
from vlmcli.documents.prepared import PreparedPage
from vlmcli.errors import PageError, UsageError
from vlmcli.reading import OutOfMemoryError, PageJob, PageReading, Reader
from vlmcli.results import PageRecord

_SEPARATOR = "\f"


@dataclass(slots=True)
class _Open:
    """A chat in work: its pictures and what they came to."""

    max_tokens: int
    pages: list[PreparedPage]
    records: list[PageRecord | None]
    num_told: int = 0
    num_bytes: int = 0
    serials: list[int] = field(default_factory=list)
    is_cut: bool = False


class LineAnswerer:
    """A `chat.Answerer` over a reader of lines.

    Args:
        reader: loaded; used by nobody else.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._open: dict[int, _Open] = {}
        self._places: dict[int, tuple[int, int]] = {}
        """Chat and picture of every page in the reader, by its serial number."""
        self._num_pages = 0

    def check(self, chat: Chat) -> None:
        """Refuse what a reader of lines cannot do.

        Raises:
            UsageError: there is no picture, or a sampling parameter would change something.
        """
        sampling = chat.sampling
        if all(isinstance(part, str) for turn in chat.turns for part in turn.parts):
            raise UsageError("this model reads pictures and answers nothing else: send one")
        if sampling.temperature > 0:
            raise UsageError("this model reads greedily: leave out temperature, or give 0")
        if sampling.stop:
            raise UsageError("this model reads pictures to their ends: leave out stop")

    def submit(self, key: int, chat: Chat, pictures: Sequence[PreparedPage]) -> None:
        """Queue the lines of all pictures.

        Raises:
            OutOfMemoryError: there is no room for them; the chat has not been taken.
        """
        work = _Open(
            max_tokens=chat.sampling.max_tokens,
            pages=list(pictures),
            records=[None] * len(pictures),
        )
        self._open[key] = work
        try:
            for index, page in enumerate(pictures):
                self._submit_page(key, work, index, page)
        except OutOfMemoryError:
            self.abort(key)
            raise

    def step(self) -> Sequence[Progress]:
        """One step of the reader; the pictures that are finished and whose turn has come.

        Raises:
            OutOfMemoryError: the step has not been done.
        """
        found: list[Progress] = []
        readings = self._reader.step() if self._reader.has_work() else ()
        for (key, index), reading in [(self._places.pop(one.key), one) for one in readings]:
            work = self._open.get(key)
            if work is None:
                # Another of the chat's pictures has just failed, and ended it.
                continue
            identity = _identity(work, index)
            work.records[index] = read_record(identity, work.pages[index], reading, model="")
            # A reading that repeated itself is cut, and says so as one that reached a limit does.
            work.is_cut |= reading.status == "looped" or "truncated" in reading.suspect
            if reading.status == "error":
                self.abort(key)
                found.append(Progress(key=key, error=_fault(reading)))
        for key in list(self._open):
            found += self._tell(key)
        return found

    def abort(self, key: int) -> None:
        """Forget a chat."""
        work = self._open.pop(key, None)
        for serial in work.serials if work is not None else ():
            if self._places.pop(serial, None) is not None:
                self._reader.abort(serial)

    def has_work(self) -> bool:
        """Whether a chat is unanswered."""
        return bool(self._open)

    def drop_caches(self) -> None:
        """Give up what only saves time."""
        self._reader.drop_caches()

    def stats(self) -> dict[str, float]:
        """The reader's counters."""
        return self._reader.stats()

    def close(self) -> None:
        """Release the model."""
        self._reader.close()

    def _submit_page(self, key: int, work: _Open, index: int, page: PreparedPage) -> None:
        if not page.crops:
            work.records[index] = prepared_record(_identity(work, index), page)
            return
        self._num_pages += 1
        serial = self._num_pages
        self._reader.submit(PageJob(key=serial, crops=page.crops))
        work.serials.append(serial)
        self._places[serial] = (key, index)

    def _tell(self, key: int) -> list[Progress]:
        """The texts whose turn has come; the last of them ends the chat."""
        work, text = self._open[key], ""
        while work.num_told < len(work.records):
            record = work.records[work.num_told]
            if record is None or work.num_bytes >= work.max_tokens:
                break
            lead = _SEPARATOR if work.num_told else ""
            text += self._within_limit(work, lead + record.text)
            work.num_told += 1
        is_full = work.num_bytes >= work.max_tokens
        if work.num_told < len(work.records) and not is_full:
            return [Progress(key=key, text=text)] if text else []
        work.is_cut |= work.num_told < len(work.records)
        usage = _usage(work)
        self.abort(key)
        reason: FinishReason = "length" if work.is_cut else "stop"
        return [Progress(key=key, text=text, finish=reason, usage=usage)]

    def _within_limit(self, work: _Open, text: str) -> str:
        """The text, cut where the answer reaches its limit; the tokens of a reader of lines are
        bytes."""
        data = text.encode()
        kept = data[: work.max_tokens - work.num_bytes]
        work.num_bytes += len(kept)
        work.is_cut |= len(kept) < len(data)
        return kept.decode(errors="ignore")


def _identity(work: _Open, index: int) -> PageIdentity:
    return PageIdentity(document="", page=index + 1, pages=len(work.pages))


def _usage(work: _Open) -> Usage:
    read = [record.tokens for record in work.records if record is not None]
    return Usage(
        prompt=sum(tokens.visual + tokens.prompt for tokens in read),
        completion=sum(tokens.output for tokens in read),
    )


def _fault(reading: PageReading) -> PageError:
    return PageError(reading.message, code=reading.code or "read")
