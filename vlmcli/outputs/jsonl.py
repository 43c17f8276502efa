"""JSON Lines: every page's record, one line a page, exactly as `PageRecord.to_json` writes it."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from vlmcli.errors import InputError
from vlmcli.outputs.base import Formatter
from vlmcli.results import PageRecord, Strip

EXTENSION = ".jsonl"
_FARTHEST = 1e9
"""Pixels: no page is that large."""


class JsonlFormatter(Formatter):
    """Formatter of `-f jsonl`."""

    def render(self, record: PageRecord) -> str:
        """The record's line."""
        return record.to_json() + "\n"


def read_records(lines: Iterable[bytes], name: str) -> Iterator[PageRecord]:
    """The records of a JSON Lines file, one after the other; empty lines are skipped.

    Args:
        lines: of the file, in UTF-8.
        name: of the file, for messages.

    Raises:
        InputError: a line is no page record; the message has its number, from 1.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = PageRecord.from_dict(json.loads(line))
            wrong = _wrong_fields(record)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _no_record(name, number, _cause(error)) from error
        if wrong:
            raise _no_record(name, number, f"the value of {wrong[0]} is of a wrong kind")
        yield record


def _no_record(name: str, number: int, cause: str) -> InputError:
    return InputError(
        f"{name}, line {number}: not a page record: {cause}",
        remedy="give what `vlmcli ocr -f jsonl` writes",
        code="damaged",
    )


def _cause(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON: {error.msg} at character {error.pos + 1}"
    if isinstance(error, UnicodeDecodeError):
        return "no UTF-8"
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    return "its fields are of a wrong kind"


def _wrong_fields(record: PageRecord) -> list[str]:
    """Fields that hold another kind of value than the schema says."""
    origin, error = record.reuse.origin, record.error
    checks = {
        "document": _is_text(record.document),
        "page": all(_is_count(one) for one in (record.page, record.pages)),
        "status": _is_text(record.status),
        "text": _is_text(record.text),
        "source": record.source is None or _is_text(record.source),
        "model": record.model is None or _is_text(record.model),
        "width": _is_count(record.width) and _is_count(record.height),
        "dpi": record.dpi is None or _is_number(record.dpi),
        "time": record.time is None or _is_number(record.time),
        "suspect": all(_is_text(word) for word in record.suspect),
        "lines": all(
            _is_text(line.text)
            and len(line.bbox) == 4
            and all(isinstance(side, int) for side in line.bbox)
            and (line.confidence is None or _is_number(line.confidence))
            and (line.strip is None or _is_strip(line.strip))
            for line in record.lines
        ),
        "reuse": _is_text(record.reuse.kind)
        and (origin is None or (_is_text(origin.document) and _is_count(origin.page)))
        and (record.reuse.verified_by is None or _is_text(record.reuse.verified_by)),
        "attempts": _is_count(record.attempts),
        "seconds": all(
            _is_number(getattr(record.seconds, name))
            for name in ("render", "encode", "prefill", "decode")
        ),
        "error": error is None or (_is_text(error.code) and _is_text(error.message)),
        "answers": all(
            _is_text(one.question) and _is_text(one.text) for one in record.answers or ()
        ),
    }
    return [name for name, is_right in checks.items() if not is_right]


def _is_strip(strip: Strip) -> bool:
    lengths = (*strip.start, *strip.end, strip.ascent, strip.descent, strip.bow)
    places = [place for word in strip.words for place in word]
    # No number that is none, nor one that geometry cannot compute with.
    is_near = all(_is_number(one) and abs(one) <= _FARTHEST for one in (*lengths, *places))
    return is_near and all(isinstance(place, int) for place in places)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
