"""The HTML document of a report, in pieces: head, pages one by one, tail.

Self-contained: style and script are inside, pictures are base64 in inert elements that the script
turns into images when they come near. Everything from records is escaped, and the content security
policy runs no script but ours. Holds no page once it is written.
"""

import base64
import hashlib
import html
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from vlmcli.outputs.base import encode, plain
from vlmcli.outputs.pieces import pieces
from vlmcli.results import Line, PageRecord
from vlmcli.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePicture:
    """A page's picture as an image file, or why there is none; neither where none is wanted."""

    data: bytes = b""
    media_type: str = "image/webp"
    note: str = ""


class HtmlReport:
    """Calls come as `head`, `page`*, `tail`; what they return makes up the file, in UTF-8.

    Args:
        title: what the report is about.
        has_pictures: whether pages get a place for their picture.
    """

    def __init__(self, title: str, *, has_pictures: bool = True) -> None:
        self._title = title
        self._has_pictures = has_pictures
        self._num_pages = 0

    def head(self) -> bytes:
        """Everything before the first page."""
        digest = base64.b64encode(hashlib.sha256(encode(_script())).digest()).decode()
        policy = (
            "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        )
        title = _escaped(self._title)
        layout = "with-pictures" if self._has_pictures else "text-only"
        return encode(
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta name="generator" content="vlmcli {__version__}">\n'
            f"<title>{title}</title>\n<style>\n{_asset('report.css')}</style></head>\n"
            f'<body class="{layout}">\n{_asset("header.html").replace("$TITLE", title)}'
            '<main id="pages">\n'
        )

    def page(self, record: PageRecord, picture: PagePicture | None = None) -> bytes:
        """One page. A picture is shown as wide and high as the record says the page is."""
        self._num_pages += 1
        name = f"p{self._num_pages}"
        place = f"{record.document}, page {record.page} of {record.pages}"
        if not record.page:
            place = record.document
        parts = [
            f'<article id="{name}" tabindex="-1" aria-labelledby="{name}-name"{_data(record)}>\n'
            f'<h2 id="{name}-name"><a href="#{name}">{_escaped(place)}</a></h2>\n'
            f"{_facts(record)}"
        ]
        if self._has_pictures:
            parts.append(_figure(record, place, picture))
        parts.append(_text(record))
        parts.append("</article>\n")
        return encode("".join(parts))

    def tail(self) -> bytes:
        """Everything behind the last page."""
        return encode(f"</main>\n<script>{_script()}</script>\n</body></html>\n")


@cache
def _asset(name: str) -> str:
    return (resources.files("vlmcli.outputs.html") / name).read_text(encoding="utf-8")


def _script() -> str:
    return _asset("report.js")


def _escaped(text: str) -> str:
    """Text for HTML, in an element or a quoted attribute; controls are dropped."""
    return html.escape(encode(plain(text)).decode())


def _data(record: PageRecord) -> str:
    """What pages are filtered by. Reasons of suspicion stand on lines of their own."""
    values = {
        "document": record.document,
        "status": record.status,
        "source": record.source or "none",
        "reuse": record.reuse.kind,
        "suspect": "\n".join(record.suspect),
    }
    return "".join(f' data-{name}="{_escaped(value)}"' for name, value in values.items())


def _facts(record: PageRecord) -> str:
    """What is known about the page, in a line; a failure or a suspicion stands out."""
    parts = [_badge("status", record.status)]
    parts += [_badge("suspect", word) for word in record.suspect]
    parts += [_escaped(fact) for fact in _plain_facts(record)]
    facts = f'<p class="facts">{" · ".join(parts)}</p>\n'
    if record.error is None:
        return facts
    message = f"{record.error.code}: {record.error.message}"
    return f'{facts}<p class="note error">{_escaped(message)}</p>\n'


def _badge(kind: str, word: str) -> str:
    return f'<b class="{kind}" data-word="{_escaped(word)}">{_escaped(word)}</b>'


def _plain_facts(record: PageRecord) -> Iterable[str]:
    if record.source is not None:
        by_model = record.source == "model" and record.model
        yield f"{record.source} {record.model}" if by_model else record.source
    if record.reuse.kind != "none":
        origin = record.reuse.origin
        where = f" from {origin.document}, page {origin.page}" if origin else ""
        proof = f", proven by {record.reuse.verified_by}" if record.reuse.verified_by else ""
        yield f"{record.reuse.kind}{where}{proof}"
    if record.width and record.height:
        dpi = f" at {record.dpi:g} dpi" if record.dpi else ""
        yield f"{record.width} × {record.height}{dpi}{', downscaled' if record.downscaled else ''}"
    if record.attempts > 1:
        yield f"{record.attempts} attempts"
    times = record.seconds
    total = times.render + times.encode + times.prefill + times.decode
    yield f"{total:.2f} s"


def _figure(record: PageRecord, place: str, picture: PagePicture | None) -> str:
    """The sheet: its shape is that of the record, so that boxes fit and nothing moves."""
    width, height = record.width or 1, record.height or 1
    attributes = f'data-alt="Picture of {_escaped(place)}" data-w="{width}" data-h="{height}"'
    if picture is None or not picture.data:
        why = picture.note if picture is not None else ""
        note = _escaped(f"No picture: {why}" if why else "No picture.")
        if not record.page:
            return ""
        return f'<figure class="empty"><p class="note">{note}</p></figure>\n'
    data = base64.b64encode(picture.data).decode()
    note = f'<p class="note">{_escaped(picture.note)}</p>' if picture.note else ""
    return (
        f'<figure><div class="sheet" {attributes} style="aspect-ratio:{width}/{height};'
        f'--shape:{width / height:.4f}">'
        f'<script type="text/plain" data-type="{picture.media_type}">{data}</script></div>'
        f'<figcaption aria-hidden="true"></figcaption>{note}</figure>\n'
    )


def _text(record: PageRecord) -> str:
    """The text, its lines marked; under `vlmcli ask` the answers below their questions."""
    parts = []
    if record.answers is not None:
        for answer in record.answers:
            question, text = _escaped(answer.question), _escaped(answer.text)
            parts.append(f"<h3>{question}</h3><div>{text}</div>")
    else:
        for text, line in pieces(record):
            parts.append(_escaped(text) if line is None else _line(text, line))
    if not record.text:
        parts.append(f'<p class="note">{_escaped(_nothing(record))}</p>')
    return f'<div class="words">{"".join(parts)}</div>\n'


def _nothing(record: PageRecord) -> str:
    return "Nothing is on this page." if record.blank else "No text."


def _line(text: str, line: Line) -> str:
    box = " ".join(map(str, line.bbox))
    sure = "" if line.confidence is None else f' data-sure="{line.confidence:.2f}"'
    doubt = " doubtful" if line.confidence is not None and line.confidence < _DOUBTFUL else ""
    return f'<span class="line{doubt}" tabindex="-1" data-box="{box}"{sure}>{_escaped(text)}</span>'


_DOUBTFUL = 0.75
"""Confidence below which a line is underlined."""
