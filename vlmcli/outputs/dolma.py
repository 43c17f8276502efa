"""Dolma: one line a document, its pages joined, for training corpora.

The schema is that of olmOCR's files: `text`, and `attributes.pdf_page_numbers` with the start and
end of each page in it, in characters, and its number. Failed pages are empty; `metadata` counts
them. Gives up boxes and confidences.
"""

import datetime
import hashlib
import json
from dataclasses import replace
from typing import Any

from vlmcli.outputs.base import Formatter, plain
from vlmcli.results import PageRecord
from vlmcli.version import __version__

EXTENSION = ".dolma.jsonl"


class DolmaFormatter(Formatter):
    """Formatter of `-f dolma`.

    Args:
        today: date for the field `added`; that of the clock if None.
    """

    def __init__(self, today: datetime.date | None = None) -> None:
        self._today = today or datetime.datetime.now(tz=datetime.UTC).date()
        self._records: list[PageRecord] = []

    def render(self, record: PageRecord) -> str:
        """The document before this one, where this is the first page of the next."""
        done = ""
        if self._records and self._records[0].document != record.document:
            done = self.tail()
        self._records.append(replace(record, lines=()))
        return done

    def tail(self) -> str:
        """The last document."""
        records, self._records = self._records, []
        return json.dumps(self._document(records), ensure_ascii=False) + "\n" if records else ""

    def _document(self, records: list[PageRecord]) -> dict[str, Any]:
        text, pages = "", []
        for record in records:
            start = len(text)
            text += plain(record.text)
            pages.append([start, len(text), record.page])
            if text and record is not records[-1]:
                text += "\n"
        day = self._today.isoformat()
        return {
            "id": hashlib.sha1(text.encode(errors="replace"), usedforsecurity=False).hexdigest(),
            "text": text,
            "source": "vlmcli",
            "added": day,
            "created": day,
            "metadata": {
                "Source-File": records[0].document,
                "vlmcli-version": __version__,
                "pdf-total-pages": records[0].pages,
                "total-failed-pages": sum(record.is_failed for record in records),
                "models": sorted({record.model for record in records if record.model}),
            },
            "attributes": {"pdf_page_numbers": pages},
        }
