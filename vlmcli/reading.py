"""What the pipeline asks of whatever turns pictures into text, and what it gets back.

Plain data and one Protocol, without torch: the engine's readers, a server client and the fakes of
tests all look like this from outside. A reader knows no documents; a page is an integer key to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from vlmcli.results import Line, PageAnswer, Seconds, TokenCounts

if TYPE_CHECKING:
    from vlmcli.documents.lines import LineCrop

ReadStatus = Literal["ok", "looped", "error", "timeout"]

DEFAULT_MAX_TOKENS = 4096
"""Output tokens of an answer about a page at the most, where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A text that may resemble a page's: it can save time and can never change the answer.

    `name` says in the statistics where it comes from; `lines` have boxes in pixels of the page.
    """

    name: str
    text: str
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageJob:
    """One page to read: line crops for a line reader, or the picture for a page reader.

    `picture` is uint8, (H, W, 3) RGB; `crops` hold uint8 (line height, W) grey pictures, and so do
    `draft_crops`, for a line reader that reads the page first.
    `questions` are put to this page instead of the reader's own.
    """

    key: int
    crops: "tuple[LineCrop, ...]" = ()
    picture: npt.NDArray[np.uint8] | None = None
    draft_crops: "tuple[LineCrop, ...]" = ()
    drafts: tuple[Draft, ...] = ()
    questions: tuple[str, ...] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its pixels."""
        crops = sum(crop.pixels.nbytes for crop in (*self.crops, *self.draft_crops))
        return crops + (0 if self.picture is None else self.picture.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CropText:
    """What one crop says. `confidence` is the mean probability of its tokens, 0 to 1."""

    text: str
    confidence: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageReading:
    """A finished page: `crops` parallel to the job's crops, or `text` from a page reader.

    A page reader that finds lines gives `lines` too, boxes in pixels of the picture. `answers` come
    from a page reader that was given questions, `data` is what they say as one JSON object, if they
    have to be that. `code` names the cause of a failure where `status` does not say enough.
    """

    key: int
    status: ReadStatus = "ok"
    crops: tuple[CropText, ...] = ()
    text: str = ""
    lines: tuple[Line, ...] = ()
    answers: tuple[PageAnswer, ...] | None = None
    data: Mapping[str, Any] | None = None
    message: str = ""
    code: str = ""
    suspect: tuple[str, ...] = ()
    attempts: int = 1
    tokens: TokenCounts = field(default_factory=TokenCounts)
    seconds: Seconds = field(default_factory=Seconds)


class OutOfMemoryError(Exception):
    """An allocation failed in a reader; its pages are as they were before the call."""


class Reader(Protocol):
    """Reads many pages at once; `step` advances all of them a little and hands out the finished."""

    def submit(self, job: PageJob) -> None:
        """Take a page. Its pixels are released when the page is finished.

        Raises:
            OutOfMemoryError: the page has not been taken.
        """

    def step(self) -> Sequence[PageReading]:
        """Advance the work; returns the pages finished by it, in any order.

        Raises:
            OutOfMemoryError: nothing has been advanced.
        """

    def abort(self, key: int) -> None:
        """Forget a page; nothing of it is returned later."""

    def has_work(self) -> bool:
        """Whether a submitted page is unfinished."""

    def drop_caches(self) -> None:
        """Give up whatever only saves time."""

    def device_bytes(self) -> int:
        """What it takes of the memory of a device of its own, in bytes; 0 without one."""

    def stats(self) -> dict[str, float]:
        """Counters of the whole run, by name."""

    def close(self) -> None:
        """Release the model."""
