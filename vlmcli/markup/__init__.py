"""What models wrap their answers in, taken off: code fences, location tags, DocTags, HTML tables.

Parsers on text; nothing of an answer is ever run. What is not understood stays as it was written:
an answer may lose markup, never words.
"""

from vlmcli.markup.doctags import is_doctags, read_doctags
from vlmcli.markup.fences import without_fence
from vlmcli.markup.locations import without_locations
from vlmcli.markup.tables import convert_tables


def tidy(text: str, task: str) -> str:
    """The answer to a task without wrappings.

    Tables become Markdown, or rows of plain text for the task `text`. The answer to `layout` is
    places and tags, so that only a fence around all of it is taken off.

    Args:
        text: as a model wrote it.
        task: `text`, `markdown`, `table`, `formula` or `layout`.
    """
    text = without_fence(text)
    if task == "layout":
        return text
    is_plain = task == "text"
    if is_doctags(text):
        return read_doctags(text, plain=is_plain)
    return convert_tables(without_locations(text), plain=is_plain).strip()
