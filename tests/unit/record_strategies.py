"""Hypothesis strategies for page records, and a short way to make one by hand."""

from dataclasses import replace

from hypothesis import strategies as st

from vlmcli.results import (
    DraftCount,
    ErrorInfo,
    Line,
    PageAnswer,
    PageRecord,
    Reuse,
    ReuseOrigin,
    Seconds,
    Strip,
    TokenCounts,
)

_counts = st.integers(0, 10**6)
_seconds = st.floats(0, 1e6, allow_nan=False)
texts = st.text(st.characters(), max_size=60)
"""Any text a font or a file name can yield, lone surrogates and control characters included."""

_lengths = st.floats(-1e4, 1e4)
strips = st.builds(
    Strip,
    start=st.tuples(_lengths, _lengths),
    end=st.tuples(_lengths, _lengths),
    ascent=_lengths,
    descent=_lengths,
    bow=_lengths,
    words=st.lists(st.tuples(st.integers(-9, 9999), st.integers(-9, 9999)), max_size=4).map(tuple),
)
lines = st.builds(
    Line,
    bbox=st.tuples(_counts, _counts, _counts, _counts),
    text=texts,
    confidence=st.none() | st.floats(0, 1),
    strip=st.none() | strips,
)
reuses = st.builds(
    Reuse,
    kind=st.sampled_from(["none", "exact", "verified", "draft", "similar"]),
    origin=st.none()
    | st.builds(ReuseOrigin, document=texts, page=_counts, run=st.sampled_from([None, "earlier"])),
    verified_by=st.sampled_from([None, "sha256", "pixel-diff", "model"]),
)
sources = st.lists(
    st.builds(DraftCount, name=texts, guessed=_counts, right=_counts),
    max_size=2,
    unique_by=lambda source: source.name,
).map(tuple)
tokens = st.builds(
    TokenCounts,
    **dict.fromkeys(TokenCounts.__dataclass_fields__.keys() - {"sources"}, _counts),
    sources=sources,
)
seconds = st.builds(Seconds, **dict.fromkeys(Seconds.__dataclass_fields__, _seconds))
records = st.builds(
    PageRecord,
    document=texts,
    page=st.integers(1, 10**6),
    pages=st.integers(1, 10**6),
    status=st.sampled_from(["ok", "blank", "error", "looped", "timeout"]),
    text=texts,
    source=st.sampled_from([None, "text-layer", "model", "reuse"]),
    model=st.none() | texts,
    width=_counts,
    height=_counts,
    dpi=st.none() | st.floats(1, 1200) | st.integers(1, 1200),
    downscaled=st.booleans(),
    blank=st.booleans(),
    suspect=st.lists(texts, max_size=2).map(tuple),
    lines=st.lists(lines, max_size=3).map(tuple),
    reuse=reuses,
    tokens=tokens,
    attempts=st.integers(0, 5),
    seconds=seconds,
    error=st.none() | st.builds(ErrorInfo, code=texts, message=texts),
    answers=st.none()
    | st.lists(st.builds(PageAnswer, question=texts, text=texts), max_size=2).map(tuple),
    time=st.none() | st.floats(0, 1e6),
    data=st.none() | st.dictionaries(texts, st.none() | st.integers() | texts, max_size=2),
)


def page(document: str = "a.pdf", number: int = 1, text: str = "text", **more) -> PageRecord:
    """A record with the given fields and plain values elsewhere."""
    record = PageRecord(document=document, page=number, pages=9, status="ok", text=text)
    return replace(record, source="model", **more)


def failed(document: str = "a.pdf", number: int = 1, code: str = "timeout", **more) -> PageRecord:
    """The record of a page that failed."""
    error = ErrorInfo(code=code, message="it did not work")
    return page(document, number, text="", **{"status": "error", "error": error, **more})


def document(name: str, num_pages: int) -> list[PageRecord]:
    """All records of a document."""
    return [
        page(name, n, f"{name} {n}\nline", pages=num_pages, seconds=Seconds(decode=n / 7))
        for n in range(1, num_pages + 1)
    ]
