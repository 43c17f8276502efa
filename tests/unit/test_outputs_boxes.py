"""hOCR, ALTO and Dolma: well-formed whatever a page says, and nothing of its text is lost."""

import datetime
import itertools
import json
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import records

from vlmcli.outputs.alto import AltoFormatter
from vlmcli.outputs.base import Formatter, encode, plain
from vlmcli.outputs.dolma import DolmaFormatter
from vlmcli.outputs.hocr import HocrFormatter
from vlmcli.outputs.words import lines_of, words_of
from vlmcli.results import ErrorInfo, Line, PageRecord

FEW = settings(max_examples=20, deadline=None)
ALTO = "{http://www.loc.gov/standards/alto/ns-v4#}"
HTML = "{http://www.w3.org/1999/xhtml}"
ALTO_CHILDREN = {
    "alto": {"Description", "Layout"},
    "Description": {"MeasurementUnit", "sourceImageInformation", "Processing"},
    "sourceImageInformation": {"fileName"},
    "Processing": {"processingSoftware"},
    "processingSoftware": {"softwareName", "softwareVersion"},
    "Layout": {"Page"},
    "Page": {"PrintSpace"},
    "PrintSpace": {"TextBlock"},
    "TextBlock": {"TextLine"},
    "TextLine": {"String", "SP"},
}
PAGE = PageRecord(
    document='sub/"odd" & <name>.pdf',
    page=2,
    pages=3,
    status="ok",
    width=1000,
    height=500,
    text="Tom & Jerry\n<said> “no”",
    lines=(
        Line(bbox=(100, 10, 320, 40), text="Tom & Jerry", confidence=0.987),
        Line(bbox=(100, 50, 300, 80), text="<said>  “no”"),
    ),
)


def rendered(formatter: Formatter, pages: list[PageRecord]) -> bytes:
    return encode("".join([*map(formatter.render, pages), formatter.tail()]))


@FEW
@given(st.lists(records, min_size=1, max_size=3))
def test_hocr_is_well_formed_with_a_page_for_each_record(pages):
    root = ElementTree.fromstring(rendered(HocrFormatter(), pages))
    found = [x for x in root.iter(f"{HTML}div") if x.get("class") == "ocr_page"]
    assert len(found) == len(pages)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for page, element in zip(pages, found, strict=True):
        words = [x.text for x in element.iter() if x.get("class") == "ocrx_word"]
        assert words == [word.text for line in lines_of(page) for word in words_of(line)]


@FEW
@given(st.lists(records, min_size=1, max_size=3))
def test_alto_is_nested_as_its_schema_wants(pages):
    root = ElementTree.fromstring(rendered(AltoFormatter(), pages))
    for element in root.iter():
        name = element.tag.removeprefix(ALTO)
        assert {child.tag.removeprefix(ALTO) for child in element} <= ALTO_CHILDREN.get(name, set())
    found = list(root.iter(f"{ALTO}Page"))
    assert [int(x.get("PHYSICAL_IMG_NR")) for x in found] == [page.page for page in pages]
    for page, element in zip(pages, found, strict=True):
        words = [x.get("CONTENT") for x in element.iter(f"{ALTO}String")]
        assert words == [word.text for line in lines_of(page) for word in words_of(line)]
        for line in element.iter(f"{ALTO}TextLine"):
            kinds = [child.tag.removeprefix(ALTO) for child in line]
            assert kinds == (["String", "SP"] * len(kinds))[: len(kinds)]
            assert kinds[-1] == "String"


@FEW
@given(st.lists(records, min_size=1, max_size=3))
def test_dolma_has_a_line_for_each_document_and_finds_its_pages_again(pages):
    formatter = DolmaFormatter(datetime.date(2026, 1, 2))
    lines = rendered(formatter, pages).splitlines()
    changes = [one.document != other.document for one, other in itertools.pairwise(pages)]
    assert len(lines) == 1 + sum(changes)
    found = []
    for line in lines:
        document = json.loads(line)
        for start, end, number in document["attributes"]["pdf_page_numbers"]:
            found.append((document["metadata"]["Source-File"], number, document["text"][start:end]))
    assert found == [(page.document, page.page, plain(page.text)) for page in pages]


def test_boxes_and_confidences_are_those_of_the_record():
    root = ElementTree.fromstring(rendered(HocrFormatter(), [PAGE]))
    by_class = {x.get("class"): x for x in reversed(list(root.iter())) if x.get("class")}
    assert by_class["ocr_page"].get("title") == (
        'image "sub/"odd" & <name>.pdf"; bbox 0 0 1000 500; ppageno 1'
    )
    assert by_class["ocr_line"].get("title") == "bbox 100 10 320 40"
    assert by_class["ocrx_word"].get("title") == "bbox 100 10 160 40; x_wconf 99"
    string = next(ElementTree.fromstring(rendered(AltoFormatter(), [PAGE])).iter(f"{ALTO}String"))
    assert string.attrib == {
        "CONTENT": "Tom",
        "HPOS": "100",
        "VPOS": "10",
        "WIDTH": "60",
        "HEIGHT": "30",
        "WC": "0.99",
    }


@given(st.text("ab é ", min_size=1, max_size=40), st.integers(0, 50), st.integers(1, 500))
def test_words_share_their_line_in_order(text, left, width):
    text = " ".join(text.split())
    if not text:
        return
    words = list(words_of(Line(bbox=(left, 0, left + width, 9), text=text)))
    assert " ".join(word.text for word in words) == text
    starts = [word.bbox[0] for word in words]
    assert starts == sorted(starts)
    assert all(word.bbox[0] < word.bbox[2] <= left + width + 1 for word in words)


def test_a_reader_without_boxes_still_gives_lines_on_the_page():
    page = PageRecord(
        document="a", page=1, pages=1, status="ok", text="one\n\ntwo words\n", width=80, height=60
    )
    lines = list(lines_of(page))
    assert [line.text for line in lines] == ["one", "two words"]
    for line in lines:
        x0, y0, x1, y1 = line.bbox
        assert 0 <= x0 < x1 <= 80
        assert 0 <= y0 < y1 <= 60
    assert lines[0].bbox[3] <= lines[1].bbox[1]


@pytest.mark.parametrize("formatter", [HocrFormatter, AltoFormatter])
def test_a_failed_page_says_so(formatter):
    failed = PageRecord(
        document="a--b-",
        page=1,
        pages=1,
        status="error",
        error=ErrorInfo(code="render", message="--"),
    )
    text = rendered(formatter(), [failed]).decode()
    ElementTree.fromstring(text.encode())
    assert "render" in text or 'PAGECLASS="error"' in text
