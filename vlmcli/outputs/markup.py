"""Text as XML writes it: in content and in attributes. Pure functions.

As `xml.sax.saxutils` has them, which brings `urllib` and `http` along, at every start of a command.
"""

_CONTENT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ATTRIBUTE = {
    **_CONTENT,
    **str.maketrans({'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}),
}


def escape(text: str) -> str:
    """`text` as the content of an element."""
    return text.translate(_CONTENT)


def quoteattr(text: str) -> str:
    """`text` as the value of an attribute, in double quotes."""
    return f'"{text.translate(_ATTRIBUTE)}"'
