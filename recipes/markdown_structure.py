"""How well Markdown's structure is told: ours, ours without structure, and PyMuPDF's layout model.

    python recipes/markdown_structure.py RECORDS.jsonl...

RECORDS are what `vlmcli ocr -f jsonl` wrote for the pages in markdown_structure.json. That says for
each of them, by numbers of lines in the record, where blocks `start`, which lines are `headings`,
which are list `items`, which are running heads and page numbers (`margins`), and which cannot be
decided (`ignore`). Lines are looked for in the Markdown by their first letters, the same way for
all three. The layout model gets each page's lines as text on an empty page of the same size, at
their places. Prints F1 by kind and processor seconds a page.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vlmcli.outputs.markdown import MarkdownFormatter
from vlmcli.results import PageRecord

TRUTH = Path(__file__).with_suffix(".json")
KINDS = ("start", "headings", "items", "margins")
_ITEM = re.compile(r"[-*] |\d+[.)] ")
_LOOKED_FOR = (14, 8, 5)
"""Letters of a line that are looked for, the more the better."""
_REACH = 400


def plain_markdown(record: PageRecord) -> str:
    """Our Markdown of a record that has no lines: paragraphs as the reader gave them."""
    data = record.to_dict() | {"lines": []}
    return MarkdownFormatter().render(PageRecord.from_dict(data))


def own_markdown(record: PageRecord) -> str:
    """Our Markdown."""
    return MarkdownFormatter().render(record)


def layout_markdown(record: PageRecord) -> str:
    """PyMuPDF's, from a page on which the lines are written where they stand."""
    import pymupdf
    import pymupdf4llm

    scale = 72 / (record.dpi or 150)
    font = pymupdf.Font("helv")
    with pymupdf.open() as document:
        page = document.new_page(width=record.width * scale, height=record.height * scale)
        for line in record.lines:
            x0, _, x1, y1 = (side * scale for side in line.bbox)
            size = 0.8 * scale * (line.bbox[3] - line.bbox[1])
            width = font.text_length(line.text, size)
            if width <= 0:
                continue
            squeeze = (pymupdf.Point(x0, y1), pymupdf.Matrix((x1 - x0) / width, 1))
            page.insert_text((x0, y1 - 0.25 * size), line.text, fontsize=size, morph=squeeze)
        found: str = pymupdf4llm.to_markdown(document, show_progress=False, use_ocr=False)
    return found


def letters(text: str) -> str:
    """What lines are compared by."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def blocks_of(markdown: str) -> Iterator[tuple[str, str]]:
    """Kind and letters of each block."""
    for block in re.split(r"\n\s*\n|\n(?=[-*] |\d+[.)] )", markdown):
        text = block.strip()
        if not text or text.startswith(("<!-- page", "<!-- document")):
            continue
        kind = "headings" if text.startswith("#") else "items" if _ITEM.match(text) else "start"
        if text.startswith("<!-- "):
            kind, text = "margins", re.sub(r"<!-- \w+:", "", text)
        yield kind, letters(re.sub(r"\\|\*\*|<br>", "", text))


def judged(record: PageRecord, markdown: str) -> list[tuple[bool, str]]:
    """For each line: whether a block starts with it, and the kind of its block."""
    blocks, place = [], 0
    for kind, text in blocks_of(markdown):
        blocks.append((place, place + len(text), kind))
        place += len(text)
    whole = "".join(text for _, text in blocks_of(markdown))
    found, done = [], 0
    for line in record.lines:
        wanted = letters(line.text)
        at = _find(whole, wanted, done)
        block = next((one for one in blocks if one[0] <= at < one[1]), None)
        found.append((block is not None and at - block[0] <= 2, block[2] if block else ""))
        if at >= done:
            done = at + max(1, len(wanted) - 3)
    return found


def _find(whole: str, wanted: str, start: int) -> int:
    for length in _LOOKED_FOR:
        at = whole.find(wanted[:length], start) if wanted else -1
        if 0 <= at < start + _REACH:
            return at
    return whole.find(wanted[:14]) if wanted else -1


def count(
    truth: dict[str, Any], found: list[tuple[bool, str]], counts: dict[str, list[int]]
) -> None:
    """Add a page's right, wrong and missing lines."""
    for number, (starts, kind) in enumerate(found):
        if number in truth.get("ignore", ()):
            continue
        for name in KINDS:
            if name not in truth:
                continue
            said = starts if name == "start" else kind == name and (starts or name != "items")
            is_true = number in truth[name]
            counts[name][0] += is_true and said
            counts[name][1] += said and not is_true
            counts[name][2] += is_true and not said


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="+", type=Path)
    records = {}
    for path in parser.parse_args().records:
        for line in path.read_text(encoding="utf-8").splitlines():
            record = PageRecord.from_dict(json.loads(line))
            records[f"{Path(record.document).stem} {record.page}"] = record
    sets = json.loads(TRUTH.read_text(encoding="utf-8"))
    ways: tuple[Callable[[PageRecord], str], ...] = plain_markdown, own_markdown, layout_markdown
    for name, pages in sets.items():
        for way in ways:
            counts = {kind: [0, 0, 0] for kind in KINDS}
            started = time.process_time()
            texts = {page: way(records[page]) for page in pages}
            seconds = (time.process_time() - started) / len(pages)
            for page, truth in pages.items():
                count(truth, judged(records[page], texts[page]), counts)
            scores = ", ".join(
                f"{kind} {2 * right / max(1, 2 * right + wrong + missing):.2f} "
                f"({right} right, {wrong} wrong, {missing} missing)"
                for kind, (right, wrong, missing) in counts.items()
            )
            print(f"{name}: {way.__name__}: {scores}; {seconds:.4f} s a page")


if __name__ == "__main__":
    main()
