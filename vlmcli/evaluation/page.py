"""An HTML page with the worst pages, truth beside text, differences marked; no scripts."""

import html
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

from vlmcli.evaluation.measures import PageErrors
from vlmcli.evaluation.pages import PagePair

_MAX_CHARACTERS = 20_000
"""Of a page's text that are compared for marking; the rest is shown without marks."""
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>vlmcli eval</title><style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; }
section { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
pre { white-space: pre-wrap; margin: 0; padding: .75rem; border: 1px solid #8886; }
del { background: #f885; } ins { background: #8f85; text-decoration: none; }
</style></head><body>
"""


def comparison_page(worst: Sequence[tuple[PageErrors, PagePair]], title: str) -> str:
    """The document; truth on the left, text on the right."""
    parts = [_HEAD, f"<h1>{html.escape(title)}</h1>\n"]
    for errors, pair in worst:
        missing = " (missing)" if pair.is_missing else ""
        name = html.escape(f"{pair.document}, page {pair.page}{missing}: CER {errors.cer:.2%}")
        left, right = _marked(pair.truth, pair.text)
        parts.append(f"<h2>{name}</h2><section><pre>{left}</pre><pre>{right}</pre></section>\n")
    return "".join([*parts, "</body></html>\n"])


def _marked(truth: str, text: str) -> tuple[str, str]:
    """Both texts as HTML, what the other has not in `del` and `ins`."""
    left, right = [], []
    before, after = truth[:_MAX_CHARACTERS], text[:_MAX_CHARACTERS]
    for change in Levenshtein.opcodes(before, after):
        old = html.escape(before[change.src_start : change.src_end])
        new = html.escape(after[change.dest_start : change.dest_end])
        same = change.tag == "equal"
        left.append(old if same or not old else f"<del>{old}</del>")
        right.append(new if same or not new else f"<ins>{new}</ins>")
    left.append(html.escape(truth[_MAX_CHARACTERS:]))
    right.append(html.escape(text[_MAX_CHARACTERS:]))
    return "".join(left), "".join(right)
