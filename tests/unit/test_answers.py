"""Answers that are data: what counts as one, and what is said about those that do not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.answers import MAX_FAULT, AnswerChecker, load_schema, parse_object
from vlmcli.errors import UsageError

SCHEMA = json.dumps(
    {
        "type": "object",
        "required": ["number", "total"],
        "properties": {
            "number": {"type": "string"},
            "total": {"$ref": "#/$defs/amount"},
            "note": {"type": "string"},
        },
        "$defs": {"amount": {"type": "number", "minimum": 0}},
    }
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_an_object_is_read_with_or_without_a_fence(data):
    text = json.dumps(data, ensure_ascii=False)
    assert parse_object(text) == data
    if "```" not in text:
        assert parse_object(f"Here it is:\n```json\n{text}\n```\nAnything else?") == data


@pytest.mark.parametrize(
    "text", ["", "the total is 3", "[1]", "3", '"x"', '{"a": NaN}', '{"a": 1', "[" * 10_000, "null"]
)
def test_what_is_no_object_says_so_in_a_few_words(text):
    with pytest.raises(ValueError, match=r"not JSON|not a JSON object|nested too deeply"):
        parse_object(text)


def test_answers_become_one_object_that_satisfies_the_schema():
    verdict = AnswerChecker(SCHEMA).check(['{"number": "A-1"}', '{"total": 3.5, "extra": null}'])
    assert verdict.data == {"number": "A-1", "total": 3.5, "extra": None}
    assert not verdict.faults


FAULTS = {
    "not JSON": (['{"number": "A"}', "three"], {1}, "not JSON"),
    "of the wrong type": (['{"number": 3}', '{"total": 3}'], {0}, "number: 3 is not of type"),
    "out of range": (['{"number": "A"}', '{"total": -1}'], {1}, "total: -1 is less than"),
    "missing": (['{"number": "A"}', "{}"], {0, 1}, "'total' is a required property"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_are_laid_at_the_door_of_the_answers_that_have_them(case):
    answers, guilty, words = FAULTS[case]
    verdict = AnswerChecker(SCHEMA).check(answers)
    assert verdict.data is None
    assert set(verdict.faults) == guilty
    assert all(words in fault and "\n" not in fault for fault in verdict.faults.values())


def test_a_fault_is_short_however_long_the_answer():
    verdict = AnswerChecker(SCHEMA).check([json.dumps({"number": [1] * 9999, "total": 1})])
    assert len(verdict.faults[0]) <= MAX_FAULT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1: not JSON"),
        ('{"type": "nonsense"}', "not a JSON Schema"),
        ('{"properties": {"a": {"minimum": "x"}}}', "at properties.a.minimum"),
        ('{"$ref": "https://example.org/other.json"}', "leads out of the schema"),
        ('{"properties": {"a": {"$ref": "#/$defs/gone"}}}', "leads nowhere"),
    ],
)
def test_what_is_no_schema_is_refused_before_anything_is_read(tmp_path, text, words):
    path = tmp_path / "my.schema.json"
    path.write_text(text)
    for given_as in (str(path), text):
        with pytest.raises(UsageError) as caught:
            load_schema(given_as)
        assert words in str(caught.value)
        assert ("my.schema.json" if given_as != text else "--answer-schema") in str(caught.value)


def test_a_schema_in_a_file_is_the_one_on_the_command_line(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(SCHEMA)
    assert load_schema(str(path)) == load_schema(SCHEMA) == load_schema(load_schema(SCHEMA))
    path.write_text("[1]")
    with pytest.raises(UsageError, match="a schema is a JSON object"):
        load_schema(str(path))
    with pytest.raises(UsageError, match="no such file"):
        load_schema(str(tmp_path / "gone.json"))
    path.write_bytes(b"\xff{}")
    with pytest.raises(UsageError, match="not JSON"):
        load_schema(str(path))
