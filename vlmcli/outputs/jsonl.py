"""JSON Lines: every page's record, one line a page, exactly as `PageRecord.to_json` writes it."""

from vlmcli.outputs.base import Formatter
from vlmcli.results import PageRecord

EXTENSION = ".jsonl"


class JsonlFormatter(Formatter):
    """Formatter of `-f jsonl`."""

    def render(self, record: PageRecord) -> str:
        """The record's line."""
        return record.to_json() + "\n"
