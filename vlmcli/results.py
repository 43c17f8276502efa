"""The page record: what one page became. The JSON form is a contract (`docs/records.md`).

Plain data; knows no files, models or terminals. Fields are only ever added.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from vlmcli.version import SCHEMA_VERSION

Status = Literal["ok", "blank", "error", "looped", "timeout"]
Source = Literal["text-layer", "model", "reuse"]
ReuseKind = Literal["none", "exact", "verified", "draft", "similar"]
VerifiedBy = Literal["sha256", "pixel-diff", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The place of a line's print: it runs from `start` to `end`, as its text does.

    Pixels of the displayed page, measured from its upper left corner (edges of pixels, not their
    centres). `strip.py` has the geometry.
    """

    start: tuple[float, float]
    end: tuple[float, float]
    """The ends of the baseline."""
    ascent: float
    descent: float
    """How far print reaches above and below the baseline, as the text stands."""
    bow: float = 0.0
    """How far the middle of a parabolic baseline lies below its chord, as the text stands."""
    words: tuple[tuple[int, int], ...] = ()
    """Where each word of the text begins and ends, measured along the chord from `start`; empty
    where that is not known."""

    @property
    def nbytes(self) -> int:
        """About what keeping it costs, in bytes."""
        return 500 + 180 * len(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One text line: box in pixels of the displayed page (x0, y0, x1, y1; origin top left)."""

    bbox: tuple[int, int, int, int]
    text: str
    confidence: float | None = None
    strip: Strip | None = None
    """Where its print and its words lie, whichever way it runs; None where only the box is known:
    in text layers, other readers' lines, and results of earlier versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseOrigin:
    """The page whose result or text served this one."""

    document: str
    page: int
    run: str | None = None
    """`"earlier"` where the result came out of the store, else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """How an earlier page served this one, and what proved that it may."""

    kind: ReuseKind = "none"
    origin: ReuseOrigin | None = None
    verified_by: VerifiedBy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCount:
    """How well one source of drafts foresaw a page: output tokens guessed, and rightly."""

    name: str
    guessed: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens spent on a page. `accepted` of the `drafted` tokens agreed with the model.

    These two are the best source's of each answer; `sources` has all of them, by name.
    """

    visual: int = 0
    prompt: int = 0
    output: int = 0
    drafted: int = 0
    accepted: int = 0
    sources: tuple[DraftCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Wall-clock seconds per stage. Batched stages are shared out over the pages of the batch."""

    render: float = 0.0
    encode: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0


def add_tokens(a: TokenCounts, b: TokenCounts) -> TokenCounts:
    """Sum, field by field; sources by their names."""
    guessed, right = Counter[str](), Counter[str]()
    for source in (*a.sources, *b.sources):
        guessed[source.name] += source.guessed
        right[source.name] += source.right
    return TokenCounts(
        visual=a.visual + b.visual,
        prompt=a.prompt + b.prompt,
        output=a.output + b.output,
        drafted=a.drafted + b.drafted,
        accepted=a.accepted + b.accepted,
        sources=tuple(
            DraftCount(name=name, guessed=guessed[name], right=right[name])
            for name in sorted(guessed)
        ),
    )


def add_seconds(a: Seconds, b: Seconds) -> Seconds:
    """Sum, field by field."""
    return Seconds(
        render=a.render + b.render,
        encode=a.encode + b.encode,
        prefill=a.prefill + b.prefill,
        decode=a.decode + b.decode,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """Why a page failed: a short stable code and a sentence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAnswer:
    """What a page says to one question."""

    question: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRecord:
    """Everything vlmcli says about one page. `page` counts from 1."""

    document: str
    page: int
    pages: int
    status: Status
    text: str = ""
    source: Source | None = None
    model: str | None = None
    width: int = 0
    height: int = 0
    dpi: float | None = None
    downscaled: bool = False
    blank: bool = False
    suspect: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    reuse: Reuse = field(default_factory=Reuse)
    tokens: TokenCounts = field(default_factory=TokenCounts)
    attempts: int = 0
    seconds: Seconds = field(default_factory=Seconds)
    error: ErrorInfo | None = None
    answers: tuple[PageAnswer, ...] | None = None
    """One for every question of the job, in its order; None in a job that asks none."""
    data: Mapping[str, Any] | None = None
    """What the answers say as one JSON object, where the job has a schema for that."""
    time: float | None = None
    """Of a frame of a video: seconds from its beginning."""

    @property
    def is_failed(self) -> bool:
        """Whether the page's text is missing or cut: such pages make the exit code 5."""
        return self.status in ("error", "looped", "timeout")

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the contract, as plain dicts and lists, in the contract's order."""
        data = asdict(self)
        reuse = data.pop("reuse")
        origin = reuse["origin"]
        if origin is not None and origin["run"] is None:
            del origin["run"]
        for name in ("error", "answers", "data", "time"):
            if data[name] is None:
                del data[name]
        for line in data["lines"]:
            if line["strip"] is None:
                del line["strip"]
        sources = data["tokens"].pop("sources")
        if sources:
            data["tokens"]["sources"] = {source.pop("name"): source for source in sources}
        out: dict[str, Any] = {"schema": SCHEMA_VERSION}
        for key, value in data.items():
            if key == "tokens":
                out["reuse"] = {
                    "kind": reuse["kind"],
                    "from": origin,
                    "verified_by": reuse["verified_by"],
                }
            out[key] = value
        return out

    def to_json(self) -> str:
        """One line of JSON without a line break; equal records give equal bytes."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(", ", ": "))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PageRecord":
        """Inverse of `to_dict`. Unknown fields are ignored: they come from a newer vlmcli.

        Raises:
            KeyError, TypeError, ValueError: the mapping is not a page record.
        """
        reuse = data.get("reuse") or {}
        origin = reuse.get("from")
        error = data.get("error")
        answers = data.get("answers")
        return cls(
            document=data["document"],
            page=data["page"],
            pages=data["pages"],
            status=data["status"],
            text=data["text"],
            source=data.get("source"),
            model=data.get("model"),
            width=data.get("width", 0),
            height=data.get("height", 0),
            dpi=data.get("dpi"),
            downscaled=data.get("downscaled", False),
            blank=data.get("blank", False),
            suspect=tuple(data.get("suspect", ())),
            lines=tuple(_line(line) for line in data.get("lines", ())),
            reuse=Reuse(
                kind=reuse.get("kind", "none"),
                origin=None
                if origin is None
                else ReuseOrigin(
                    document=origin["document"], page=origin["page"], run=origin.get("run")
                ),
                verified_by=reuse.get("verified_by"),
            ),
            tokens=_tokens(data.get("tokens") or {}),
            attempts=data.get("attempts", 0),
            seconds=Seconds(**_known(Seconds, data.get("seconds"))),
            error=None if error is None else ErrorInfo(**_known(ErrorInfo, error)),
            answers=None
            if answers is None
            else tuple(PageAnswer(**_known(PageAnswer, answer)) for answer in answers),
            data=data.get("data"),
            time=data.get("time"),
        )

    def without_timings(self) -> "PageRecord":
        """The record with its seconds zeroed: what two runs of one job must agree on."""
        return replace(self, seconds=Seconds())


def _line(data: Mapping[str, Any]) -> Line:
    return Line(
        bbox=tuple(data["bbox"]),
        text=data["text"],
        confidence=data.get("confidence"),
        strip=_strip(data.get("strip")),
    )


def _strip(data: Mapping[str, Any] | None) -> Strip | None:
    if data is None:
        return None
    (x0, y0), (x1, y1) = data["start"], data["end"]
    return Strip(
        start=(x0, y0),
        end=(x1, y1),
        ascent=data["ascent"],
        descent=data["descent"],
        bow=data.get("bow", 0.0),
        words=tuple((start, end) for start, end in data.get("words", ())),
    )


def _tokens(data: Mapping[str, Any]) -> TokenCounts:
    sources = tuple(
        DraftCount(name=name, guessed=count["guessed"], right=count["right"])
        for name, count in data.get("sources", {}).items()
    )
    return TokenCounts(**{**_known(TokenCounts, data), "sources": sources})


def _known(cls: type, data: Mapping[str, Any] | None) -> dict[str, Any]:
    names = cls.__dataclass_fields__  # type: ignore[attr-defined]
    return {key: value for key, value in (data or {}).items() if key in names}
