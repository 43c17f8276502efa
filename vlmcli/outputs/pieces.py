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
    for line, (start, end) in zip(record.lines, places, strict=True):
        if start > done:
            yield record.text[done:start], None
        yield record.text[start:end], line
        done = end
    if done < len(record.text):
        yield record.text[done:], None


def _places(record: PageRecord) -> list[tuple[int, int]] | None:
    """Where in the text each line is; None if anything but blanks is left between lines."""
    places, done = [], 0
    for line in record.lines:
        found = _find(record.text, line.text, done)
        if found is None or record.text[done : found[0]].strip():
            return None
        places.append(found)
        done = found[1]
    is_whole = not record.lines or not record.text[done:].strip()
    return places if is_whole else None


def _find(text: str, line: str, start: int) -> tuple[int, int] | None:
    """A line in the text, where several blanks of a model's line may have become one."""
    for wanted in (line, " ".join(line.split())):
        found = text.find(wanted, start)
        if found >= 0 and not text[start:found].strip():
            return found, found + len(wanted)
    return None
