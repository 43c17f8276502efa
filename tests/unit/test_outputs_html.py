"""The report: every text is there and inert, every line has its box, and no page is kept."""

import base64
import json
import re
import tracemalloc
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import failed, page, records

from vlmcli.errors import InputError
from vlmcli.outputs.base import encode, plain
from vlmcli.outputs.html import HtmlReport, PagePicture
from vlmcli.outputs.jsonl import read_records
from vlmcli.outputs.pieces import pieces
from vlmcli.results import Line, PageAnswer, PageRecord

OURS = {"article", "h2", "h3", "a", "p", "b", "div", "span", "figure", "figcaption", "script"}
ATTACK = """</script><img src=x onerror=alert(1)>"'><svg/onload=alert(2)><!-- ]]>"""


class Parsed(HTMLParser):
    """What a browser makes of a piece of HTML: elements, attributes, and text outside scripts."""

    def __init__(self, markup: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.text = ""
        self._script = False
        self.feed(markup.decode())
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._script = tag == "script"

    def handle_endtag(self, tag):
        self._script = False

    def handle_data(self, data):
        if not self._script:
            self.text += data

    def all(self, name: str, **wanted: str) -> list[dict]:
        return [
            attributes
            for tag, attributes in self.elements
            if tag == name and wanted.items() <= attributes.items()
        ]


def shown(text: str) -> str:
    # Two names that differ in what is no UTF-8 stay two.
    return plain(text).encode("utf-8", "backslashreplace").decode()


@given(records)
def test_whatever_a_record_says_is_text(record):
    found = Parsed(HtmlReport("x").page(record, PagePicture(data=b"\x00picture", note="</p>")))
    assert {tag for tag, _ in found.elements} <= OURS
    assert not [name for _, names in found.elements for name in names if name.startswith("on")]
    assert len(found.all("script")) == 1
    (article,) = found.all("article")
    assert article["data-document"] == shown(record.document)
    assert article["data-status"] == record.status
    for answer in record.answers or ():
        assert shown(answer.text) in found.text
    if record.answers is None:
        for line in record.lines:
            assert " ".join(shown(line.text).split()) in " ".join(found.text.split())


def test_an_attack_in_every_field_stays_text():
    line = Line(bbox=(1, 2, 3, 4), text=ATTACK)
    record = page(ATTACK, text=ATTACK, suspect=(ATTACK,), lines=(line,), model=ATTACK)
    asked = page(text=ATTACK, answers=(PageAnswer(question=ATTACK, text=ATTACK),))
    for one in (record, asked, failed(ATTACK, code=ATTACK)):
        whole = HtmlReport(ATTACK)
        markup = whole.head() + whole.page(one, PagePicture(note=ATTACK)) + whole.tail()
        found = Parsed(markup)
        assert not found.all("img")
        assert not found.all("svg")
        assert len(found.all("script")) == 1
        assert ATTACK in found.text


@given(records)
def test_pieces_are_the_text_or_the_lines(record):
    found = list(pieces(record))
    joined = "".join(text for text, _ in found)
    lines = [line for _, line in found if line is not None]
    assert lines == list(record.lines)
    assert joined in (record.text, "".join(f"{line.text}\n" for line in record.lines))


def test_lines_stand_in_the_text_as_it_is():
    texts = ("Name", "Sum", "Bread", "2.00", "Bread")
    lines = tuple(Line(bbox=(0, n, 9, n + 1), text=text) for n, text in enumerate(texts))
    record = page(text="Name  Sum\nBread  2.00\n\nBread", lines=lines)
    assert [(text, line.bbox[1] if line else None) for text, line in pieces(record)] == [
        *(("Name", 0), ("  ", None), ("Sum", 1), ("\n", None), ("Bread", 2)),
        *(("  ", None), ("2.00", 3), ("\n\n", None), ("Bread", 4)),
    ]


def test_lines_are_found_where_blanks_were_joined():
    lines = (
        Line(bbox=(0, 0, 9, 9), text="so  much   room "),
        Line(bbox=(0, 9, 9, 18), text="here"),
    )
    record = page(text="so much room\nhere", lines=lines)
    assert list(pieces(record)) == [("so much room", lines[0]), ("\n", None), ("here", lines[1])]


def test_boxes_doubts_and_shape_are_those_of_the_record():
    line = Line(bbox=(10, 20, 110, 40), text="doubtful", confidence=0.4)
    record = page(text="doubtful", lines=(line,), width=200, height=400)
    found = Parsed(HtmlReport("x").page(record, PagePicture(data=b"RIFF")))
    (span,) = found.all("span", **{"data-box": "10 20 110 40", "data-sure": "0.40"})
    assert "doubtful" in span["class"].split()
    (sheet,) = found.all("div", **{"class": "sheet"})
    assert (sheet["data-w"], sheet["data-h"]) == ("200", "400")
    assert sheet["data-alt"] == "Picture of a.pdf, page 1 of 9"


def test_one_script_runs_and_nothing_is_fetched():
    whole = HtmlReport("x")
    markup = whole.head() + whole.page(page()) + whole.tail()
    found = Parsed(markup)
    (policy,) = found.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'; img-src data:;")
    assert len(found.all("script")) == 1
    addresses = [
        value
        for _, names in found.elements
        for key, value in names.items()
        if key in ("src", "href")
    ]
    assert all(address.startswith("#") for address in addresses)
    assert b"http://" not in markup
    assert b"https://" not in markup
    labelled = re.findall(r"<label>[^<]+<(?:input|select)", markup.decode())
    assert len(labelled) == len(found.all("input")) + len(found.all("select")) == 6


def test_pictures_are_inside_and_only_where_wanted():
    data = bytes(range(256))
    found = HtmlReport("x").page(page(), PagePicture(data=data))
    assert base64.b64encode(data) in found
    assert b"<figure" not in HtmlReport("x", has_pictures=False).page(page())
    note = HtmlReport("x").page(page(), PagePicture(note="no such file"))
    assert b"No picture: no such file" in note


def test_memory_does_not_grow_with_pages():
    line = Line(bbox=(1, 2, 3, 4), text="word " * 12)
    lines = (line,) * 40

    def peak(num_pages: int) -> int:
        report = HtmlReport("x")
        report.head()
        tracemalloc.start()
        for number in range(1, num_pages + 1):
            report.page(page("a.pdf", number, lines=lines), PagePicture(data=b"x" * 50_000))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(200) < 1.2 * peak(20)


@given(st.lists(records, max_size=4))
def test_records_are_read_as_they_were_written(some_records):
    lines = [encode(record.to_json()) + b"\n" for record in some_records]
    assert list(read_records([*lines, b"\n"], "x.jsonl")) == some_records


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(page().to_dict())), ANY_JSON)
def test_a_field_of_a_wrong_kind_is_named_or_harmless(field, value):
    good = page(lines=(Line(bbox=(1, 2, 3, 4), text="a"),))
    data = json.dumps(good.to_dict() | {field: value}).encode()
    try:
        (record,) = read_records([data], "x.jsonl")
    except InputError as error:
        assert str(error).startswith("x.jsonl, line 1: not a page record: ")
    else:
        Parsed(HtmlReport("x").page(record))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b"{", "no JSON: "),
        (b"\xff", "no UTF-8"),
        (b"[]", "of a wrong kind"),
        (b"{}", "it has no document"),
        (b"[" * 100_000, "of a wrong kind"),
        (encode(json.dumps(page().to_dict() | {"text": 5})), "the value of text"),
    ],
)
def test_a_broken_line_is_named(line, cause):
    good = encode(page().to_json())
    with pytest.raises(InputError) as caught:
        list(read_records([good, b"", line], "x.jsonl"))
    assert str(caught.value).startswith("x.jsonl, line 3: not a page record: ")
    assert cause in str(caught.value)


def test_unknown_fields_are_ignored():
    data = page().to_dict() | {"later": {"more": 1}}
    (record,) = read_records([json.dumps(data).encode()], "x")
    assert record == PageRecord.from_dict(page().to_dict())
