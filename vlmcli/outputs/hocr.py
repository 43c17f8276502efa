"""hOCR 1.2: an XHTML file with the box of every page, line and word, as OCR tools exchange it.

Blank pages are pages without lines. A failed page has no lines and says why in a comment. Lines of
which the direction is known have a `baseline`, or a `textangle` where they do not run from left to
right. For word boxes see `words`.
"""

from vlmcli.outputs.base import Formatter, failure_note
from vlmcli.outputs.markup import escape, quoteattr
from vlmcli.outputs.words import bounds_of, lines_of, storable, words_of
from vlmcli.results import Line, PageRecord
from vlmcli.strip import angle_of, quarter_of
from vlmcli.version import __version__

EXTENSION = ".hocr"
_HEAD = f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" \
"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="und" lang="und">
 <head>
  <title>vlmcli</title>
  <meta http-equiv="Content-Type" content="text/html;charset=utf-8"/>
  <meta name="ocr-system" content="vlmcli {__version__}"/>
  <meta name="ocr-capabilities" content="ocr_page ocr_carea ocr_par ocr_line ocrx_word"/>
 </head>
 <body>
"""
_TAIL = " </body>\n</html>\n"


class HocrFormatter(Formatter):
    """Formatter of `-f hocr`."""

    def __init__(self) -> None:
        self._num_pages = 0

    def render(self, record: PageRecord) -> str:
        """The page's elements, led by the head of the file at the first."""
        head = "" if self._num_pages else _HEAD
        self._num_pages += 1
        number = self._num_pages
        place = f"bbox 0 0 {record.width} {record.height}; ppageno {max(record.page, 1) - 1}"
        title = f'image "{storable(record.document)}"; {place}'
        parts = [f'  <div class="ocr_page" id="page_{number}" title={quoteattr(title)}>\n']
        if record.is_failed:
            # A comment may hold no pair of hyphens, nor end with one.
            note = storable(failure_note(record)).replace("-", "\N{HYPHEN}")
            parts.append(f"   <!-- {note} -->\n")
        lines = list(lines_of(record))
        if lines:
            parts += self._area(number, lines)
        return head + "".join(parts) + "  </div>\n"

    def tail(self) -> str:
        """The end of the file."""
        return _TAIL if self._num_pages else _HEAD + _TAIL

    def _area(self, page: int, lines: list[Line]) -> list[str]:
        """The one area and paragraph of a page: readers give no others."""
        box = _bbox(bounds_of(lines))
        parts = [
            f'   <div class="ocr_carea" id="block_{page}_1" title="{box}">\n',
            f'    <p class="ocr_par" id="par_{page}_1" title="{box}">\n',
        ]
        for number, line in enumerate(lines, 1):
            parts += _line(f"{page}_{number}", line)
        return [*parts, "    </p>\n", "   </div>\n"]


def _line(name: str, line: Line) -> list[str]:
    sure = "" if line.confidence is None else f"; x_wconf {round(100 * line.confidence)}"
    words = [
        f'      <span class="ocrx_word" id="word_{name}_{number}" title="{_bbox(word.bbox)}{sure}">'
        f"{escape(word.text)}</span>\n"
        for number, word in enumerate(words_of(line), 1)
    ]
    title = _bbox(line.bbox) + _direction(line)
    start = f'     <span class="ocr_line" id="line_{name}" title="{title}">\n'
    return [start, *words, "     </span>\n"]


def _direction(line: Line) -> str:
    """How a line runs: its slope and foot from the box's lower left, or its angle if turned.

    Angles count degrees counter-clockwise.
    """
    if line.strip is None:
        return ""
    if quarter_of(line.strip):
        return f"; textangle {-angle_of(line.strip) % 360:.4g}"
    (x0, y0), (x1, y1) = line.strip.start, line.strip.end
    slope = (y1 - y0) / (x1 - x0)
    foot = y0 - slope * (x0 - line.bbox[0]) - line.bbox[3]
    return f"; baseline {slope:.4f} {round(foot)}"


def _bbox(box: tuple[int, ...]) -> str:
    return "bbox " + " ".join(map(str, box))
