"""The report of `vlmcli view`: one HTML file with every page's picture beside its text.

`report` writes the document, page by page; `report.css` and `report.js` are copied into it. Opens
no documents: pictures are handed in.
"""

from vlmcli.outputs.html.report import HtmlReport, PagePicture

__all__ = ["HtmlReport", "PagePicture"]
