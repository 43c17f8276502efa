"""`--text-layer only` is not silent about pages that have none: one line, however many they are."""

import json

import pytest
from real_documents import write_pages, write_text_pdf


@pytest.mark.parametrize(("seeds", "said"), [([1], "1 page has"), ([1, 2, 3], "3 pages have")])
def test_pages_without_a_text_layer_are_counted_in_a_line(real, seeds, said):
    write_pages(real.folder / "scan.pdf", seeds)
    write_text_pdf(real.folder / "born.pdf", ["One", ""])
    args = ("--text-layer", "only", "-f", "jsonl", "--stats", "stats.json")
    alone = real("ocr", "scan.pdf", *args)
    assert alone.returncode == 0
    line = f"vlmcli: warning: {said} no text layer; --text-layer auto has a model read such pages\n"
    assert alone.stderr.decode() == line
    assert json.loads((real.folder / "stats.json").read_text())["no_text_layer"] == len(seeds)
    records = [json.loads(line) for line in alone.stdout.splitlines()]
    assert {(r["status"], r["text"], *r["suspect"]) for r in records} == {
        ("ok", "", "no-text-layer")
    }
    both = real("ocr", "scan.pdf", "born.pdf", *args[:-1], "both.json")
    assert both.stderr.decode().startswith(f"vlmcli: warning: {len(seeds) + 1} pages have no text")
    assert both.stderr.count(b"\n") == 1
    assert real("ocr", "scan.pdf", *args[:2], "-q").stderr == b""


def test_where_every_page_has_one_nothing_is_said(real):
    write_text_pdf(real.folder / "born.pdf", ["One", "Two"])
    done = real("ocr", "born.pdf", "--text-layer", "only", "--stats", "stats.json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((real.folder / "stats.json").read_text())["no_text_layer"] == 0
