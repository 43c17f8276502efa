"""Tags that say where on a page something stands, taken out of its text.

PaliGemma's and Florence's `<loc0123>` and `<loc_12>`, Qwen's `<|box_start|>…<|box_end|>`, and
DeepSeek's `<|ref|>kind<|/ref|><|det|>[[…]]<|/det|>`, whose kind (`text`, `title`) goes with it.
"""

import re

_TAGS = re.compile(
    r"<\|ref\|>[^<\n]*<\|/ref\|><\|det\|>[\d\s,.\[\]]*<\|/det\|>[ \t]*\n?"
    r"|<\|det\|>[\d\s,.\[\]]*<\|/det\|>"
    r"|<\|box_start\|>[\d\s,.()]*<\|box_end\|>"
    r"|<\|/?(?:ref|object_ref_start|object_ref_end)\|>"
    r"|<loc_?\d{1,4}>"
)


def without_locations(text: str) -> str:
    """The text without tags of places; text without any is returned as it is."""
    return _TAGS.sub("", text)
