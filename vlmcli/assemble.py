"""From what workers and readers say about a page to its record. Pure functions, no state."""

from dataclasses import dataclass

from vlmcli.documents.lines import LineCrop, join_text
from vlmcli.documents.prepare import PreparedPage
from vlmcli.reading import CropText, PageReading
from vlmcli.results import ErrorInfo, Line, PageRecord, Reuse, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PageIdentity:
    """Which page a record is about: document name, number from 1, pages in the document."""

    document: str
    page: int
    pages: int

    def failed(
        self, code: str, message: str, *, attempts: int = 0, status: str = "error"
    ) -> PageRecord:
        """The record of a page that came to nothing."""
        assert status in ("error", "timeout")
        return PageRecord(
            document=self.document,
            page=self.page,
            pages=self.pages,
            status="timeout" if status == "timeout" else "error",
            attempts=attempts,
            error=ErrorInfo(code=code, message=message),
        )


def unreadable_document(name: str, error_code: str, message: str) -> PageRecord:
    """The one record of a document that could not be opened: page 0 of 0."""
    return PageIdentity(document=name, page=0, pages=0).failed(error_code, message)


def prepared_record(identity: PageIdentity, page: PreparedPage) -> PageRecord:
    """The record of a page that needed no model: text layer, blank, faulty, or without any text."""
    return PageRecord(
        document=identity.document,
        page=identity.page,
        pages=identity.pages,
        status={"blank": "blank", "error": "error"}.get(page.outcome, "ok"),  # type: ignore[arg-type]
        text=page.text if page.outcome == "text-layer" else "",
        source="text-layer" if page.outcome == "text-layer" else None,
        width=page.width,
        height=page.height,
        dpi=page.dpi,
        downscaled=page.downscaled,
        blank=page.outcome == "blank",
        suspect=page.suspect,
        lines=page.lines if page.outcome == "text-layer" else (),
        attempts=1,
        seconds=Seconds(render=round(page.render_seconds, 4)),
        error=page.error,
    )


def read_record(
    identity: PageIdentity,
    page: PreparedPage,
    reading: PageReading,
    *,
    crops: tuple[LineCrop, ...],
    model: str,
) -> PageRecord:
    """The record of a page that a model has read."""
    lines, text = _join_crops(crops, reading.crops) if crops else ((), reading.text)
    failed = reading.status != "ok"
    return PageRecord(
        document=identity.document,
        page=identity.page,
        pages=identity.pages,
        status=reading.status,
        text="" if reading.status == "error" else text,
        source="model",
        model=model,
        width=page.width,
        height=page.height,
        dpi=page.dpi,
        downscaled=page.downscaled,
        suspect=(*page.suspect, *reading.suspect),
        lines=() if reading.status == "error" else lines,
        reuse=Reuse(),
        tokens=reading.tokens,
        attempts=reading.attempts,
        seconds=Seconds(
            render=round(page.render_seconds, 4),
            encode=round(reading.seconds.encode, 4),
            prefill=round(reading.seconds.prefill, 4),
            decode=round(reading.seconds.decode, 4),
        ),
        error=ErrorInfo(code=reading.status, message=reading.message) if failed else None,
    )
