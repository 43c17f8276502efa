"""The text of a record cut where its lines begin and end, so that a line can be pointed at.

The text stays as it is, with its empty lines and the gaps between table cells.
"""

from collections.abc import Iterator

from vlmcli.results import Line, PageRecord


def pieces(record: PageRecord) -> Iterator[tuple[str, Line | None]]:
    """Runs of the text, in order: each is a line's, or stands between lines (None).

    Together they are the text. Where the text is not that of the lines in their order, each line
    stands on a line of its own instead.
    """
    places = _places(record)
    if places is None:
        for line in record.lines:
            yield line.text, line
            yield "\n", None
        return
    done = 0
    for line, start in zip(record.lines, places, strict=True):
        if start > done:
            yield record.text[done:start], None
        done = start + len(line.text)
        yield line.text, line
    if done < len(record.text):
        yield record.text[done:], None


def _places(record: PageRecord) -> list[int] | None:
    """Where in the text each line begins; None if anything but blanks is left between lines."""
    places, done = [], 0
    for line in record.lines:
        start = record.text.find(line.text, done)
        if start < 0 or record.text[done:start].strip():
            return None
        places.append(start)
        done = start + len(line.text)
    is_whole = not record.lines or not record.text[done:].strip()
    return places if is_whole else None
