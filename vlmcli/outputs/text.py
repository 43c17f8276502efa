"""Plain text: one page after another, with a form feed between pages.

A page's text ends with a line feed; a blank page is empty, so that page N stands between form feeds
N-1 and N. A failed page carries a marker line. Where several questions were put to the pages, each
answer stands below its question. Gives up boxes, confidences and provenance: take
JSONL for these.
"""

from vlmcli.outputs.base import Formatter, failure_note, plain
from vlmcli.results import PageRecord

EXTENSION = ".txt"


class TextFormatter(Formatter):
    """Formatter of `-f text`."""

    def __init__(self) -> None:
        self._is_first = True

    def render(self, record: PageRecord) -> str:
        """The page, led by a form feed unless it is the target's first."""
        lead = "" if self._is_first else "\f"
        self._is_first = False
        text = plain(_text(record)).strip("\n")
        lines = [text] if text else []
        if record.is_failed:
            lines.append(f"[vlmcli: {failure_note(record)}]")
        return lead + "".join(f"{line}\n" for line in lines)


def _text(record: PageRecord) -> str:
    answers = [answer for answer in record.answers or () if answer.text]
    if len(record.answers or ()) < 2:
        return record.text
    return "\n\n".join(f"{answer.question}\n{answer.text}" for answer in answers)
