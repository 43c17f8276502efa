"""ALTO 4.2: the XML of libraries and archives, with the box of every page, line and word.

One file holds the pages of one document, or of several. Blank pages are pages without lines. A
failed page has no lines; `PAGECLASS` says that it failed. Lines of which the direction is known
have a `BASELINE`; lines that do not run from left to right stand in blocks with a `ROTATION`. For
word boxes see `words`.
"""

from collections.abc import Sequence
from itertools import groupby

from vlmcli.outputs.base import Formatter
from vlmcli.outputs.markup import escape, quoteattr
from vlmcli.outputs.words import Word, bounds_of, lines_of, storable, words_of
from vlmcli.results import Line, PageRecord
from vlmcli.strip import box_of, part_of, quarter_of
from vlmcli.version import __version__

EXTENSION = ".xml"
_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://www.loc.gov/standards/alto/ns-v4# \
http://www.loc.gov/standards/alto/v4/alto-4-2.xsd" SCHEMAVERSION="4.2">
 <Description>
  <MeasurementUnit>pixel</MeasurementUnit>
  <sourceImageInformation>
   <fileName>{document}</fileName>
  </sourceImageInformation>
  <Processing ID="vlmcli">
   <processingSoftware>
    <softwareName>vlmcli</softwareName>
    <softwareVersion>{version}</softwareVersion>
   </processingSoftware>
  </Processing>
 </Description>
 <Layout>
"""
_TAIL = " </Layout>\n</alto>\n"


class AltoFormatter(Formatter):
    """Formatter of `-f alto`."""

    def __init__(self) -> None:
        self._num_pages = 0

    def render(self, record: PageRecord) -> str:
        """The page's elements, led by the head of the file at the first."""
        head = ""
        if not self._num_pages:
            name = escape(storable(record.document))
            head = _HEAD.format(document=name, version=__version__)
        self._num_pages += 1
        number, size = self._num_pages, f'WIDTH="{record.width}" HEIGHT="{record.height}"'
        kind = f" PAGECLASS={quoteattr(record.status)}" if record.is_failed else ""
        parts = [
            f'  <Page ID="page_{number}" PHYSICAL_IMG_NR="{record.page}" {size}{kind}>\n',
            f'   <PrintSpace HPOS="0" VPOS="0" {size}>\n',
        ]
        blocks = groupby(enumerate(lines_of(record), 1), key=lambda pair: _quarter(pair[1]))
        for block, (quarter, group) in enumerate(blocks, 1):
            numbered = list(group)
            name = f"block_{number}" if block == 1 else f"block_{number}_{block}"
            parts.append(_block(name, quarter, [line for _, line in numbered]))
            for index, line in numbered:
                parts += _line(f"line_{number}_{index}", line)
            parts.append("    </TextBlock>\n")
        return head + "".join(parts) + "   </PrintSpace>\n  </Page>\n"

    def tail(self) -> str:
        """The end of the file."""
        return _TAIL


def _quarter(line: Line) -> int:
    """Quarter turns counter-clockwise by which a line is turned."""
    return 0 if line.strip is None else quarter_of(line.strip)


def _block(name: str, quarter: int, lines: Sequence[Line]) -> str:
    turn = f' ROTATION="{90 * quarter}"' if quarter else ""
    return f'    <TextBlock ID="{name}" {_box(bounds_of(lines))}{turn}>\n'


def _line(name: str, line: Line) -> list[str]:
    sure = "" if line.confidence is None else f' WC="{line.confidence:.2f}"'
    parts = [f'     <TextLine ID="{name}" {_box(line.bbox)}{_baseline(line)}>\n']
    before: Word | None = None
    for word in words_of(line):
        if before is not None:
            parts.append(_space(line, before, word))
        content = quoteattr(word.text)
        parts.append(f"      <String CONTENT={content} {_box(word.bbox)}{sure}/>\n")
        before = word
    return [*parts, "     </TextLine>\n"]


def _baseline(line: Line) -> str:
    if line.strip is None:
        return ""
    (x0, y0), (x1, y1) = line.strip.start, line.strip.end
    return f' BASELINE="{x0:.0f},{y0:.0f} {x1:.0f},{y1:.0f}"'


def _space(line: Line, before: Word, word: Word) -> str:
    """The blank between two words: of its box, the format has no height."""
    left, top, width = before.bbox[2], word.bbox[1], word.bbox[0] - before.bbox[2]
    if line.strip is not None and word.span[0] > before.span[1]:
        x0, y0, x1, _ = box_of(part_of(line.strip, before.span[1], word.span[0]))
        left, top, width = x0, y0, x1 - x0
    return f'      <SP HPOS="{left}" VPOS="{top}" WIDTH="{max(0, width)}"/>\n'


def _box(box: tuple[int, ...]) -> str:
    x0, y0, x1, y1 = box
    return f'HPOS="{x0}" VPOS="{y0}" WIDTH="{x1 - x0}" HEIGHT="{y1 - y0}"'
