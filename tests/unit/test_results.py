"""The page record's JSON form is a contract: its keys, its order, and that nothing is lost."""

import json

import pytest
from hypothesis import given
from record_strategies import failed, page, records

from vlmcli.outputs.base import encode
from vlmcli.results import PageRecord, Reuse, ReuseOrigin, Seconds

CONTRACT_KEYS = [
    *("schema", "document", "page", "pages", "status", "text", "source", "model", "width"),
    *("height", "dpi", "downscaled", "blank", "suspect", "lines", "reuse", "tokens", "attempts"),
    "seconds",
]


@given(records)
def test_a_record_survives_its_line_of_json(record):
    line = encode(record.to_json())
    assert b"\n" not in line
    again = PageRecord.from_dict(json.loads(line))
    assert again == record
    assert encode(again.to_json()) == line


def test_keys_stand_in_the_order_of_the_contract():
    assert list(page().to_dict()) == CONTRACT_KEYS
    assert list(failed().to_dict()) == [*CONTRACT_KEYS, "error"]
    assert list(page().to_dict()["reuse"]) == ["kind", "from", "verified_by"]
    assert list(page().to_dict()["tokens"]) == ["visual", "prompt", "output", "drafted", "accepted"]
    assert list(page().to_dict()["seconds"]) == ["render", "encode", "prefill", "decode"]


def test_an_origin_in_this_run_has_no_run_field():
    here = ReuseOrigin(document="b.pdf", page=3)
    record = page(reuse=Reuse(kind="exact", origin=here, verified_by="sha256"))
    assert record.to_dict()["reuse"]["from"] == {"document": "b.pdf", "page": 3}
    there = ReuseOrigin(document="b.pdf", page=3, run="earlier")
    record = page(reuse=Reuse(kind="exact", origin=there, verified_by="sha256"))
    assert record.to_dict()["reuse"]["from"] == {"document": "b.pdf", "page": 3, "run": "earlier"}


def test_fields_of_a_newer_version_are_ignored():
    data = page().to_dict() | {"mood": "fine"}
    data["tokens"] = data["tokens"] | {"dreamt": 1}
    assert PageRecord.from_dict(data) == page()


@pytest.mark.parametrize("missing", ["document", "page", "pages", "status", "text"])
def test_a_record_without_an_essential_field_is_refused(missing):
    data = page().to_dict()
    del data[missing]
    with pytest.raises(KeyError):
        PageRecord.from_dict(data)


@given(records)
def test_timings_do_not_count_between_runs(record):
    assert record.without_timings().seconds == Seconds()
    assert record.is_failed == (record.status in ("error", "looped", "timeout"))
