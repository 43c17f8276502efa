"""Formats: pages can be told apart, failures are visible, and the text survives."""

import html
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from record_strategies import failed, page, records

from vlmcli.outputs.base import encode, plain
from vlmcli.outputs.jsonl import JsonlFormatter
from vlmcli.outputs.markdown import MarkdownFormatter, escape
from vlmcli.outputs.text import TextFormatter
from vlmcli.results import PageAnswer, PageRecord

MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})


def joined(formatter, some_records):
    return "".join(formatter.render(record) for record in some_records)


def rendered_text(markdown: str) -> str:
    """What a reader sees of Markdown: the rendered HTML without its tags."""
    return html.unescape(re.sub(r"<!--.*?-->|<[^>]*>", "", MARKDOWN.render(markdown), flags=re.S))


@given(st.lists(records, min_size=1, max_size=5))
def test_text_page_n_stands_between_form_feeds(some_records):
    pages = joined(TextFormatter(), some_records).split("\f")
    assert len(pages) == len(some_records)
    for text, record in zip(pages, some_records, strict=True):
        answers = record.answers or ()
        if len(answers) < 2:
            assert text.startswith(plain(record.text).strip("\n"))
            assert ("[vlmcli: " in text.removeprefix(plain(record.text))) == record.is_failed
        else:
            assert all(plain(a.text).strip("\n") in text for a in answers)
        assert text == "" or text.endswith("\n")


@given(records)
def test_no_document_can_send_control_characters_to_a_terminal(record):
    for formatter in (TextFormatter(), MarkdownFormatter(name_documents=True)):
        text = formatter.render(record)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_blank_pages_stay_empty_and_keep_their_place():
    blank = page(number=2, text="", status="blank", blank=True)
    assert joined(TextFormatter(), [page(text="one"), blank, page(number=3, text="three\n\n")]) == (
        "one\n\f\fthree\n"
    )
    assert joined(TextFormatter(), [blank]) == ""


def test_answers_stand_below_their_questions_where_there_are_several():
    who, when = PageAnswer(question="Who?", text="A"), PageAnswer(question="When?", text="B\nC")
    silent = PageAnswer(question="Why?", text="")
    several = page(text="A\n\nB\nC", answers=(who, silent, when))
    one = page(number=2, text="A", answers=(who,))
    none = page(number=3, text="", status="blank", answers=(silent, silent))
    assert joined(TextFormatter(), [several, one, none]) == "Who?\nA\n\nWhen?\nB\nC\n\fA\n\f"


def test_failures_are_visible_in_place():
    cut = page(number=2, text="begins well", status="looped")
    text = joined(TextFormatter(), [failed(code="timeout"), cut, failed("x.pdf", 0, "damaged")])
    assert text == (
        "[vlmcli: page 1 failed: timeout]\n"
        "\fbegins well\n[vlmcli: page 2 cut: looped]\n"
        "\f[vlmcli: x.pdf failed: damaged]\n"
    )


def test_the_documentation_shows_what_stands_in_a_failed_page_s_place():
    docs = (Path(__file__).parents[2] / "docs/records.md").read_text()
    shown = docs.split("```text\n")[1].split("```")[0]
    some = [
        failed(number=2, code="render"),
        failed(number=3, code="timeout"),
        page(number=4, text="", status="looped"),
        failed("locked.pdf", 0, "encrypted"),
    ]
    assert joined(TextFormatter(), some).replace("\f", "") == shown
    markdown = joined(MarkdownFormatter(), some[:1])
    assert markdown.strip().split("\n")[-1] in docs
    line = shown.split("\n")[0]
    assert line in (Path(__file__).parents[2] / "README.md").read_text()


def test_markdown_pages_and_documents_are_marked():
    some = [page("a.pdf", 1, "one\ntwo\n\n\nthree"), failed("a.pdf", 2), page("b.pdf", 1, "")]
    assert joined(MarkdownFormatter(name_documents=True), some) == (
        "<!-- document a.pdf -->\n\n<!-- page 1 -->\n\none\ntwo\n\nthree\n"
        "\n<!-- page 2 -->\n\n**[vlmcli: page 2 failed: timeout]**\n"
        "\n<!-- document b.pdf -->\n\n<!-- page 1 -->\n"
    )
    assert joined(MarkdownFormatter(), some[:1]).startswith("<!-- page 1 -->\n\none\n")


MARKDOWN_CHARACTERS = st.text(st.sampled_from("ab 1.)(#*_-+=`~<>&;:|[]!\\\t\"'/x"), max_size=24)


@given(st.lists(MARKDOWN_CHARACTERS, max_size=6))
def test_markdown_renders_to_the_recognised_text(some_lines):
    text = joined(MarkdownFormatter(), [page(text="\n".join(some_lines))])
    seen = rendered_text(text).split("\n")
    wanted = [line.strip() for line in some_lines if line.strip()]
    assert [line.rstrip() for line in seen if line.strip()] == wanted
    tags = set(re.findall(r"<(\w+)", MARKDOWN.render(text)))
    assert tags <= {"p"}


@pytest.mark.parametrize(
    "line",
    [
        *("# 1", "1. first", "12) x", "- item", "+ item", "* x *", "---", "===", "> quoted", "_ _"),
        *("```", "~~~", "&amp; co", "<b>bold</b>", "![a](b)", "[a]: b", "a_b_c _x_", "| a | b |"),
        *(":--", "<!-- x"),
    ],
)
def test_markdown_lines_that_mean_something_are_escaped(line):
    assert rendered_text(f"before\n{escape(line)}").strip() == f"before\n{line}"
    assert rendered_text(f"{escape(line)}\nafter").strip() == f"{line}\nafter"


@pytest.mark.parametrize("line", ["A plain line.", "snake_case", "AT&T", "3 < 4", "well-known (1)"])
def test_markdown_leaves_ordinary_lines_alone(line):
    assert escape(line) == line


@given(st.text(max_size=30))
def test_a_document_name_cannot_end_its_comment(name):
    text = MarkdownFormatter(name_documents=True).render(page(f"{name}-->", text=""))
    assert rendered_text(text.replace("<!-- page 1 -->", "")).strip() == ""
    assert text.count("-->") == 2


@given(st.lists(records, max_size=4))
def test_jsonl_is_one_record_a_line(some_records):
    data = encode(joined(JsonlFormatter(), some_records))
    assert data == b"".join(encode(record.to_json()) + b"\n" for record in some_records)
    lines = data.split(b"\n")
    assert lines.pop() == b""
    assert [PageRecord.from_dict(json.loads(line)) for line in lines] == some_records
