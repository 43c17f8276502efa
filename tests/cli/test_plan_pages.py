"""`vlmcli plan` counts pages by who would answer them: what it says is what `ocr` then does."""

import json
from collections import Counter

import pymupdf
import pytest
from real_documents import write_pages, write_text_pdf

TEXT = "A line of text that is long enough to be believed"


@pytest.fixture
def mixed(real):
    """A page with text, an empty one, a scan, and one whose text cannot be seen."""
    write_pages(real.folder / "scan.pdf", [1])
    write_text_pdf(real.folder / "born.pdf", [TEXT, ""])
    with (
        pymupdf.open(real.folder / "born.pdf") as pdf,
        pymupdf.open(real.folder / "scan.pdf") as one,
    ):
        pdf.insert_pdf(one)
        pdf.insert_pdf(one)
        for row in range(8):
            pdf[3].insert_text((10, 10 + 9 * row), "Xq zvb 0rkk", fontsize=7, render_mode=3)
        pdf.save(real.folder / "mixed.pdf")
    return real


def pages_of(real, *args: str) -> dict:
    done = real("plan", *args, "--look", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["pages"]


@pytest.mark.parametrize("mode", ["auto", "ignore", "only"])
def test_the_plan_says_what_the_job_does(mixed, mode):
    ahead = pages_of(mixed, "mixed.pdf", "--text-layer", mode)
    kinds = Counter[str]()
    for record in mixed.records("mixed.pdf", "--text-layer", mode, "--reuse", "off", "-q"):
        if "no-text-layer" in record["suspect"]:
            kinds["no_text_layer"] += 1
        elif record["blank"]:
            kinds["blank"] += 1
        else:
            kinds["text_layer" if record["source"] == "text-layer" else "to_read"] += 1
    counts = {name: kinds[name] for name in ("text_layer", "blank", "no_text_layer", "to_read")}
    assert ahead == counts | {"looked_at": 4, "is_estimate": False}
    assert ahead["text_layer"] == {"auto": 1, "ignore": 0, "only": 2}[mode]


def test_the_table_says_it_and_memory_is_as_if_all_were_read(mixed):
    said = mixed("plan", "mixed.pdf", "--look").stdout.decode()
    assert "\npages: 1 from text layer, 1 blank, 2 to read\n" in said
    born = mixed("plan", "born.pdf", "--look").stdout.decode()
    assert "\npages: 1 from text layer, 1 blank, 0 to read; ocr will load no model" in born
    terms = [
        json.loads(mixed("plan", "born.pdf", "--text-layer", mode, "--json").stdout)["terms"]
        for mode in ("auto", "ignore")
    ]
    assert terms[0]["weights"] == terms[1]["weights"] > 0
    assert json.loads(mixed("plan", "--look", "--json").stdout).get("pages") is None
    assert json.loads(mixed("plan", "mixed.pdf", "--json").stdout).get("pages") is None


def test_of_many_pages_some_are_looked_at_and_that_is_said(real):
    write_text_pdf(real.folder / "long.pdf", [TEXT] * 50 + [""] * 50)
    ahead = pages_of(real, "long.pdf")
    assert (ahead["looked_at"], ahead["is_estimate"]) == (24, True)
    assert sum(ahead[name] for name in ("text_layer", "blank", "to_read")) == 100
    assert abs(ahead["text_layer"] - 50) <= 4 and abs(ahead["blank"] - 50) <= 4
    said = real("plan", "long.pdf", "--look").stdout.decode()
    assert (
        "\npages: about 50 from text layer, 50 blank, 0 to read, judged by 24 pages of 100\n"
        in said
    )


def test_a_page_that_takes_too_long_counts_as_one_to_read(real):
    write_text_pdf(real.folder / "heavy.pdf", [TEXT, TEXT], heavy=[2])
    ahead = pages_of(real, "heavy.pdf")
    assert ahead["text_layer"] + ahead["to_read"] == 2 and ahead["text_layer"] >= 1
