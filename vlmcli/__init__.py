"""vlmcli: documents to text with vision-language models, on the command line and as a library.

Importing this package does no work: no torch, no PyMuPDF, no file access.
"""

from typing import TYPE_CHECKING, Any

from vlmcli.version import SCHEMA_VERSION, __version__

if TYPE_CHECKING:
    from vlmcli.api import recognize
    from vlmcli.results import PageRecord

__all__ = ["SCHEMA_VERSION", "PageRecord", "__version__", "recognize"]


def __getattr__(name: str) -> Any:
    """`recognize` and `PageRecord`, loaded when they are asked for (PEP 562)."""
    if name == "recognize":
        from vlmcli.api import recognize

        return recognize
    if name == "PageRecord":
        from vlmcli.results import PageRecord

        return PageRecord
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
